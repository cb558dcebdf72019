"""Forgets while others read and write, and what a crash leaves."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.changes import Applied, Edit
from proxy.domain.core import ForgetCounts, Scope
from proxy.domain.errors import Conflict
from proxy.domain.session import Outcome
from tests.storage.forgetting_support import SCOPES, WORD, everything
from tests.storage.making import (
    ANNA,
    APOLLO,
    NOW,
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
from tests.storage.test_responses import converse, items, keep, response

ENGINES = ("sqlite", "postgres")

USER, PROJECT = of(ANNA), of(APOLLO)


class TestConcurrentForget:
    # ------------------------------------------------------------ what others see
    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize(
        "where", [USER, PROJECT, of(ANNA, type="episodic")], ids=["user", "project", "type"]
    )
    async def test_what_is_being_forgotten_is_hidden_from_the_first_moment(self, stores, second, gate, where):
        scope = Scope("acme", "anna", where.project)
        facts = [create(f"fact {n}", scope, id=f"f{n}", type="episodic", vec=vector(1)) for n in range(9)]
        await store(stores.memories, *facts, create("older", id="older", type="semantic"))
        # Reached only through what superseded it.
        await store(stores.memories, supersede("older", "newer", scope, id="newer", type="episodic"))
        assert len(await find(second.memories, "fact", vec=vector(1))) == 9
        forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
        await gate.reached.wait()
        for each in (stores.memories, second.memories):
            assert await find(each, "fact newer older", vec=vector(1)) == []
            page = await each.list(of(ANNA, include_inactive=True), limit=99)
            assert (page.items, page.total) == ((), 0)
            assert (await each.list(of(ANNA), limit=99)).total == 0
            for id_ in ("f8", "older", "newer"):
                assert await each.get(of(ANNA), id_) is None
                assert await each.history(of(ANNA), [id_]) == {}
        assert await stores.receipts.list("acme", "anna", limit=9) == []
        gate.go_on.set()
        assert (await forgetting).memories == 11

    # ------------------------------------------------------------ what others write
    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("where", [USER, of(ANNA, type="semantic")], ids=["user", "type"])
    async def test_who_begins_during_a_forget_is_stored_and_survives(self, stores, sessions, gate, where):
        await store(stores.memories, *(create(f"fact {n}", id=f"f{n}") for n in range(9)))
        before = await stores.memories.stamp(ANNA)
        forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
        await gate.reached.wait()
        with pytest.raises(Conflict):
            await stores.memories.apply(ANNA, [create("late")], expect=before)
        # The same words as one that is not erased yet.
        await store(stores.memories, create("fact 8", id="again"), create("new"))
        assert await contents(stores.memories, "fact new late") == {"fact 8", "new"}
        begun = await sessions.begin(exchange("new words"))
        await keep(stores, response("new"))
        gate.go_on.set()
        assert (await forgetting).memories == 9
        assert await contents(stores.memories, "fact new late") == {"fact 8", "new"}
        assert await sessions.complete(begun, Outcome("hi", whole=True), never)
        assert await stores.chains.get(ANNA, "new", NOW) is not None

    @pytest.mark.usefixtures("in_portions")
    async def test_nothing_is_said_in_a_conversation_by_a_running_response_while_much_is_forgotten(
        self, stores, gate, written
    ):
        await converse(stores.conversations, scope=APOLLO)
        running = response("r1", APOLLO, conversation_id="c1")
        generation = (await stores.memories.stamp(ANNA)).generation
        await keep(stores, running)
        await store(stores.memories, *(create(f"fact {n}", APOLLO, type="episodic") for n in range(9)))
        forgetting = asyncio.create_task(stores.memories.forget(of(ANNA, type="episodic"), by="test"))
        await gate.reached.wait()
        ended = response("r1", APOLLO, text=WORD, conversation_id="c1")
        over = running.response
        said = await stores.chains.save(ended, generation=generation, over=over, said=items("late"))
        gate.go_on.set()
        await forgetting
        assert not said
        assert WORD.encode() not in await written()
        assert await stores.chains.save(ended, generation=generation, over=over, said=items("now"))

    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize(
        "where", [USER, of(ANNA, type="semantic"), PROJECT], ids=["user", "type", "project"]
    )
    async def test_what_is_being_forgotten_keeps_out_neither_its_id_nor_its_words(
        self, stores, gate, engine, where
    ):
        scope = Scope("acme", "anna", where.project)
        stated = await talk(stores.sessions, f"I am a {WORD}", scope=scope)
        facts = [create(f"{WORD} {n}", scope, id=f"f{n}", evidence=quote(stated)) for n in range(9)]
        await store(stores.memories, create("first", scope, id="old"), *facts)
        await store(stores.memories, supersede("old", "second", scope, id="new"))
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
        deleted = await forgetting
        page = await stores.memories.list(of(ANNA, include_inactive=True), limit=99)
        assert {m.id for m in page.items} == {"old", "new", "f7", "elsewhere", "e"}
        assert deleted.memories == 11
        (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
        assert receipt.counts == deleted
        assert engine.rows('SELECT "user" FROM scopes') == [("anna",)]

    async def test_forgets_at_once_take_everything_once(self, stores, second, written, engine, mode):
        facts = (create(f"{WORD} {n}", type=("semantic", "episodic")[n % 2]) for n in range(20))
        await store(stores.memories, *facts)
        deleted = await asyncio.gather(
            stores.memories.forget(of(ANNA, type="semantic"), by="test"),
            second.memories.forget(of(ANNA), by="test"),
            stores.memories.forget(of(ANNA), by="test"),
        )
        assert sum(each.memories for each in deleted) == 20
        assert len(await stores.receipts.list("acme", "anna", limit=9)) == 3
        assert WORD.encode() not in await written()
        assert engine.rows("SELECT count(*) FROM forgets") == [(0,)]
        assert engine.rows('SELECT "user" FROM scopes') == [("anna",)]

    # ------------------------------------------------------------ crashes
    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("where", SCOPES.values(), ids=SCOPES)
    @pytest.mark.parametrize("portions", [0, 2])
    async def test_what_a_crash_broke_off_is_finished_by_another(
        self, stores, break_off, engine, restarted, written, where, portions
    ):
        await everything(stores)
        await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, type="preference") for n in range(9)))
        counted = await stores.memories.forget(where, by="test", dry_run=True)
        if where.text is None:
            break_off(portions)
            with pytest.raises(RuntimeError):
                await stores.memories.forget(where, by="test")
            assert engine.rows("SELECT count(*) FROM forgets") == [(1,)]
        else:  # in one commit
            await stores.memories.forget(where, by="test")
        other = await restarted()
        assert engine.rows("SELECT count(*) FROM forgets") == [(0,)]
        assert await other.memories.resume_forgets() == 0
        (receipt,) = await other.receipts.list("acme", "anna", limit=9)
        assert replace(receipt.counts, receipt=None) == counted
        assert await other.memories.forget(where, by="test", dry_run=True) == ForgetCounts()
        await other.memories.forget(of(ANNA), by="test")
        assert WORD.encode() not in await written()

    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("where", [USER, of(ANNA, type="semantic")], ids=["user", "type"])
    async def test_no_process_continues_a_forget_that_another_is_doing(self, stores, second, gate, where):
        await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
        forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
        await gate.reached.wait()
        for each in (stores, second):
            assert await each.memories.resume_forgets() == 0
        gate.go_on.set()
        assert (await forgetting).memories == 9

    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("where", [USER, of(ANNA, type="semantic")], ids=["user", "type"])
    async def test_a_forget_whose_caller_gave_up_is_finished_by_the_upkeep(
        self, stores, gate, written, where
    ):
        await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
        forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
        await gate.reached.wait()
        forgetting.cancel()
        await asyncio.wait([forgetting])
        gate.go_on.set()
        await stores.upkeep()
        assert WORD.encode() not in await written()

    @pytest.mark.usefixtures("in_portions")
    @pytest.mark.parametrize("where", [USER, of(ANNA, type="semantic")], ids=["user", "type"])
    async def test_what_came_after_a_forget_stays_when_another_finishes_it(
        self, stores, break_off, restarted, where
    ):
        await store(stores.memories, *(create(f"{WORD} {n}", id=f"f{n}") for n in range(9)))
        break_off(1)
        with pytest.raises(RuntimeError):
            await stores.memories.forget(where, by="test")
        await store(stores.memories, create("new tea", id="f8", vec=vector(1)))
        await talk(stores.sessions, "hello again")
        await keep(stores, response("new"))
        other = await restarted()
        assert await contents(other.memories, "tea", vec=vector(1)) == {"new tea"}
        assert (await other.memories.get(of(ANNA), "f8")).content == "new tea"
        assert [e.said for e in await other.sessions.recent(ANNA, "s1", 9)] == ["hello again"]
        assert await other.chains.get(ANNA, "new", NOW) is not None
        (receipt,) = await other.receipts.list("acme", "anna", limit=9)
        assert receipt.counts.memories == 9
