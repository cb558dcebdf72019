"""Caches of indexes and memories: as fresh as their rows, bounded, warm at a start."""

import os

from proxy.domain.core import Scope
from proxy.storage.sql import rows
from tests.storage.conftest import Sqlite
from tests.storage.making import BEN, contents, create, store

USERS = [Scope("default", f"user-{n}") for n in range(10)]


async def fill(stores):
    for user in USERS:
        await store(stores.memories, *(create(f"fact {n}", user) for n in range(3)), scope=user)


async def cached(memories):
    """Return which of the users have an index in the cache."""
    owners = await memories._database.read(lambda tx: [rows.find_owner(tx, scope) for scope in USERS])
    found = zip(USERS, owners, strict=True)
    return [user.user for user, owner in found if owner and owner.id in memories._indexes]


async def test_nothing_cached_is_shown_of_another_file_at_the_path(stores, engine, tmp_path):
    await store(stores.memories, create("Drinks green tea.", id="tea"))
    assert await contents(stores.memories, "tea") == {"Drinks green tea."}
    other = await Sqlite(tmp_path / "other").open()
    # By all its numbers Anna's memory.
    await store(other.memories, create("Drinks no tea, ever.", BEN, id="tea"), scope=BEN)
    await other.close()
    os.replace(tmp_path / "other" / "memory.db", tmp_path / "memory.db")
    assert await contents(stores.memories, "tea") == set()
    assert await contents(stores.memories, "tea", BEN) == {"Drinks no tea, ever."}


async def test_indexes_and_rows_stay_within_their_bounds(stores, opened):
    await fill(stores)
    small = await opened(row_bytes=4 * 3 * 900)  # of about four users
    for user in USERS * 2:
        assert len(await contents(small.memories, "fact", user)) == 3
        assert 0 < small.memories._rows.by_user.filled <= 1


async def test_after_a_start_the_first_question_of_a_recent_user_reads_no_rows(stores, opened, monkeypatch):
    await fill(stores)
    started = await opened()
    assert await cached(started.memories) == []
    await started.upkeep()
    assert await cached(started.memories) == [user.user for user in USERS]
    monkeypatch.setattr(rows, "memories_by_seq", None)
    assert len((await started.memories.snapshot(USERS[0])).memories) == 3
