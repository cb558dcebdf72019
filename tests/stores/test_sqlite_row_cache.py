"""Memories kept between searches: as good as their rows, and not made anew without need."""

import pytest

from proxy.domain import Create, Memory, Scope, Search
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
