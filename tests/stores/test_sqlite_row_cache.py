"""Memories kept between searches: as good as their rows, and not made anew without need."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain import Create, Memory, MemoryFilter, Scope, Search
from proxy.stores.sqlite import memories as sqlite_memories
from proxy.stores.sqlite import rows
from proxy.stores.sqlite.stores import SqliteStores

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


async def test_every_touch_is_seen_by_the_next_search(memories):
    for times in range(3):
        assert (await found(memories)).access_count == times
        await memories.touch(ANNA, ["tea"], NOW + times)
    assert (await found(memories)).last_accessed == NOW + 2


async def test_a_touched_memory_is_made_anew_once_and_not_by_every_search(memories):
    await found(memories)
    await memories.touch(ANNA, ["tea"], NOW)
    assert await found(memories) is await found(memories)


def is_at_hand(memories):
    return memories._indexes.holds(ANNA) and bool(memories._rows._users)


async def test_a_search_that_was_begun_reads_no_rows(memories, monkeypatch):
    memories.begin(ANNA)
    for _ in range(1000):
        if not is_at_hand(memories):
            await asyncio.sleep(0.01)
    monkeypatch.setattr(rows, "memories_by_seq", None)
    assert (await found(memories)).content == TEA.content


async def test_a_user_with_many_memories_keeps_no_second_reader_busy(memories, monkeypatch):
    monkeypatch.setattr(sqlite_memories, "_FEW", 1)
    more = replace(TEA, id="more", content="Drinks black tea.")
    await memories.apply(ANNA, [Create(more, None)], expect=await memories.stamp(ANNA))
    memories.begin(ANNA)
    await asyncio.sleep(0.2)  # longer than it takes
    assert not is_at_hand(memories)


async def test_what_is_at_hand_is_not_read_again(memories, monkeypatch):
    await found(memories)
    monkeypatch.setattr(memories._database, "read_ahead", None)
    memories.begin(ANNA)


async def test_after_a_forget_nothing_is_at_hand(memories):
    await found(memories)
    await memories.forget(MemoryFilter(tenant=ANNA.tenant, user=ANNA.user), by="test")
    assert not memories._indexes.holds(ANNA)


async def test_a_snapshot_is_of_few_memories_all_of_them_legible(memories, monkeypatch):
    few = await memories.snapshot(ANNA)
    (hit,) = few.search(Search(None, ("tea",), now=NOW))
    assert hit.memory == TEA
    monkeypatch.setattr(sqlite_memories, "_FEW", 0)
    assert await memories.snapshot(ANNA) is None
    memories._indexes.clear()
    assert await memories.snapshot(ANNA) is None


async def test_of_a_user_known_to_have_many_memories_no_reader_is_asked_for_a_snapshot(memories, monkeypatch):
    monkeypatch.setattr(sqlite_memories, "_FEW", 0)
    await found(memories)
    monkeypatch.setattr(memories._database, "read", None)
    assert await memories.snapshot(ANNA) is None


async def test_a_damaged_row_costs_the_snapshot_and_only_the_searches_that_find_it(memories):
    milk = replace(TEA, id="milk", content="Drinks milk.", tags=("cow",))
    await memories.apply(ANNA, [Create(milk, None)], expect=await memories.stamp(ANNA))
    await memories._database.write(lambda tx: tx.execute("UPDATE memories SET tags = '[' WHERE id = 'milk'"))
    assert await memories.snapshot(ANNA) is None
    assert (await found(memories)).content == TEA.content
