"""What is asked often does not take longer because other users have come.

Every statement of a day's work is explained by SQLite on a nearly empty file, which plans as a full one
does: there are no statistics. A walk through a table of all users passes only where it is named here.
"""

import re
import sqlite3

import pytest

from proxy.domain.changes import Confirm
from proxy.domain.ports import EmbeddingModel
from proxy.domain.session import Outcome
from proxy.storage import exact_index
from proxy.storage.sqlite import SqliteStores, database
from proxy.storage.sqlite import SqliteStores as Stores
from tests.storage.making import ANNA, APOLLO, NOW, create, find, of, store, supersede, vector
from tests.storage.talking import always, never, talk

_TABLES = (
    "memories vectors evidence events entities mentions evicted exchanges sessions scopes jobs anchors states"
    " marks documents passages quarantine receipts responses stored_responses conversations"
    " conversation_items"
).split()
_ALIASED = re.compile(rf"\b({'|'.join(_TABLES)})\s+(?:AS\s+)?(\w+)")
# SCAN, or SEARCH by what nearly all rows have in common.
_WALK = re.compile(r"SCAN (\w+)(?! VIRTUAL)|SEARCH (\w+) USING .*\((?:state|tenant|archived)=\?\)$")
_OF_ONE = re.compile(r"\bowner = [?:]")  # asks for one user's: then there is no excuse
_MAY = {
    "exchanges_open": "what is being answered now",
    "exchanges_pending": "what waits for its extraction, and no more",
    "sessions_unsummarised": "sessions that are not summed up yet, and no more",
    "jobs_due": "jobs that are not done yet; those that run are few",
}


class Recording(database.SqliteConnection):
    """Remembers what it was asked."""

    asked: set[str]

    def execute(self, sql, *parameters):
        self.asked.add(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql, *parameters):
        self.asked.add(sql)
        return super().executemany(sql, *parameters)


class Anything(dict):
    """Binds NULL to every parameter."""

    def __missing__(self, name):
        return None


@pytest.fixture
async def recorded(tmp_path, monkeypatch):
    """Open stores, and what they have been asked since."""
    Recording.asked = set()
    monkeypatch.setattr(database, "SqliteConnection", Recording)
    stores = SqliteStores(tmp_path)
    await stores.open()
    Recording.asked.clear()
    yield stores, Recording.asked
    await stores.close()


def walks(path, asked):
    """Return the statements that walk through a table of all users, with the step that does."""
    connection = sqlite3.connect(path)
    found = []
    for sql in sorted(asked):
        if not re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", sql):
            continue
        marks = sql.count("?")
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * marks if marks else Anything())
        steps = [step for *_, step in plan]
        names = {*_TABLES, *(alias for _, alias in _ALIASED.findall(sql))}
        names -= {step.split()[1] for step in steps if step.startswith(("MATERIALIZE", "CO-ROUTINE"))}
        excuses = () if _OF_ONE.search(sql) else _MAY
        for step in steps:
            walked = _WALK.match(step)
            if walked and (walked[1] or walked[2]) in names and not any(index in step for index in excuses):
                found.append((step, " ".join(sql.split())))
    connection.close()
    return found


async def a_day(stores: Stores):
    """Do what a proxy does with its stores, over and over."""
    memories, sessions, jobs = stores.memories, stores.sessions, stores.jobs
    await store(
        memories, create("figs from Porto", vec=vector(1)), create("has a dog", expires_at=NOW - 1, id="dog")
    )
    await store(memories, supersede("dog", "has a cat"), Confirm("dog", NOW, 1.0))
    await find(memories, "figs", vec=vector(1))
    await find(memories, "figs", APOLLO, vec=vector(1))
    await memories.touch(ANNA, ["dog"], NOW)
    for where in (
        of(ANNA),
        of(ANNA, text="fig"),
        of(ANNA, type="semantic", include_inactive=True),
        of(APOLLO),
        of(ANNA, as_of=NOW, text="fig"),
        of(ANNA, since=NOW, until=NOW + 1),
    ):
        await stores.timeline.events(where, limit=1)
        await memories.list(where, limit=1)
        await memories.list(where, limit=1, oldest_first=True)
    (shown,) = (await memories.list(of(ANNA), limit=1)).items
    await memories.list(of(ANNA), limit=1, after=shown.id)
    await memories.history(of(ANNA), ["dog"])
    await stores.timeline.events(of(ANNA), limit=1, after="dog:0")
    await stores.timeline.earlier(ANNA, [shown.id])
    (named, *_) = await stores.entities.list(of(ANNA), limit=2)
    await stores.entities.memories(of(ANNA), named.id, limit=1, after=shown.id)
    await stores.entities.linked(ANNA, [shown.id], now=NOW, limit=1)
    await a_conversation(stores)
    await sessions.sweep(NOW, never)
    await sessions.sweep(NOW, always)
    await stores.notes.close(idle_since=NOW, left_since=NOW, now=NOW)
    await sessions.prune(NOW + 1)
    await stores.chains.expire(NOW)
    await memories.expire(NOW + 1e6)
    await stores.passages.pending(9)
    await jobs.counts()
    await stores.upkeep()


async def a_conversation(stores: Stores):
    sessions, jobs = stores.sessions, stores.jobs
    for number in range(2):
        begun = await talk(sessions, "I moved", trigger=always, session=f"s{number}")
        job = await jobs.claim(NOW, 60)
        await jobs.batch(job, limit=9, context=3)
        if number:
            await jobs.wait_for_credential(job)
        else:
            await stores.memories.apply(ANNA, [], expect=await stores.memories.stamp(ANNA), done=job)
    await jobs.wake(ANNA)
    await jobs.wake(None)
    await sessions.complete(begun, Outcome("so", whole=True, recalled=("dog",), response_id="r1"), never)
    await sessions.recent(ANNA, "s1", 3)
    await sessions.session_of(ANNA, "r1")
    await sessions.end(ANNA, "s1", NOW)
    await stores.notes.notes(ANNA, "s1", lines=3)
    await jobs.retry(await jobs.claim(NOW, 60), at=NOW, reason="later")


async def test_a_days_work_walks_through_no_table_of_all_users(recorded):
    stores, asked = recorded
    await stores.memories.stamp_model(EmbeddingModel("test", 3, 0.3, 0.8))
    asked.clear()
    await a_day(stores)
    asked.remove(exact_index._LATEST)  # after a start, of AT_MOST users
    assert not walks(stores.path, asked)


async def test_forgetting_a_user_walks_through_that_users_rows_only(recorded):
    stores, asked = recorded
    await store(stores.memories, create("likes figs"), create("is vegan", type="preference"))
    await talk(stores.sessions, "I like figs")
    for where in (of(ANNA, type="preference"), of(APOLLO), of(ANNA)):
        await stores.memories.forget(where, by="test", dry_run=True)
        await stores.memories.forget(where, by="test")
    assert not walks(stores.path, asked)
