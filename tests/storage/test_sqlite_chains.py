"""Retention, what is deleted from the SQLite file, and what is read or written there in slices."""

import sqlite3

import pytest

from proxy.domain.core import Scope
from proxy.domain.session import Outcome
from proxy.storage.sql import sessions
from tests.storage.making import ANNA, APOLLO, BEN, NOW
from tests.storage.talking import always, converse, exchange, extract, keep, never, response, talk


def counts(engine, *tables):
    return tuple(engine.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables)


# ---------------------------------------------------------------- chains
async def test_a_deleted_response_and_conversation_are_nowhere_in_the_data_directory(stores, engine):
    for n in range(9):
        await keep(stores, response(f"r{n}", text=f"a secret thing {'and more ' * n * n}"))
        await keep(stores, response(f"b{n}", BEN, text="something that stays"))
    await converse(stores.conversations, "a secret thing", "another secret thing")
    assert engine.written().count(b"secret thing") > 9
    for n in range(9):
        assert await stores.chains.delete(ANNA, f"r{n}")
    assert await stores.conversations.remove(ANNA, "c1", "another secret thing")
    assert b"another secret thing" not in engine.written()
    assert await stores.conversations.delete(ANNA, "c1")
    assert b"secret thing" not in engine.written()
    assert b"something that stays" in engine.written()


# ---------------------------------------------------------------- retention
async def test_old_exchanges_that_are_extracted_are_pruned_with_their_sessions(stores, engine):
    old = await talk(stores.sessions, "old", trigger=always, session="gone")
    await stores.sessions.complete(old, Outcome("x", whole=True, response_id="resp_1"), never)
    used = await talk(stores.sessions, "old", trigger=always, session="used", at=NOW)
    await stores.sessions.complete(used, Outcome("x", whole=True, response_id="resp_2"), never)
    await talk(stores.sessions, "new", trigger=always, session="used", at=NOW + 10)
    await extract(stores)
    assert await stores.sessions.prune(NOW + 5) == 2
    assert [e.said for e in await stores.sessions.recent(ANNA, "used", 9)] == ["new"]
    assert counts(engine, "sessions", "exchanges", "responses") == (1, 1, 1)
    assert await stores.sessions.session_of(ANNA, "resp_2") == "used"
    assert await stores.sessions.prune(NOW + 5) == 0


async def test_what_is_not_extracted_is_never_pruned(stores, engine):
    await talk(stores.sessions, "pending", session="s1", scope=BEN)
    await talk(stores.sessions, "dead", trigger=always, session="s2")
    job = await stores.jobs.claim(NOW, 60)
    await stores.jobs.batch(job, limit=9, context=0)
    await stores.jobs.retry(job, at=NOW, reason="refused", dead=True)
    await stores.sessions.begin(exchange("unanswered", session="s3", scope=APOLLO))
    assert await stores.sessions.prune(NOW + 1e9) == 0
    assert counts(engine, "sessions", "exchanges", "jobs") == (3, 3, 1)


# ---------------------------------------------------------------- in portions
def user(number):
    return Scope("acme", f"user-{number}")


async def test_a_sweep_queues_more_sessions_than_one_transaction_takes(stores, monkeypatch):
    monkeypatch.setattr(sessions, "_AT_ONCE", 2)
    for number in range(5):
        await talk(stores.sessions, "hello", scope=user(number))
    assert await stores.sessions.sweep(NOW, always) == 5
    assert (await stores.jobs.counts()).queued == 5
    assert await stores.sessions.sweep(NOW, always) == 0


@pytest.mark.parametrize("slice_", [1, 3])
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
