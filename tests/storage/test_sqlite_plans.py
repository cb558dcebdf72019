"""What is asked often does not take longer because other users have come.

Every statement of a day's work is explained by SQLite on a nearly empty file, which plans as a full one
does: there are no statistics. A walk through a table of all users passes only where it is named here.
"""

import re
import sqlite3

import pytest

from proxy.storage import exact_index
from proxy.storage.sqlite import SqliteStores, database
from tests.migrate_support import MODEL, aged, answers_of, fill, heard, said_again
from tests.storage.making import ANNA, APOLLO, NOW, create, of, store
from tests.storage.talking import talk

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


async def test_a_days_work_walks_through_no_table_of_all_users(recorded):
    stores, asked = recorded
    await stores.memories.stamp_model(MODEL)
    asked.clear()
    await fill(stores)
    for where in (of(ANNA, text="fig"), of(ANNA, as_of=NOW, text="fig"), of(ANNA, since=NOW, until=NOW + 1)):
        await stores.timeline.events(where, limit=1)
        await stores.memories.list(where, limit=1)
        await stores.memories.list(where, limit=1, oldest_first=True)
    for scope in (ANNA, APOLLO):
        await answers_of(stores, scope)
    for question in (heard, said_again, aged):
        await question(stores)
    await stores.upkeep()
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
