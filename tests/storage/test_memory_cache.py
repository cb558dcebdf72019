"""Caches of indexes and memories: as fresh as their rows, bounded, emptied by a forget, warm at a start."""

import os
from dataclasses import replace

import pytest

from proxy.domain.changes import Create
from proxy.domain.core import Memory, Scope, Search
from proxy.storage.sql import rows
from proxy.storage.sqlite import SqliteStores

NOW = 1_780_000_000.0
ANNA = Scope("default", "anna")
USERS = [Scope("default", f"user-{n}") for n in range(10)]
TEA = Memory(
    id="tea", scope=ANNA, type="semantic", content="Drinks green tea.", source="api",
    created_at=NOW, updated_at=NOW, valid_from=NOW,
)  # fmt: skip


@pytest.fixture
async def store_at(tmp_path):
    """Opens the store as after a start."""
    opened = []

    async def open_(**options):
        for before in opened:
            await before.close()
        opened.append(SqliteStores(tmp_path, **options))
        await opened[-1].open()
        return opened[-1]

    yield open_
    await opened[-1].close()


@pytest.fixture
async def memories(store_at):
    stores = await store_at()
    await put(stores.memories, TEA)
    return stores.memories


@pytest.fixture
async def filled(store_at):
    stores = await store_at()
    for user in USERS:
        for n in range(3):
            await put(stores.memories, replace(TEA, id=f"{n} {user.user}", scope=user, content=f"fact {n}"))
    return stores


async def put(memories, memory):
    expected = await memories.stamp(memory.scope)
    await memories.apply(memory.scope, [Create(memory, None)], expect=expected)


async def found(memories, scope=ANNA):
    (hit,) = await memories.search(scope, Search(None, ("tea",), limit=5, now=NOW))
    return hit.memory


async def loaded(memories, *scopes):
    """Return which of the users have an index in the cache."""
    owners = await memories._database.read(lambda tx: [rows.find_owner(tx, scope) for scope in scopes])
    found = zip(scopes, owners, strict=True)
    return [scope.user for scope, owner in found if owner and owner.id in memories._indexes]


async def test_nothing_cached_is_shown_of_another_file_at_the_path(memories, tmp_path):
    assert (await found(memories)).content == TEA.content
    assert await loaded(memories, ANNA)
    ben = Scope("default", "ben")
    other = SqliteStores(tmp_path / "other")
    await other.open()
    theirs = replace(TEA, scope=ben, content="Drinks no tea, ever.")  # by all its numbers Anna's memory
    await put(other.memories, theirs)
    await other.close()
    os.replace(tmp_path / "other" / "memory.db", tmp_path / "memory.db")
    assert not await memories.search(ANNA, Search(None, ("tea",), limit=5, now=NOW))
    assert await found(memories, ben) == theirs


async def test_indexes_and_rows_stay_within_their_bounds(filled, store_at):
    stores = await store_at(row_bytes=4 * 3 * 900)  # of about four users
    for _ in range(2):
        for user in USERS:
            assert len(await stores.memories.search(user, Search(None, ("fact",), limit=9, now=NOW))) == 3
            assert 0 < stores.memories._rows.by_user.filled <= 1


# ---------------------------------------------------------------- warm-up
async def test_after_a_start_the_first_question_of_a_recent_user_reads_no_rows(filled, store_at, monkeypatch):
    stores = await store_at()
    assert await loaded(stores.memories, *USERS) == []
    await stores.upkeep()
    assert await loaded(stores.memories, *USERS) == [user.user for user in USERS]
    monkeypatch.setattr(rows, "memories_by_seq", None)
    assert len((await stores.memories.snapshot(USERS[0])).memories) == 3
