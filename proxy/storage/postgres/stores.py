"""All stores in a PostgreSQL database, shared by any number of replicas on any machines."""

import asyncio
from collections.abc import Callable

from proxy.domain.errors import StoreUnavailable
from proxy.domain.oversight import Quota
from proxy.storage.postgres.connection import mapped
from proxy.storage.postgres.database import PostgresDatabase
from proxy.storage.postgres.instance import PostgresInstance
from proxy.storage.sql.indexed import Indexed
from proxy.storage.sql.stores import INDEX_BYTES, ROW_BYTES, UNLIMITED, SqlStores


class PostgresStores(SqlStores):
    """The stores over one PostgreSQL database.

    Until `open()` has succeeded, and whenever the server is out of reach, their methods raise
    StoreUnavailable; they recover by themselves once it is back. A failed `open()` may be repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        index_bytes: int = INDEX_BYTES,
        row_bytes: int = ROW_BYTES,
        quota: Quota = UNLIMITED,
        indexed: Indexed | None = None,
    ) -> None:
        self._url = url
        self._database = PostgresDatabase(url, connections=connections)
        self._instance: PostgresInstance | None = None
        self._wake: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(
            self._database, index_bytes=index_bytes, row_bytes=row_bytes, quota=quota, indexed=indexed
        )

    @property
    def place(self) -> str:
        """Where everything is, without user and password."""
        return self._database.place

    def on_queued(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in this event loop, when any replica has queued a job."""
        self._wake = wake

    async def open(self) -> None:
        """Create the tables, or check them. Raises StoreUnavailable, UnfitStore for a newer or a foreign
        database."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._database.open()
            await self._refuse_unfinished_copy()
            if self._instance is None:
                self._instance = await asyncio.to_thread(self._live)
                self._live_as(self._instance)
            await self.memories.resume_forgets()
        except StoreUnavailable as error:
            self.failure = str(error)
            raise
        self.failure = ""

    async def close(self) -> None:
        """Finish what was accepted and end the threads; other processes may take over what is open."""
        await self._close_index()
        await self._database.close()
        if self._instance is not None:
            await asyncio.to_thread(self._instance.close)

    def _live(self) -> PostgresInstance:
        instance = PostgresInstance(self._url, self._announced)
        with mapped(self.place):
            instance.start()
        return instance

    def _announced(self, what: str) -> None:
        kind, _, owner = what.partition(" ")
        if kind == "queued":
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._wake)
        elif kind == "forgot" and owner.isdecimal():
            self.memories.forgetting.let_go(int(owner))
