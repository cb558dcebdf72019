"""MemoryStore over Redis and Qdrant."""

import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.stores.redis.quarantine import RedisQuarantine
from proxy.stores.redis.unit import Units
from tests.stores.contract_changes import ChangesContract
from tests.stores.contract_memories import MemoryContract
from tests.stores.on_redis.memories_support import replica


@pytest.fixture(params=["embedded", "server"])
async def qdrant(request):
    """A Qdrant without collections of ours: the library's stand-in, and a server where there is one."""
    if request.param == "server" and not os.environ.get("QDRANT_URL"):
        pytest.skip("NO QDRANT: set QDRANT_URL to test the index over a server")
    where = {"location": ":memory:"} if request.param == "embedded" else {"url": os.environ["QDRANT_URL"]}
    client = AsyncQdrantClient(**where)
    yield client
    for each in (await client.get_collections()).collections:
        if each.name.startswith("t_"):
            await client.delete_collection(each.name)
    await client.close()


@pytest.fixture
def memories(redis, qdrant):
    return replica(redis, qdrant)


@pytest.fixture
def quarantine(units):
    return RedisQuarantine(units)


@pytest.fixture
def stores_with_quota(redis, qdrant):
    """Memories and quarantine under a quota."""

    @asynccontextmanager
    async def opened(quota):
        yield SimpleNamespace(
            memories=replica(redis, qdrant, quota), quarantine=RedisQuarantine(Units(redis))
        )

    return opened


class TestRedisMemories(MemoryContract):
    """MemoryStore over Redis and Qdrant."""


class TestRedisChanges(ChangesContract):
    """What apply does with edits, quarantine and quotas over Redis."""
