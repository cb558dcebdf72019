"""SQLite with an index in Qdrant that proposes what a search looks at: in local mode, or at QDRANT_URL."""

import os
import secrets

from qdrant_client import AsyncQdrantClient

from proxy.storage.qdrant import Collection, QdrantIndex
from proxy.storage.sql.vectors import Indexed, Point
from tests.storage.conftest import Sqlite

SERVERS = [":memory:", *filter(None, [os.environ.get("QDRANT_URL")])]


class Indexing(Sqlite):
    """Every user is searched by the index: when it has everything, or `is_behind` and has nothing."""

    def __init__(self, directory, *, is_behind):
        super().__init__(directory)
        self.is_behind = is_behind
        self.index = None

    def make(self, **options):
        if self.index is not None:  # another process, which searches exactly
            return super().make(**options)
        collection = Collection(prefix=f"test-{secrets.token_hex(4)}")
        index = self.index = QdrantIndex(AsyncQdrantClient(SERVERS[-1]), collection, search_timeout_s=10)
        stores = super().make(indexed=Indexed(index, exact_up_to=-1), **options)
        search, close = stores.memories.search, stores.close

        async def when_delivered(scope, what):
            await stores.outbox.deliver(10)
            assert not await stores.outbox.waiting()
            return await search(scope, what)

        async def drop_and_close():
            await index.drop()
            await close()

        stores.close = drop_and_close
        if not self.is_behind:
            stores.memories.search = when_delivered
        return stores

    async def open(self, **options):
        is_first = self.index is None
        stores = await super().open(**options)
        if not is_first:
            return stores
        await stores.outbox.deliver(10)
        # As after a first delivery: the index is asked from now on.
        await self.index.upsert(-1, [Point(2**40, 0, "semantic", None, None, None, b"")], 0)
        known = "UPDATE vector_targets SET generations = '[-1]'"
        await stores.database.write(lambda tx: tx.execute(known) and None)
        return stores
