"""All stores of a data directory: memories, sessions, jobs, chains and conversations, in one SQLite file."""

import asyncio
from pathlib import Path

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.domain.oversight import Quota
from proxy.storage.sqlite import file, place
from proxy.storage.sqlite.calls import SqliteCalls
from proxy.storage.sqlite.chains import SqliteChains
from proxy.storage.sqlite.conversations import SqliteConversations
from proxy.storage.sqlite.database import Database
from proxy.storage.sqlite.documents import SqliteDocuments
from proxy.storage.sqlite.forms import SqliteForms
from proxy.storage.sqlite.instance import Instance
from proxy.storage.sqlite.jobs import SqliteJobs
from proxy.storage.sqlite.keys import SqliteKeys
from proxy.storage.sqlite.memories import SqliteMemories
from proxy.storage.sqlite.notes import SqliteNotes
from proxy.storage.sqlite.passages import SqlitePassages
from proxy.storage.sqlite.quarantine import SqliteQuarantine
from proxy.storage.sqlite.receipts import SqliteReceipts
from proxy.storage.sqlite.reembed import SqliteVectors
from proxy.storage.sqlite.sessions import SqliteSessions

UNLIMITED = Quota()


class SqliteStores:
    """The stores over `<data_dir>/memory.db`, which may be shared by the processes of one machine.

    Until `open()` has succeeded, and whenever the file is out of reach, their methods raise
    StoreUnavailable; they recover by themselves once it is back. A failed `open()` may be repeated.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        index_bytes: int = 256 * 2**20,
        row_bytes: int = 128 * 2**20,
        readers: int = 2,
        quota: Quota = UNLIMITED,
        allow_network: bool = False,
    ) -> None:
        self.path = data_dir / "memory.db"
        self.failure = ""
        self._allow_network = allow_network
        self._run_dir = data_dir / "run"
        self._instance: Instance | None = None
        self._database = Database(self.path, readers=readers)
        self.memories = SqliteMemories(
            self._database, index_bytes=index_bytes, row_bytes=row_bytes, quota=quota
        )
        self.sessions = SqliteSessions(self._database)
        self.notes = SqliteNotes(self._database)
        self.jobs = SqliteJobs(self._database)
        self.chains = SqliteChains(self._database)
        self.conversations = SqliteConversations(self._database)
        self.quarantine = SqliteQuarantine(self._database)
        self.keys = SqliteKeys(self._database)
        self.receipts = SqliteReceipts(self._database)
        self.calls = SqliteCalls(self._database)
        self.forms = SqliteForms(self._database)
        self.documents = SqliteDocuments(
            self._database, self.memories.forgetting, lambda: self.memories.model
        )
        self.passages = SqlitePassages(
            self._database, lambda: self.memories.model, index_bytes=index_bytes // 4
        )
        self.memories.forgetting.also_let_go(self.passages.let_go)
        self.vectors = SqliteVectors(self._database)

    @property
    def place(self) -> str:
        """Where everything is kept."""
        return str(self.path)

    @property
    def database(self) -> Database:
        """For what copies whole tables."""
        return self._database

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
            self.sessions.instance = self.jobs.instance = self._instance
            self.memories.forgetting.instance = self._instance
        await self._database.open()
        await self.memories.resume_forgets()

    @property
    def is_open(self) -> bool:
        """True once `open()` has succeeded."""
        return self._database.is_open

    @property
    def trouble(self) -> str:
        """What is wrong with the file, in a constant word; "" while all that is asked of it works."""
        return self._database.troubles.current

    @property
    def is_readable(self) -> bool:
        """False while reading is what fails, and not only writing."""
        return not self._database.troubles.of_reading

    async def upkeep(self) -> None:
        """Do every few seconds what is left over by whoever died, and see whether trouble is over; bring in
        who may come back."""
        await self._database.probe()
        await self.memories.resume_forgets()
        if not self.trouble:
            await self.memories.coming_back.step()

    async def close(self) -> None:
        """Finish what was accepted and end the threads; other processes may take over what is open."""
        await self._database.close()
        if self._instance is not None:
            self._instance.close()

    @property
    def commits(self) -> int:
        """Group commits so far: what shows that many writes share one."""
        return self._database.commits

    def _live(self) -> Instance:
        with file.mapped(self._run_dir):
            if not self._run_dir.parent.exists():
                self._run_dir.parent.mkdir(mode=0o700, parents=True)
            return Instance(self._run_dir)
