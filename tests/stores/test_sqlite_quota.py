"""The quota over SQLite: counted without counting, exact among processes, and no burden on the writer."""

import asyncio
import random

import pytest

from proxy.domain import Edit
from proxy.errors import Conflict
from proxy.oversight import Applied, Quota
from proxy.stores.sqlite import SqliteStores, changes, quota
from tests.stores.making import ANNA, BEN, NOW, contents, create, find, memory, of, store, supersede, vector


@pytest.fixture
async def opened(tmp_path):
    """Open stores over one directory, as several processes would."""
    every = []

    async def open_one(limit):
        stores = SqliteStores(tmp_path, quota=limit)
        await stores.open()
        every.append(stores)
        return stores

    yield open_one
    for stores in every:
        await stores.close()


async def usage(stores):
    """What `scopes` says and what a recount says, by user."""

    def read(tx):
        said = tx.execute("SELECT user, memories, content_bytes FROM scopes").fetchall()
        counted = tx.execute(
            "SELECT s.user, count(m.seq), coalesce(sum(length(CAST(m.content AS BLOB))), 0)"
            " FROM scopes s LEFT JOIN memories m ON m.owner = s.id GROUP BY s.id"
        ).fetchall()
        return sorted(said), sorted(counted)

    return await stores._database.read(read)


async def test_the_counters_equal_a_recount_whoever_writes(opened):
    stores = await opened(Quota(memories=8, content_bytes=120))
    dice = random.Random(7)
    for n in range(150):
        scope = dice.choice((ANNA, BEN))
        id_, text = (
            f"{scope.user}{dice.randrange(12)}",
            "日é x"[: dice.randrange(5)] * dice.randrange(9) + str(n),
        )
        change = dice.choice(
            [
                create(text, scope, id=id_),
                supersede(id_, text, scope),
                Edit(memory(text, scope, id=id_), None),
            ]
        )
        match dice.randrange(8):
            case 0:
                await stores.memories.forget(of(scope), id_, by="test")
            case 1 if n % 20 == 0:
                await stores.memories.forget(of(scope), by="test")
            case _:
                if await stores.memories.get(of(scope), id_) or not isinstance(change, Edit):
                    await store(stores.memories, change, scope=scope)
        said, counted = await usage(stores)
        assert said == counted
        assert all(count <= 8 and size <= 120 for _, count, size in said)


@pytest.mark.parametrize("evict", [True, False])
async def test_two_processes_together_never_pass_the_quota(opened, evict):
    limit = Quota(memories=6, content_bytes=200, evict=evict)
    both = [await opened(limit), await opened(limit)]

    async def write(stores, n):
        for attempt in range(100):
            try:
                return await store(stores.memories, create(f"fact {n}", importance=n / 20))
            except Conflict:
                await asyncio.sleep(0.001 * attempt)
        raise AssertionError("never got through")

    applied = await asyncio.gather(*(write(both[n % 2], n) for n in range(20)))
    assert (await both[0].memories.list(of(ANNA), limit=99)).total == 6
    assert sum(a.evicted + len(a.refused) for a in applied) == 14


async def test_another_process_sees_that_a_memory_was_evicted(opened):
    limit = Quota(memories=2)
    here, there = await opened(limit), await opened(limit)
    await store(here.memories, create("tea a", importance=0.1), create("tea b"))
    assert len(await find(there.memories, "tea")) == 2  # its index is in use now
    await store(here.memories, create("tea c"))
    assert await contents(there.memories, "tea") == {"tea b", "tea c"}
    (hit,) = await find(there.memories, "tea", limit=1)
    assert hit.memory.content == "tea c"


async def test_an_index_too_old_for_what_is_remembered_of_evictions_is_read_anew(opened, monkeypatch):
    for module in (changes, "proxy.stores.sqlite.index_cache"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.REMEMBERED_VERSIONS", 3)
    limit = Quota(memories=3)
    here, there = await opened(limit), await opened(limit)
    await store(here.memories, *(create(f"tea {n}", vec=vector(1)) for n in range(3)))
    assert len(await find(there.memories, "tea", vec=vector(1))) == 3
    for n in range(9):
        await store(here.memories, create(f"rum {n}", importance=0.9, vec=vector(0, 1)))
    (hit,) = await find(there.memories, vec=vector(1), limit=1)  # nothing, if the teas still ranked
    assert hit.memory.content == "rum 8"
    assert await contents(there.memories, "tea rum", vec=vector(1)) == {"rum 6", "rum 7", "rum 8"}
    assert (await here._database.read(lambda tx: tx.execute("SELECT count(*) FROM evicted").fetchone()))[
        0
    ] <= 3


async def test_a_quota_that_was_lowered_is_reached_in_portions(opened, monkeypatch):
    stores = await opened(Quota())
    await store(stores.memories, *(create(f"fact {n}") for n in range(30)))
    await stores.close()
    monkeypatch.setattr(quota, "_MOST_AT_ONCE", 9)
    stores = await opened(Quota(memories=5))
    evicted = [(await store(stores.memories, create(f"new {n}"))).evicted for n in range(4)]
    assert evicted == [10, 10, 8, 1]


async def test_an_eviction_alone_is_a_change_that_searches_see(opened):
    stores = await opened(Quota())
    await store(stores.memories, *(create(f"fact {n}", vec=vector(1, n)) for n in range(5)))
    await stores.close()
    stores = await opened(Quota(memories=2))
    assert len(await find(stores.memories, "fact")) == 5
    said_before = create("fact 0", id="again")
    assert await store(stores.memories, said_before) == Applied(evicted=3, dropped=("again",))
    (hit,) = await find(stores.memories, vec=vector(1), limit=1)
    assert hit.memory.content == "fact 3"


async def test_a_quota_that_was_lowered_refuses_growth_only(opened):
    stores = await opened(Quota())
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}") for n in range(5)))
    await stores.close()
    stores = await opened(Quota(memories=2, evict=False))
    assert (await store(stores.memories, create("new", id="n"))).refused == ("n",)
    assert (await store(stores.memories, supersede("f0", "new", id="n"))).refused == ()
    assert (await store(stores.memories, Edit(memory("edited", id="f1"), None))).refused == ()
    assert (await stores.memories.list(of(ANNA, include_inactive=True), limit=9)).total == 5


async def test_the_weakest_are_found_without_looking_at_the_others(opened):
    stores = await opened(Quota())
    parameters = {"owner": 1, "version": 1, "now": NOW}

    def plans(tx):
        for query in quota._IN_THIS_ORDER:
            yield [row[3] for row in tx.execute(f"EXPLAIN QUERY PLAN {query}", parameters)]

    closed, expired, others = await stores._database.read(lambda tx: list(plans(tx)))
    for plan in (closed, others):
        assert plan == ["SEARCH memories USING INDEX memories_weakest (owner=? AND <expr>=?)"]
    assert "memories_expiring (owner=? AND expires_at<?)" in expired[0]


async def test_what_an_eviction_and_a_refusal_did_is_logged_without_content(opened, monkeypatch):
    said = []
    monkeypatch.setattr(
        "proxy.observe.log.info", lambda event, **facts: said.append((event, facts)), raising=False
    )
    stores = await opened(Quota(memories=1, content_bytes=9))
    await store(stores.memories, create("one", id="a"))
    await store(stores.memories, create("two"), create("much too long"))
    assert ("memory.evicted", {"count": 1}) in said
    assert ("memory.refused", {"count": 1}) in said
