"""Who was here last is in memory before asking, as far as there is room."""

import itertools
from functools import partial

import pytest

from proxy.domain.core import Create, Memory, MemoryFilter, Scope
from proxy.storage.sql import memories as sqlite_memories
from proxy.storage.sql import memory_cache, rows
from proxy.storage.sqlite import SqliteStores

NOW = 1_780_000_000.0
USERS = [Scope("default", f"user-{n}") for n in range(10)]


@pytest.fixture
def store_at(tmp_path):
    """Opens the store as after a start."""
    opened = []

    async def open_(**options):
        for before in opened:
            await before.close()
        opened.append(SqliteStores(tmp_path, **options))
        await opened[-1].open()
        return opened[-1]

    return open_


@pytest.fixture
async def filled(store_at):
    stores = await store_at()
    for user in USERS:
        for n in range(3):
            await tell(stores, user, f"fact {n} of {user.user}")
    return stores


async def tell(stores, scope, content):
    memory = Memory(
        id=content, scope=scope, type="semantic", content=content, source="api",
        created_at=NOW, updated_at=NOW, valid_from=NOW,
    )  # fmt: skip
    await stores.memories.apply(scope, [Create(memory, None)], expect=await stores.memories.stamp(scope))


def here(stores):
    return [user for user in USERS if stores.memories._indexes.holds(user)]


async def test_after_a_start_the_first_question_of_who_was_here_reads_no_rows(filled, store_at, monkeypatch):
    stores = await store_at()
    assert here(stores) == []
    await stores.upkeep()
    assert here(stores) == USERS
    monkeypatch.setattr(rows, "memories_by_seq", None)
    assert len((await stores.memories.snapshot(USERS[0])).memories) == 3
    await stores.close()


async def test_it_goes_on_from_round_to_round_those_who_were_served_last_first(filled, store_at, monkeypatch):
    await filled._database.write(lambda tx: tx.execute("UPDATE scopes SET served = 5 WHERE user = 'user-3'"))
    stores = await store_at()
    stores.memories.prefetch._steady = partial(next, itertools.count())
    monkeypatch.setattr(memory_cache, "STEP_S", 2)  # by this clock one user
    rounds = []
    for _ in range(3):
        await stores.memories.prefetch.step()
        rounds.append({user.user for user in here(stores)})
    assert rounds[0] == {"user-3"}
    assert rounds[1] == {"user-3", "user-9"}
    assert rounds[2] == {"user-3", "user-9", "user-8"}
    await stores.close()


async def test_there_is_room_left_for_others(filled, store_at):
    stores = await store_at(row_bytes=4 * 3 * 900)  # of about four users
    await stores.upkeep()
    await stores.upkeep()
    assert 1 <= len(here(stores)) <= 4
    assert stores.memories._rows.filled <= 1
    await stores.close()


async def test_who_is_forgotten_meanwhile_or_has_many_memories_is_left_out(filled, store_at, monkeypatch):
    monkeypatch.setattr(sqlite_memories, "_FEW", 3)
    await tell(filled, USERS[1], "one more")
    stores = await store_at()
    names = stores.memories.prefetch
    names._waiting = await stores._database.read(names._latest)
    gone = MemoryFilter(tenant="default", user=USERS[2].user)
    await stores.memories.forget(gone, by="test")
    await stores.upkeep()
    kept = [one for user in stores.memories._rows._users.values() for _, one in user.memories.values()]
    assert {one.scope for one in kept} == {*USERS} - {USERS[1], USERS[2]}
    await stores.close()


async def test_a_damaged_row_stops_nobody_elses_coming(filled, store_at):
    await filled._database.write(
        lambda tx: tx.execute(
            "UPDATE vectors SET terms = x'00' WHERE memory = (SELECT seq FROM memories WHERE id = ?)",
            (f"fact 0 of {USERS[5].user}",),
        )
    )
    stores = await store_at()
    await stores.upkeep()
    assert here(stores) == [user for user in USERS if user is not USERS[5]]
    await stores.close()
