"""What is looked for among all users is looked for without making writers wait."""

import asyncio
import sqlite3

import pytest

from proxy.domain.core import Scope
from proxy.storage.sql import sessions
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import NOW, always, exchange, never, talk


def user(number):
    return Scope("acme", f"user-{number}")


async def test_a_sweep_that_finds_nothing_due_writes_nothing(stores):
    await talk(stores.sessions, "hello")
    commits = stores.commits
    assert await stores.sessions.sweep(NOW, never) == 0
    assert stores.commits == commits


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


async def test_jobs_claimed_at_once_are_different_ones(stores, tmp_path):
    second = SqliteStores(tmp_path)
    await second.open()
    for number in range(6):
        await talk(stores.sessions, "hello", trigger=always, scope=user(number))
    claims = [place.jobs.claim(NOW, 60) for _ in range(4) for place in (stores, second)]
    claimed = [job.id for job in await asyncio.gather(*claims) if job is not None]
    assert len(claimed) == len(set(claimed)) == 6
    await second.close()


async def test_an_exchange_that_died_with_its_process_is_offered_in_the_same_sweep(stores, tmp_path):
    dead = SqliteStores(tmp_path)
    await dead.open()
    await dead.sessions.begin(exchange("broken off"))
    await dead.close()
    assert await stores.sessions.sweep(NOW, always) == 1
