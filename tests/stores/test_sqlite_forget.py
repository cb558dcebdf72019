"""Forgets: by receipts, counted beforehand, in portions beside other writers, and after a crash."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest

from proxy.domain import Evidence, Forgotten, Hold, MemoryFilter, Outcome, Scope
from proxy.errors import Conflict, NotFound
from proxy.stores.sqlite import SqliteStores, listing
from proxy.stores.sqlite.forgetting import erase, forget
from tests.stores.contract_chains import ForgetChainsContract, converse, keep, response
from tests.stores.contract_memories import ForgetContract
from tests.stores.contract_sessions import ForgetConversationsContract
from tests.stores.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    always,
    contents,
    create,
    exchange,
    find,
    forgotten,
    memory,
    never,
    of,
    quote,
    store,
    supersede,
    talk,
    vector,
)

WORD = "xylophonist"


@pytest.fixture
def in_portions(monkeypatch):
    """Whoever has anything is forgotten in portions, of two rows."""
    monkeypatch.setattr(forget, "_AT_ONCE", 0)
    monkeypatch.setattr(erase, "_WEIGHT", 1 / 2)


@pytest.fixture
async def second(tmp_path, stores):
    opened = SqliteStores(tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.usefixtures("in_portions")
class TestForgetsInPortions(ForgetContract, ForgetConversationsContract, ForgetChainsContract):
    """What every forget does, it does in portions, too."""


def on_disk(directory):
    return b"".join(p.read_bytes() for p in directory.rglob("*") if p.is_file())


class Gate:
    """Stops a forget after each portion until it may go on."""

    def __init__(self, stores):
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        stores.memories.forgetting._database.checkpoint = self.wait

    async def wait(self):
        self.reached.set()
        await self.go_on.wait()


async def crash():
    raise RuntimeError("the process dies here")


def break_off(stores, portions=1):
    """Let the next forget of these stores end after so many portions."""
    left = iter(range(portions - 1))

    async def checkpoint():
        if next(left, None) is None:
            await crash()

    stores.memories.forgetting._database.checkpoint = checkpoint


def standing(stores):
    with sqlite3.connect(stores.path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM forgets").fetchone()
    connection.close()
    return count


async def everything(stores):
    """One of each kind of thing that can hold the word."""
    told = await talk(stores.sessions, f"I am a {WORD}", f"A {WORD}!", session=f"session of a {WORD}")
    await store(
        stores.memories,
        create(f"is a {WORD}", id="a", evidence=quote(told, WORD, f"session of a {WORD}"), vec=vector(1)),
        create("is a drummer", id="b", evidence=quote(told, f"a {WORD}"), type="episodic"),
    )
    await store(stores.memories, supersede("a", f"was a {WORD}", id="c"))
    held = create(f"obey the {WORD}").memory
    await store(stores.memories, Hold("q", candidate(held, told.id), "planted", NOW))
    await keep(stores, response("r", text=WORD, session_id=f"session of a {WORD}"))
    await converse(stores.conversations, WORD)
    await stores.sessions.begin(exchange(f"still a {WORD}"))
    await talk(stores.sessions, f"and a {WORD}", trigger=always, session="s2")


def candidate(held, exchange_id):
    from proxy.domain import Candidate

    return Candidate(
        type=held.type, content=held.content, evidence=WORD, origin=Evidence("s1", exchange_id, WORD)
    )


# ---------------------------------------------------------------- counting beforehand
SCOPES = {
    "user": of(ANNA),
    "project": of(APOLLO),
    "type": of(ANNA, type="semantic"),
    "type of a project": of(APOLLO, type="preference"),
    "text": of(ANNA, text=WORD),
}


@pytest.mark.parametrize("mode", ["at once", "in portions"])
@pytest.mark.parametrize("where", SCOPES.values(), ids=SCOPES)
async def test_a_dry_run_counts_just_what_a_forget_then_removes(stores, where, mode, request):
    if mode == "in portions":
        request.getfixturevalue("in_portions")
    await everything(stores)
    project = await talk(stores.sessions, "in the project", scope=APOLLO, trigger=always)
    await store(stores.memories, create("plan", APOLLO, evidence=quote(project)), scope=ANNA)
    counted = await stores.memories.forget(where, by="test", dry_run=True)
    assert counted != Forgotten()
    assert await forgotten(stores.memories, where) == counted
    assert await forgotten(stores.memories, where) == Forgotten()


async def test_a_dry_run_by_id_counts_just_what_a_forget_then_removes(stores):
    await everything(stores)
    counted = await stores.memories.forget(of(ANNA), "c", by="test", dry_run=True)
    assert (counted.memories, counted.exchanges, counted.responses, counted.quarantined) == (2, 1, 1, 1)
    assert await forgotten(stores.memories, of(ANNA), "c") == counted


async def test_a_dry_run_changes_nothing(stores):
    await everything(stores)
    before = (await stores.memories.stamp(ANNA), stores.commits)
    await stores.memories.forget(of(ANNA), by="test", dry_run=True)
    await stores.memories.forget(of(BEN), by="test", dry_run=True)
    assert (await stores.memories.stamp(ANNA), stores.commits) == before
    assert await stores.receipts.list("acme", None, limit=9) == []


# ---------------------------------------------------------------- all of it
@pytest.mark.parametrize("mode", ["at once", "in portions"])
async def test_a_forgotten_user_is_nowhere_in_the_data_directory(stores, tmp_path, mode, request):
    if mode == "in portions":
        request.getfixturevalue("in_portions")
    await everything(stores)
    assert WORD.encode() in on_disk(tmp_path)
    gone = await forgotten(stores.memories, of(ANNA))
    assert gone == Forgotten(memories=3, exchanges=3, sessions=3, jobs=2, responses=1, quarantined=1)
    assert WORD.encode() not in on_disk(tmp_path)


async def test_what_is_held_goes_with_its_scope_type_or_source(stores):
    told = await talk(stores.sessions)
    for number, (scope, type_) in enumerate([(ANNA, "semantic"), (APOLLO, "episodic"), (ANNA, "procedural")]):
        held = candidate(memory("x", type=type_), "elsewhere")
        await store(stores.memories, Hold(f"q{number}", held, "planted", NOW), scope=scope)
    sourced = candidate(memory("x", type="procedural"), told.id)
    await store(
        stores.memories, Hold("q3", sourced, "planted", NOW), create("a", id="a", evidence=quote(told))
    )

    async def left():
        return sorted(held.id for held in await stores.quarantine.held(ANNA, limit=9))

    assert (await forgotten(stores.memories, of(ANNA), "a")).quarantined == 1
    assert await left() == ["q0", "q1", "q2"]
    assert (await forgotten(stores.memories, of(ANNA, type="semantic"))).quarantined == 1
    assert await left() == ["q1", "q2"]
    assert (await forgotten(stores.memories, of(APOLLO))).quarantined == 1
    assert await left() == ["q2"]


async def test_a_memory_that_stays_does_not_quote_what_was_erased_unread(stores, tmp_path):
    told = await talk(stores.sessions, f"I am a {WORD}")
    await store(stores.memories, create("plays", id="a", evidence=quote(told, f"a {WORD}")))
    assert (await forgotten(stores.memories, of(ANNA, type="episodic"))).exchanges == 1
    assert (await stores.memories.get(of(ANNA), "a")).evidence == quote(told)
    assert WORD.encode() not in on_disk(tmp_path)


# ---------------------------------------------------------------- receipts
async def test_every_forget_of_a_scope_leaves_a_receipt_and_by_id_those_that_found_something(stores):
    await store(stores.memories, create(f"a {WORD}", id="a"), create("tea", id="b", type="episodic"))
    for where, id_ in ((of(ANNA), "nothing"), (of(ANNA), "a"), (of(ANNA, type="episodic"), None)):
        await stores.memories.forget(where, id_, by="key:k1")
    await stores.memories.forget(of(BEN), by="jwt")
    found = await stores.receipts.list("acme", None, limit=9)
    assert [(r.user, r.type, r.memory_id, r.by, r.counts.memories) for r in found] == [
        ("ben", None, None, "jwt", 0),
        ("anna", "episodic", None, "key:k1", 1),
        ("anna", None, "a", "key:k1", 1),
    ]
    assert all(r.id == r.counts.receipt and r.at == NOW for r in found)
    assert WORD not in str(found)


async def test_a_forget_names_its_receipt(stores):
    gone = await stores.memories.forget(of(ANNA), by="test")
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert gone == receipt.counts == Forgotten(receipt=receipt.id)


@pytest.mark.parametrize("mode", ["at once", "in portions"])
async def test_receipts_survive_later_forgets_and_belong_to_their_user(stores, mode, request):
    if mode == "in portions":
        request.getfixturevalue("in_portions")
    for n in range(5):
        await store(stores.memories, create(f"fact {n}"))
        await stores.memories.forget(of(ANNA), by=f"{n}")
    await stores.memories.forget(of(BEN), by="ben's")
    first = await stores.receipts.list("acme", "anna", limit=3)
    rest = await stores.receipts.list("acme", "anna", limit=3, after=first[-1].id)
    assert [r.by for r in (*first, *rest)] == ["4", "3", "2", "1", "0"]
    assert await stores.receipts.list("other", None, limit=9) == []
    with pytest.raises(NotFound):
        await stores.receipts.list("acme", "ben", limit=3, after=first[0].id)


# ---------------------------------------------------------------- beside others
@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize(
    "where", [of(ANNA), of(APOLLO), of(ANNA, type="episodic")], ids=["user", "project", "type"]
)
async def test_what_is_being_forgotten_is_hidden_from_the_first_moment(stores, second, where):
    scope = Scope("acme", "anna", where.project)
    facts = [create(f"fact {n}", scope, id=f"f{n}", type="episodic", vec=vector(1)) for n in range(9)]
    await store(stores.memories, *facts, create("older", id="older", type="semantic"))
    # Reached only through what superseded it.
    await store(stores.memories, supersede("older", "newer", scope, id="newer", type="episodic"))
    assert len(await find(second.memories, "fact", vec=vector(1))) == 9
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    for each in (stores.memories, second.memories):
        assert await find(each, "fact newer older", vec=vector(1)) == []
        page = await each.list(of(ANNA, include_inactive=True), limit=99)
        assert (page.items, page.total) == ((), 0)
        for id_ in ("f8", "older", "newer"):
            assert await each.get(of(ANNA), id_) is None
            assert await each.history(of(ANNA), id_) == []
    assert await stores.receipts.list("acme", "anna", limit=9) == []
    gate.go_on.set()
    assert (await forgetting).memories == 11


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA), of(ANNA, type="semantic")], ids=["user", "type"])
async def test_who_begins_during_a_forget_is_stored_and_survives(stores, sessions, where):
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}") for n in range(9)))
    before = await stores.memories.stamp(ANNA)
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    with pytest.raises(Conflict):
        await stores.memories.apply(ANNA, [create("late")], expect=before)
    # The same words as one that is not erased yet.
    await store(stores.memories, create("fact 8", id="again"), create("new"))
    begun = await sessions.begin(exchange("new words"))
    await keep(stores, response("new"))
    gate.go_on.set()
    assert (await forgetting).memories == 9
    assert await contents(stores.memories, "fact new late") == {"fact 8", "new"}
    assert await sessions.complete(begun, Outcome("hi", whole=True), never)
    assert await stores.chains.get(ANNA, "new", NOW) is not None


@pytest.mark.usefixtures("in_portions")
async def test_an_answer_under_way_when_a_forget_begins_is_not_kept(stores, sessions):
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}", type="episodic") for n in range(9)))
    elsewhere = await sessions.begin(exchange("hm?", session="s2"))
    begun = await sessions.begin(exchange("what?", scope=APOLLO))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(of(APOLLO), by="test"))
    await gate.reached.wait()
    assert not await sessions.complete(begun, Outcome(f"a {WORD}", whole=True), always)
    assert await sessions.complete(elsewhere, Outcome("hello", whole=True), always)
    gate.go_on.set()
    await forgetting


@pytest.mark.usefixtures("in_portions")
async def test_an_answer_that_repeats_what_is_being_forgotten_is_not_read(stores, sessions, jobs, tmp_path):
    await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, id=f"f{n}") for n in range(9)))
    shown = await sessions.begin(exchange("who am I?", session="s2"))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(of(APOLLO), by="test"))
    await gate.reached.wait()
    assert await sessions.complete(shown, Outcome(f"a {WORD}", whole=True, recalled=("f8",)), always)
    assert [e.answer for e in await sessions.recent(ANNA, "s2", 9)] == [""]
    assert await jobs.claim(NOW, 60) is None
    gate.go_on.set()
    await forgetting
    assert WORD.encode() not in on_disk(tmp_path)
    await sessions.sweep(NOW, always)
    batch = await jobs.batch(await jobs.claim(NOW, 60), limit=9, context=0)
    assert [(e.said, e.answer) for e in batch.pending] == [("who am I?", "")]


@pytest.mark.usefixtures("in_portions")
async def test_two_forgets_at_once_take_everything_once(stores, second, tmp_path):
    facts = (create(f"{WORD} {n}", type=("semantic", "episodic")[n % 2]) for n in range(20))
    await store(stores.memories, *facts)
    gone = await asyncio.gather(
        stores.memories.forget(of(ANNA, type="semantic"), by="test"),
        second.memories.forget(of(ANNA), by="test"),
        stores.memories.forget(of(ANNA), by="test"),
    )
    assert sum(each.memories for each in gone) == 20
    assert WORD.encode() not in on_disk(tmp_path)
    assert standing(stores) == 0
    with sqlite3.connect(stores.path) as connection:
        assert connection.execute("SELECT count(*) FROM scopes").fetchone() == (1,)
    connection.close()


# ---------------------------------------------------------------- crashes
@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("portions", [1, 2, 4])
async def test_the_next_start_finishes_what_a_crash_broke_off(tmp_path, where, portions):
    stores = SqliteStores(tmp_path)
    await stores.open()
    await everything(stores)
    await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, type="preference") for n in range(9)))
    counted = await stores.memories.forget(where, by="test", dry_run=True)
    if where.text is None:
        break_off(stores, portions)
        with pytest.raises(RuntimeError):
            await stores.memories.forget(where, by="test")
        assert standing(stores) == 1
    else:
        await stores.memories.forget(where, by="test")
    await stores.close()
    again = SqliteStores(tmp_path)
    await again.open()
    assert standing(again) == 0
    (receipt,) = await again.receipts.list("acme", "anna", limit=9)
    assert replace(receipt.counts, receipt=None) == counted
    assert await again.memories.forget(where, by="test", dry_run=True) == Forgotten()
    await again.memories.forget(of(ANNA), by="test")
    assert WORD.encode() not in on_disk(tmp_path)
    await again.close()


@pytest.mark.usefixtures("in_portions")
async def test_another_process_finishes_the_forget_of_one_that_died(tmp_path, stores):
    dying = SqliteStores(tmp_path)
    await dying.open()
    await store(dying.memories, *(create(f"{WORD} {n}") for n in range(9)))
    break_off(dying)
    with pytest.raises(RuntimeError):
        await dying.memories.forget(of(ANNA), by="test")
    assert await stores.memories.resume_forgets() == 0  # it lives
    await dying.close()
    assert await stores.memories.resume_forgets() == 1
    assert await stores.memories.resume_forgets() == 0
    assert WORD.encode() not in on_disk(tmp_path)


@pytest.mark.usefixtures("in_portions")
async def test_a_forget_whose_caller_gave_up_is_finished_by_the_upkeep(stores, tmp_path):
    await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(of(ANNA), by="test"))
    await gate.reached.wait()
    assert await stores.memories.resume_forgets() == 0  # somebody is at it
    forgetting.cancel()
    await asyncio.wait([forgetting])
    gate.go_on.set()
    assert await stores.memories.resume_forgets() == 1
    assert WORD.encode() not in on_disk(tmp_path)


# ---------------------------------------------------------------- expiry
DAY = 86_400.0


async def test_what_expired_more_than_a_day_ago_is_erased_with_a_receipt(stores, tmp_path):
    await store(
        stores.memories,
        create(f"old {WORD}", id="a", expires_at=NOW),
        create("yesterday", id="b", expires_at=NOW + 1),
        create("for good", id="c"),
        create("older", id="d"),
    )
    await store(stores.memories, supersede("d", f"newer {WORD}", id="e", expires_at=NOW))
    stamp = await stores.memories.stamp(ANNA)
    assert await stores.memories.expire(NOW + DAY - 1) == 0
    assert await stores.memories.expire(NOW + DAY) == 3
    assert await stores.memories.expire(NOW + DAY) == 0
    left = await stores.memories.list(of(ANNA, include_inactive=True), limit=9)
    assert [m.id for m in left.items] == ["c", "b"]
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert (receipt.by, receipt.counts.memories) == ("retention", 3)
    assert WORD.encode() not in on_disk(tmp_path)
    assert await stores.memories.stamp(ANNA) == stamp  # nobody forgot: writers go on


async def test_expiry_leaves_what_was_said_and_answered(stores, sessions):
    told = await talk(sessions)
    await keep(stores, response("r"))
    await store(stores.memories, create("a", expires_at=NOW, evidence=quote(told)))
    assert await stores.memories.expire(NOW + DAY) == 1
    assert len(await sessions.recent(ANNA, "s1", 9)) == 1
    assert await stores.chains.get(ANNA, "r", NOW) is not None


# ---------------------------------------------------------------- lists
async def test_a_list_goes_both_ways_in_slices(stores, monkeypatch):
    monkeypatch.setattr(listing, "_SLICE", 3)
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


async def test_a_page_is_found_by_the_index_of_its_user(stores):
    with sqlite3.connect(stores.path) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT m.content FROM memories m JOIN scopes s ON s.id = m.owner"
            " WHERE s.tenant = 'a' AND s.user = 'b' AND m.owner = 1 AND m.seq > 5 AND m.seq <= 9"
            " ORDER BY m.seq LIMIT 5"
        ).fetchall()
    connection.close()
    steps = " ".join(row[3] for row in plan)
    assert "memories_owner (owner=? AND rowid>? AND rowid<?)" in steps
    assert "TEMP B-TREE" not in steps
