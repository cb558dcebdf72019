"""The contract of memories where an index in Qdrant proposes what a search looks at: in local mode, and on a
server where QDRANT_URL is set."""

import os
import secrets

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.storage.qdrant import Collection, QdrantIndex
from proxy.storage.sql.external_index import Indexed, Point
from proxy.storage.sqlite import SqliteStores
from tests.storage.conftest import tell
from tests.storage.contract_changes import ChangesContract
from tests.storage.contract_forgetting import ForgettingContract
from tests.storage.contract_memories import MemoryContract
from tests.storage.contract_reembed import ReembedContract

SERVERS = [":memory:", *filter(None, [os.environ.get("QDRANT_URL")])]


@pytest.fixture(params=SERVERS)
def index(request):
    client = AsyncQdrantClient(request.param)
    return QdrantIndex(client, Collection(prefix=f"test-{secrets.token_hex(4)}"), search_timeout_s=10)


@pytest.fixture(params=["delivered", "waiting"])
async def stores(request, tmp_path, embedding, index, monkeypatch):
    """Stores that search every user by the index: when it has everything, and while it has nothing."""
    opened = SqliteStores(tmp_path, indexed=Indexed(index, exact_up_to=-1))
    await opened.open()
    await tell(opened, embedding)
    await opened.outbox.deliver(10)
    # As after a first delivery: the index is asked from now on.
    await index.upsert(-1, [Point(2**40, 0, "semantic", None, None, None, b"")], 0)
    known = "UPDATE vector_targets SET generations = '[-1]'"
    await opened.database.write(lambda tx: tx.execute(known) and None)
    search = opened.memories.search

    async def when_delivered(scope, what):
        await opened.outbox.deliver(10)
        assert not await opened.outbox.waiting()
        return await search(scope, what)

    if request.param == "delivered":
        monkeypatch.setattr(opened.memories, "search", when_delivered)
    yield opened
    await index.drop()
    await opened.close()


@pytest.fixture
def commits(stores):
    async def count():
        return stores.commits

    return count


class TestMemories(MemoryContract):
    """MemoryStore."""


class TestChanges(ChangesContract):
    """What apply does."""


class TestForgetting(ForgettingContract):
    """Forget."""


class TestReembed(ReembedContract):
    """Two generations of vectors."""
