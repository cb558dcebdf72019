"""Chains, conversations, retention and cached rows in the SQLite file."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.domain.core import MemoryFilter, Scope
from proxy.domain.session import Outcome
from proxy.storage.sql import memories, sessions
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    always,
    create,
    exchange,
    forgotten,
    never,
    of,
    store,
    talk,
)  # fmt: skip
from tests.storage.test_responses import converse, keep, response
from tests.support.examples import examples


def on_disk(directory: Path) -> bytes:
    return b"".join(p.read_bytes() for p in directory.rglob("*") if p.is_file())


def count(stores: SqliteStores, table: str) -> int:
    with sqlite3.connect(stores.path) as connection:
        (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return rows


# ---------------------------------------------------------------- chains
async def test_a_deleted_response_and_conversation_are_nowhere_in_the_data_directory(stores, tmp_path):
    for n in range(20):
        await keep(stores, response(f"r{n}", text=f"a secret thing {'and more ' * n * n}"))
        await keep(stores, response(f"b{n}", BEN, text="something that stays"))
    await converse(stores.conversations, "a secret thing", "another secret thing")
    assert on_disk(tmp_path).count(b"secret thing") > 20
    for n in range(20):
        assert await stores.chains.delete(ANNA, f"r{n}")
    assert await stores.conversations.remove(ANNA, "c1", "another secret thing")
    assert b"another secret thing" not in on_disk(tmp_path)
    assert await stores.conversations.delete(ANNA, "c1")
    assert b"secret thing" not in on_disk(tmp_path)
    assert b"something that stays" in on_disk(tmp_path)


# ---------------------------------------------------------------- a model of it
USERS = [Scope("t", "anna"), Scope("t", "anna", "p"), Scope("t", "ben")]
NAMES = "abcd"
names = st.sampled_from(NAMES)
scopes = st.sampled_from(USERS)


class Chains(RuleBasedStateMachine):
    """Saving, replacing, deleting, expiring and forgetting against a plain model."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.dir = tempfile.TemporaryDirectory()
        self.stores = SqliteStores(Path(self.dir.name))
        self.run(self.stores.open())
        self.now = NOW
        self.rows = {}  # (user, id) -> (response, whether its owner deleted it)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    @rule(scope=scopes, id=names, previous=names, life=st.integers(1, 6), late=st.booleans())
    def save(self, scope, id, previous, life, late):
        # As in life, a response continues an older one.
        before = previous if previous < id else None
        new = response(id, scope, previous_id=before, expires_at=self.now + life)
        generation = self.run(self.stores.memories.stamp(scope)).generation - late
        _, deleted = self.rows.get((scope.user, id), (None, False))
        taken = not late and not deleted
        assert self.run(self.stores.chains.save(new, generation=generation)) is taken
        if taken:
            self.rows[scope.user, id] = (new, False)

    @rule(scope=scopes, id=names)
    def delete(self, scope, id):
        stored, deleted = self.rows.get((scope.user, id), (None, True))
        assert self.run(self.stores.chains.delete(scope, id)) is not deleted
        if stored is not None:
            self.rows[scope.user, id] = (stored, True)

    @rule(scope=scopes)
    def forget(self, scope):
        counted = self.run(forgotten(self.stores.memories, of(scope))).responses
        mine = {id: row for (user, id), row in self.rows.items() if user == scope.user}
        removed = {id for id, (r, _) in mine.items() if scope.project in (None, r.scope.project)}
        while more := {id for id, (r, _) in mine.items() if r.previous_id in removed} - removed:
            removed |= more
        assert counted == sum(not mine[id][1] for id in removed)
        for id in removed:
            del self.rows[scope.user, id]

    @rule(seconds=st.integers(1, 4))
    def expire(self, seconds):
        self.now += seconds
        needed = {key for (user, id) in self.rows if self.lives(user, id) for key in self.line(user, id)}
        removed = [key for key in self.rows if key not in needed]
        assert self.run(self.stores.chains.expire(self.now)) == len(removed)
        for key in removed:
            del self.rows[key]

    def lives(self, user, id):
        return (user, id) in self.rows and self.rows[user, id][0].expires_at > self.now

    def line(self, user, id):
        """The response and those it continues, newest first, deleted ones too."""
        while (user, id) in self.rows:
            yield user, id
            id = self.rows[user, id][0].previous_id

    @invariant()
    def every_user_sees_exactly_their_own(self):
        for scope in USERS[1:]:
            for id in NAMES:
                stored, deleted = self.rows.get((scope.user, id), (None, True))
                seen = stored if self.lives(scope.user, id) and not deleted else None
                assert self.run(self.stores.chains.get(scope, id, self.now)) == seen
                line = [self.rows[key] for key in self.line(scope.user, id)] if seen else []
                chain = [r for r, deleted in reversed(line) if not deleted]
                found = self.run(self.stores.chains.chain(scope, id, self.now, limit=9, most_bytes=10**9))
                assert list(found.responses) == chain

    def teardown(self):
        self.run(self.stores.close())
        self.loop.close()
        self.dir.cleanup()


Chains.TestCase.settings = settings(max_examples=examples(10), stateful_step_count=20)
TestChains = Chains.TestCase


# ---------------------------------------------------------------- retention
async def read_all(stores: SqliteStores) -> None:
    """Extract whatever is queued."""
    while job := await stores.jobs.claim(NOW, 60):
        await stores.jobs.batch(job, limit=99, context=0)
        await stores.memories.apply(job.scope, [], expect=await stores.memories.stamp(job.scope), done=job)


async def test_old_exchanges_that_are_extracted_are_pruned_with_their_sessions(stores):
    old = await talk(stores.sessions, "old", trigger=always, session="gone")
    await stores.sessions.complete(old, Outcome("x", whole=True, response_id="resp_1"), never)
    await talk(stores.sessions, "old", trigger=always, session="used", at=NOW)
    await talk(stores.sessions, "new", trigger=always, session="used", at=NOW + 10)
    await read_all(stores)
    assert await stores.sessions.prune(NOW + 5) == 2
    assert [e.said for e in await stores.sessions.recent(ANNA, "used", 9)] == ["new"]
    assert (count(stores, "sessions"), count(stores, "exchanges"), count(stores, "responses")) == (1, 1, 0)
    assert await stores.sessions.prune(NOW + 5) == 0


async def test_what_is_not_extracted_is_never_pruned(stores):
    await talk(stores.sessions, "pending", session="s1", scope=BEN)
    await talk(stores.sessions, "dead", trigger=always, session="s2")
    job = await stores.jobs.claim(NOW, 60)
    await stores.jobs.batch(job, limit=9, context=0)
    await stores.jobs.retry(job, at=NOW, reason="refused", dead=True)
    await stores.sessions.begin(exchange("unanswered", session="s3", scope=APOLLO))
    assert await stores.sessions.prune(NOW + 1e9) == 0
    assert (count(stores, "sessions"), count(stores, "exchanges"), count(stores, "jobs")) == (3, 3, 1)


async def test_a_session_in_use_keeps_its_responses_when_its_exchanges_are_pruned(stores):
    begun = await talk(stores.sessions, trigger=always, at=NOW)
    await stores.sessions.complete(begun, Outcome("x", whole=True, response_id="resp_1"), never)
    await read_all(stores)
    await stores.sessions.abort(await stores.sessions.begin(exchange("taken back", at=NOW + 10)))
    assert await stores.sessions.prune(NOW + 5) == 1
    assert await stores.sessions.session_of(ANNA, "resp_1") == "s1"


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
