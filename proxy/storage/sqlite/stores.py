"""All stores of a data directory: memories, sessions, jobs, chains and conversations, in one SQLite file."""

import asyncio
from pathlib import Path

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.domain.oversight import Quota
from proxy.storage.sql.indexed import Indexed
from proxy.storage.sql.stores import INDEX_BYTES, ROW_BYTES, UNLIMITED, SqlStores
from proxy.storage.sqlite import file, place
from proxy.storage.sqlite.database import Database
from proxy.storage.sqlite.instance import Instance


class SqliteStores(SqlStores):
    """The stores over `<data_dir>/memory.db`, which may be shared by the processes of one machine.

    Until `open()` has succeeded, and whenever the file is out of reach, their methods raise
    StoreUnavailable; they recover by themselves once it is back. A failed `open()` may be repeated.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        index_bytes: int = INDEX_BYTES,
        row_bytes: int = ROW_BYTES,
        readers: int = 2,
        quota: Quota = UNLIMITED,
        allow_network: bool = False,
        indexed: Indexed | None = None,
    ) -> None:
        self.path = data_dir / "memory.db"
        self._allow_network = allow_network
        self._run_dir = data_dir / "run"
        self._instance: Instance | None = None
        self._database = Database(self.path, readers=readers)
        super().__init__(
            self._database, index_bytes=index_bytes, row_bytes=row_bytes, quota=quota, indexed=indexed
        )

    @property
    def place(self) -> str:
        """The path of the database."""
        return str(self.path)

    async def open(self) -> None:
        """Open or make the file. Raises StoreUnavailable, with nothing overwritten, if it cannot; UnfitStore
        on a network file system."""
        try:
            await self._open()
        except UnfitStore as error:
            self.failure = str(error)
            raise
        except StoreUnavailable as error:
            why = await asyncio.to_thread(place.obstacle, self.path.parent)
            self.failure = why or str(error)
            if not why:
                raise
            raise StoreUnavailable(why) from error
        self.failure = ""

    async def _open(self) -> None:
        kind = await asyncio.to_thread(place.network_file_system, self.path.parent)
        if kind and not self._allow_network:
            raise UnfitStore(place.on_network(self.path.parent, kind))
        if self._instance is None:
            self._instance = await asyncio.to_thread(self._live)
            self._live_as(self._instance)
        await self._database.open()
        await self._refuse_unfinished_copy()
        await self.memories.resume_forgets()

    async def close(self) -> None:
        """Finish what was accepted and end the threads; other processes may take over what is open."""
        await self._close_index()
        await self._database.close()
        if self._instance is not None:
            self._instance.close()

    def _live(self) -> Instance:
        with file.mapped(self._run_dir):
            if not self._run_dir.parent.exists():
                self._run_dir.parent.mkdir(mode=0o700, parents=True)
            return Instance(self._run_dir)
