"""Forgets in portions: what others see and write meanwhile, and what a crash leaves."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from proxy.domain import Edit, Forgotten, Outcome, Scope
from proxy.errors import Conflict
from proxy.oversight import Applied
from proxy.stores.sqlite import SqliteStores, database
from proxy.stores.sqlite.forgetting import erase
from tests.stores.contract_chains import keep, response
from tests.stores.forgetting_support import (
    SCOPES,
    WORD,
    ZEUS,
    Gate,
    break_off,
    everything,
    on_disk,
    standing,
)
from tests.stores.making import (
    ANNA,
    APOLLO,
    NOW,
    always,
    contents,
    create,
    exchange,
    find,
    memory,
    never,
    of,
    quote,
    store,
    supersede,
    talk,
    vector,
)


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
            assert await each.history(of(ANNA), [id_]) == {}
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
@pytest.mark.parametrize("at", ["project", "type"])
async def test_who_read_what_is_being_forgotten_does_not_save_its_continuation(stores, tmp_path, at):
    told = await talk(stores.sessions, f"I am a {WORD}", scope=APOLLO)
    await keep(stores, response("r1", APOLLO, text=WORD))
    facts = [create(f"fact {n}", APOLLO, type="episodic", evidence=quote(told)) for n in range(9)]
    await store(stores.memories, *facts)
    where = of(APOLLO) if at == "project" else of(ANNA, type="episodic")
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    generation = (await stores.memories.stamp(ANNA)).generation
    later = response("r2", APOLLO, text=f"still a {WORD}", previous_id="r1")
    gate.go_on.set()
    await forgetting
    assert not await stores.chains.save(later, generation=generation)
    assert await stores.chains.save(response("fresh", APOLLO), generation=generation)
    assert await stores.chains.save(response("next", APOLLO, previous_id="fresh"), generation=generation)
    assert WORD.encode() not in on_disk(tmp_path)


async def test_a_portion_takes_what_has_continued_its_responses_since(stores):
    await keep(stores, response("r1"), response("other"))
    planned = (("responses", (1,)),)
    await keep(stores, response("r2", previous_id="r1"), response("r3", previous_id="r2"))
    gone = await stores.memories.forgetting._database.write(lambda tx: erase.erase(tx, 1, planned))
    assert gone.responses == 3
    assert [await stores.chains.get(ANNA, id_, NOW) for id_ in ("r1", "r2", "r3")] == [None] * 3
    assert await stores.chains.get(ANNA, "other", NOW) is not None


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA, type="semantic"), of(APOLLO)], ids=["type", "project"])
async def test_what_is_being_forgotten_keeps_out_neither_its_id_nor_its_words(stores, where):
    scope = Scope("acme", "anna", where.project)
    told = await talk(stores.sessions, f"I am a {WORD}", scope=scope)
    facts = [create(f"{WORD} {n}", scope, id=f"f{n}", evidence=quote(told)) for n in range(9)]
    await store(stores.memories, create("first", scope, id="old"), *facts)
    await store(stores.memories, supersede("old", "second", scope, id="new"))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    again = [
        create("first", scope, id="old", superseded_by="new"),
        create("second", scope, id="new"),
        create(f"{WORD} 7", scope, id="f7"),
        create(f"{WORD} 8", scope, id="elsewhere"),
    ]
    for change in again:  # one by one: each may meet what the next one makes way for
        assert await store(stores.memories, change) == Applied()
    await store(stores.memories, create("new", scope, id="e"))
    await store(stores.memories, Edit(memory(f"{WORD} 6", scope, id="e"), None))
    gate.go_on.set()
    gone = await forgetting
    page = await stores.memories.list(of(ANNA, include_inactive=True), limit=99)
    assert {m.id for m in page.items} == {"old", "new", "f7", "elsewhere", "e"}
    assert gone.memories == 11
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert receipt.counts == gone


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA, type="semantic"), of(APOLLO)], ids=["type", "project"])
async def test_no_memory_becomes_one_that_is_being_forgotten(stores, where):
    facts = [create(f"fact {n}", APOLLO, id=f"f{n}") for n in range(9)]
    await store(stores.memories, *facts, create("plan", ZEUS, id="e", type="episodic"))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    with pytest.raises(Conflict):
        await store(stores.memories, Edit(memory("plan", APOLLO, id="e", type="semantic"), None))
    await store(stores.memories, Edit(memory("plan b", ZEUS, id="e", type="episodic"), None))
    gate.go_on.set()
    assert (await forgetting).memories == 9
    await store(stores.memories, Edit(memory("plan c", APOLLO, id="e", type="semantic"), None))
    assert (await stores.memories.get(of(ANNA), "e")).content == "plan c"


async def test_another_process_never_serves_from_memory_what_was_forgotten(stores, second):
    """It may hold the rows until it looks again; whoever asks makes it look."""
    facts = [create(f"fact {n}", id=f"f{n}", type=("semantic", "episodic")[n % 2]) for n in range(4)]
    await store(stores.memories, *facts)
    assert len(await find(second.memories, "fact", limit=99)) == 4
    await stores.memories.forget(of(ANNA, type="episodic"), by="test")
    assert await contents(second.memories, "fact") == {"fact 0", "fact 2"}
    await stores.memories.forget(of(ANNA), "f0", by="test")
    assert await contents(second.memories, "fact") == {"fact 2"}
    await stores.memories.forget(of(ANNA), by="test")
    assert await contents(second.memories, "fact") == set()
    await store(stores.memories, create("fact 9", id="f2"))
    assert await contents(second.memories, "fact") == {"fact 9"}


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


# ---------------------------------------------------------------- the log
async def test_a_purge_that_a_reader_put_off_is_done_by_the_upkeep(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_PURGE_AGAIN_S", 0.0)
    await store(stores.memories, create(f"a {WORD}", id="a"))
    with closing(sqlite3.connect(stores.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await stores.memories.forget(of(ANNA), "a", by="test")
        assert WORD.encode() in on_disk(tmp_path)
    assert await stores.memories.resume_forgets() == 0
    assert WORD.encode() not in on_disk(tmp_path)


async def test_a_purge_that_a_crash_prevented_is_done_at_the_next_start(stores, tmp_path):
    await store(stores.memories, create(f"a {WORD}", id="a"))
    with closing(sqlite3.connect(stores.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await stores.memories.forget(of(ANNA), "a", by="test")
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for file in tmp_path.glob("memory.db*"):
            shutil.copy(file, crashed)
    assert WORD.encode() in on_disk(crashed)
    again = SqliteStores(crashed)
    await again.open()
    assert WORD.encode() not in on_disk(crashed)
    await again.close()
