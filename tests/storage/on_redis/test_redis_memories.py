"""MemoryStore over Redis and Qdrant."""

import json
import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.domain.core import MemoryFilter, Scope
from proxy.storage.redis import listing, rows
from proxy.storage.redis.quarantine import RedisQuarantine
from proxy.storage.redis.unit import Units
from tests.storage.contract_changes import ChangesContract
from tests.storage.contract_memories import MemoryContract
from tests.storage.making import NOW, create, store
from tests.storage.on_redis.memories_support import replica


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


async def test_a_page_of_a_whole_tenant_reads_that_page_and_nobody_elses_names(redis, counted, monkeypatch):
    """However many memories the tenant has, and however many users others have."""
    memories = replica(counted, AsyncQdrantClient(":memory:"))
    names = [f"u{n:02}" for n in range(20)]
    for name in names:
        user = Scope("acme", name)
        await store(memories, *(create(f"{name} {n}", user, id=f"{name}-{n}") for n in range(6)), scope=user)
    await redis.call(
        "HSET", redis.key("users"),
        *(each for n in range(600) for each in (f"uid{n}", json.dumps(["other", f"v{n}"]))),
    )  # fmt: skip
    read = []
    memory_of = rows.memory_of
    monkeypatch.setattr(rows, "memory_of", lambda *each: read.append(each) or memory_of(*each))
    monkeypatch.setattr(listing, "_NAMES", 3)
    monkeypatch.setattr(listing, "_LOOKED_AT", 5)
    seen, after, more, ways = [], None, True, []
    while more:
        read.clear()
        counted.ways = 0
        page = await memories.list(
            MemoryFilter(tenant="acme", user=None, now=NOW),
            limit=4,
            after=after,
            oldest_first=True,
            total=False,
        )
        assert len(read) <= 5
        ways.append(counted.ways)
        seen += [m.id for m in page.items]
        after, more = seen[-1], page.has_more
    assert seen == [f"{name}-{n}" for name in names for n in range(6)]
    assert max(ways[1:]) < 35, ways  # at the first, those who came to an earlier version are listed by name


@pytest.mark.parametrize("earlier", [False, True], ids=["listed as they came", "of an earlier version"])
async def test_names_that_begin_alike_or_are_odd_are_of_their_own_tenant(
    redis, counted, monkeypatch, earlier
):
    memories = replica(counted, AsyncQdrantClient(":memory:"))
    monkeypatch.setattr(listing, "_NAMES", 2)
    names = ["", "[a", "(b", "é", "z", "\U0001f600"]
    for tenant in ("acme", "acme2", "ac", "acme\x7f"):
        for name in names:
            user = Scope(tenant, name)
            await store(memories, create("x", user, id=f"{tenant} {name}"), scope=user)
    if earlier:
        await redis.call("ZREM", redis.key("names"), b"acme\0z", b"ac\0z")
    else:
        monkeypatch.delattr(listing.Listing, "_name_all")
    for tenant in ("acme", "acme2", "ac", "acme\x7f"):
        where = MemoryFilter(tenant=tenant, user=None, now=NOW)
        page = await memories.list(where, limit=99, after=None, oldest_first=True, total=True)
        assert [m.id for m in page.items] == [f"{tenant} {name}" for name in sorted(names)]
        assert page.total == len(names)


class TestRedisChanges(ChangesContract):
    """What apply does with edits, quarantine and quotas over Redis."""
