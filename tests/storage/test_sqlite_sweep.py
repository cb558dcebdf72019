"""What is looked for among all users is looked for without making writers wait."""

import sqlite3

import pytest

from proxy.domain.core import MemoryFilter, Quota, Scope
from proxy.storage.sql import changes, memories, sessions
from tests.storage.making import (
    ANNA,
    BEN,
    NOW,
    always,
    contents,
    create,
    find,
    of,
    store,
    talk,
    vector,
)


def user(number):
    return Scope("acme", f"user-{number}")


async def test_a_sweep_queues_more_sessions_than_one_transaction_takes(stores, monkeypatch):
    monkeypatch.setattr(sessions, "_AT_ONCE", 2)
    for number in range(5):
        await talk(stores.sessions, "hello", scope=user(number))
    assert await stores.sessions.sweep(NOW, always) == 5
    assert (await stores.jobs.counts()).queued == 5
    assert await stores.sessions.sweep(NOW, always) == 0


async def test_what_was_forgotten_between_a_sweeps_look_and_its_write_is_not_queued(stores, monkeypatch):
    await talk(stores.sessions, "hello")
    looked = sessions.jobs.due

    def and_then_forgotten(tx, condition, trigger):
        found = looked(tx, condition, trigger)
        with sqlite3.connect(stores.path) as other:
            other.execute("DELETE FROM exchanges")
        other.close()
        return found

    monkeypatch.setattr(sessions.jobs, "due", and_then_forgotten)
    assert await stores.sessions.sweep(NOW, always) == 0
    assert (await stores.jobs.counts()).queued == 0


@pytest.mark.parametrize("slice_", [1, 2, 3, 100])
async def test_old_and_empty_sessions_are_found_in_every_slice(stores, monkeypatch, slice_):
    end = sessions._SLICE_END.rpartition(" ")[0]
    monkeypatch.setattr(sessions, "_SLICE_END", f"{end} {slice_ - 1}")
    for number in range(5):
        await talk(stores.sessions, "hello", scope=user(number), at=NOW if number != 2 else NOW + 9)
    with sqlite3.connect(stores.path) as other:
        other.execute("UPDATE exchanges SET extraction = 'done'")
    other.close()
    assert await stores.sessions.prune(NOW + 1) == 4
    left = [len(await stores.sessions.sessions(user(number), limit=9)) for number in range(5)]
    assert left == [0, 0, 1, 0, 0]


async def test_a_list_goes_both_ways_in_slices(stores, monkeypatch):
    monkeypatch.setattr(memories, "_SLICE", 3)
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}", archived=n % 4 == 1) for n in range(20)))
    await store(stores.memories, *(create(f"ben's {n}", BEN) for n in range(5)), scope=BEN)
    expected = [f"f{n}" for n in range(20) if n % 4 != 1]
    for oldest_first in (True, False):
        for limit in (1, 2, 3, 4, 7, 30):
            seen, after, more = [], None, True
            while more:
                page = await stores.memories.list(
                    of(ANNA), limit=limit, after=after, oldest_first=oldest_first, total=False
                )
                assert page.total is None
                seen += [m.id for m in page.items]
                after, more = seen[-1], page.has_more
            assert seen == (expected if oldest_first else expected[::-1])
    assert (await stores.memories.list(of(ANNA), limit=1)).total == 15
    whole = await stores.memories.list(MemoryFilter(tenant="acme", user=None, now=NOW), limit=99)
    assert (len(whole.items), whole.total) == (20, 20)
    assert (await stores.memories.list(of(ANNA, text="9"), limit=9)).total == 1


async def test_an_index_that_is_older_than_the_recorded_evictions_is_read_again(opened, monkeypatch):
    for module in (changes, "proxy.storage.sql.memory_cache"):
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
