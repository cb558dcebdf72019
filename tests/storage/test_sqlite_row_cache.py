"""Memories kept between searches: as good as their rows, and not made anew without need."""

import asyncio
import itertools
import os
import pickle
import threading
import time
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest

from proxy.domain.core import Create, Memory, MemoryFilter, Scope, Search
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql import memories as sqlite_memories
from proxy.storage.sql import memory_cache, rows
from proxy.storage.sqlite.stores import SqliteStores

NOW = 1_780_000_000.0
ANNA = Scope("default", "anna")
TEA = Memory(
    id="tea", scope=ANNA, type="semantic", content="Drinks green tea.", source="api",
    created_at=NOW, updated_at=NOW, valid_from=NOW,
)  # fmt: skip


@pytest.fixture
async def memories(tmp_path):
    stores = SqliteStores(tmp_path)
    await stores.open()
    await stores.memories.apply(ANNA, [Create(TEA, None)], expect=await stores.memories.stamp(ANNA))
    yield stores.memories
    await stores.close()


async def found(memories):
    (hit,) = await memories.search(ANNA, Search(None, ("tea",), limit=5, types=None, now=NOW))
    return hit.memory


@pytest.fixture
def a_minute_later(memories, monkeypatch):
    now = itertools.count(61, 61)

    def later():
        monkeypatch.setattr(memories._rows, "_steady", partial(float, time.monotonic() + next(now)))

    return later


async def test_every_touch_is_seen_by_searches_after_a_minute(memories, a_minute_later):
    for times in range(3):
        assert (await found(memories)).access_count == times
        await memories.touch(ANNA, ["tea"], NOW + times)
        a_minute_later()
    assert (await found(memories)).last_accessed == NOW + 2


async def test_within_a_minute_no_row_is_looked_at_again_unless_the_user_has_changed(memories, monkeypatch):
    before = await found(memories)
    monkeypatch.setattr(memory_cache, "_STATES", "no SQL")
    assert await found(memories) is before
    more = replace(TEA, id="more", content="Drinks black coffee.")
    await memories.apply(ANNA, [Create(more, None)], expect=await memories.stamp(ANNA))
    with pytest.raises(StoreUnavailable):
        await found(memories)


async def test_a_touched_memory_is_made_anew_once_and_not_by_every_search(memories, a_minute_later):
    await found(memories)
    await memories.touch(ANNA, ["tea"], NOW)
    a_minute_later()
    touched = await found(memories)
    a_minute_later()
    assert touched.access_count == 1
    assert await found(memories) is touched


async def test_the_first_snapshot_of_a_user_reads_no_rows_and_the_next_one_all(memories, monkeypatch):
    wanted = Search(None, ("tea",), now=NOW)
    assert (await memories.snapshot(ANNA)).search(wanted) is None
    assert not memories._rows._users
    (hit,) = (await memories.snapshot(ANNA)).search(wanted)
    assert hit.memory == TEA
    monkeypatch.setattr(rows, "memories_by_seq", None)
    assert (await found(memories)).content == TEA.content


async def test_a_snapshot_is_begun_before_it_is_awaited_and_may_be_called_off(memories):
    read = memories.snapshot(ANNA)
    for _ in range(1000):
        if memories._indexes.holds(ANNA):
            break
        await asyncio.sleep(0.01)
    assert memories._indexes.holds(ANNA)
    assert await read is not None
    release = threading.Event()
    busy = [asyncio.ensure_future(memories._database.read(lambda tx: release.wait(10))) for _ in range(2)]
    await asyncio.sleep(0)
    queued = memories.snapshot(ANNA)
    assert queued.cancel()
    release.set()
    await asyncio.gather(*busy)
    assert (await memories.snapshot(ANNA)) is not None


async def test_of_a_user_with_many_memories_a_snapshot_reads_no_rows(memories, monkeypatch):
    monkeypatch.setattr(sqlite_memories, "_FEW", 0)
    for _ in range(2):
        assert (await memories.snapshot(ANNA)).search(Search(None, ("tea",), now=NOW)) is None
    assert not memories._rows._users


async def test_after_a_forget_nothing_is_at_hand(memories):
    await found(memories)
    await memories.forget(MemoryFilter(tenant=ANNA.tenant, user=ANNA.user), by="test")
    assert not memories._indexes.holds(ANNA)


async def test_a_damaged_row_costs_the_snapshot_and_only_the_searches_that_find_it(memories):
    milk = replace(TEA, id="milk", content="Drinks milk.", tags=("cow",))
    await memories.apply(ANNA, [Create(milk, None)], expect=await memories.stamp(ANNA))
    await memories._database.write(lambda tx: tx.execute("UPDATE memories SET tags = '[' WHERE id = 'milk'"))
    await memories.snapshot(ANNA)
    assert await memories.snapshot(ANNA) is None
    assert (await found(memories)).content == TEA.content


async def test_a_memory_read_from_its_row_is_as_good_as_one_made_and_as_immutable(memories):
    read = await found(memories)
    assert (read, repr(read), hash(read)) == (TEA, repr(TEA), hash(TEA))
    assert type(read) is Memory
    with pytest.raises(FrozenInstanceError):
        read.content = "Drinks nothing."
    assert replace(read, content="Drinks milk.").content == "Drinks milk."
    assert pickle.loads(pickle.dumps(read)) == TEA


async def test_of_another_file_at_the_path_nothing_is_taken_for_what_was_kept(memories, tmp_path):
    assert (await found(memories)).content == TEA.content
    ben = Scope("default", "ben")
    other = SqliteStores(tmp_path / "other")
    await other.open()
    theirs = replace(TEA, scope=ben, content="Drinks no tea, ever.")  # by all its numbers Anna's memory
    await other.memories.apply(ben, [Create(theirs, None)], expect=await other.memories.stamp(ben))
    await other.close()
    os.replace(tmp_path / "other" / "memory.db", tmp_path / "memory.db")
    wanted = Search(None, ("tea",), limit=5, types=None, now=NOW)
    assert not await memories.search(ANNA, wanted)
    (hit,) = await memories.search(ben, wanted)
    assert hit.memory == theirs
