"""What a forget takes, also while others read and write and after a crash; its receipts; and what expires."""

import asyncio
import time
from dataclasses import replace

import pytest

from proxy.domain.changes import Applied, Edit
from proxy.domain.core import ForgetCounts
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.session import Outcome
from proxy.storage.sql.mentions import MentionMatcher
from tests.storage.forgetting_support import SCOPES, WORD, everything
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    contents,
    create,
    forgotten,
    memory,
    of,
    store,
    supersede,
)
from tests.storage.talking import (
    always,
    converse,
    exchange,
    extract,
    items,
    keep,
    never,
    quote,
    response,
    talk,
)

ENGINES = ("sqlite", "postgres")

DAY = 86_400.0
USER_OR_TYPE = pytest.mark.parametrize("where", [of(ANNA), of(ANNA, type="semantic")], ids=["user", "type"])


class TestForgetting:
    @pytest.mark.parametrize("where", SCOPES.values(), ids=SCOPES)
    @pytest.mark.parametrize("crash_after", [None, 2], ids=["at once", "after a crash"])
    async def test_a_dry_run_counts_just_what_a_forget_removes_even_if_another_process_finishes_it(
        self, stores, break_off, engine, restarted, where, crash_after, request
    ):
        await everything(stores)
        await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, type="preference") for n in range(9)))
        counted = await stores.memories.forget(where, by="test", dry_run=True)
        assert counted.memories
        if crash_after is None or where.text is not None:  # by text: in one commit
            assert await forgotten(stores.memories, where) == counted
        else:
            request.getfixturevalue("in_portions")
            break_off(crash_after)
            with pytest.raises(RuntimeError):
                await stores.memories.forget(where, by="test")
            assert engine.rows("SELECT count(*) FROM forgets") == [(1,)]
        other = await restarted()
        assert engine.rows("SELECT count(*) FROM forgets") == [(0,)]
        (receipt,) = await other.receipts.list("acme", "anna", limit=9)
        assert replace(receipt.counts, receipt=None) == counted
        assert await other.memories.forget(where, by="test", dry_run=True) == ForgetCounts()
        await other.memories.forget(of(ANNA), by="test")
        assert WORD.encode() not in engine.written()

    async def test_a_forgotten_user_is_nowhere_in_the_store(self, stores, engine, mode):
        await everything(stores)
        assert WORD.encode() in engine.written()
        assert await forgotten(stores.memories, of(ANNA)) == ForgetCounts(
            memories=3, exchanges=3, sessions=3, jobs=2, responses=1, quarantined=1, documents=2,
            conversations=1,
        )  # fmt: skip
        assert WORD.encode() not in engine.written()

    @pytest.mark.parametrize("how", ["at once", "after retention", "after an import"])
    async def test_a_project_sessions_summary_is_deleted_with_a_general_memory_from_it(self, stores, how):
        stated = exchange("to Zanzibar")
        if how != "after an import":
            stated = await talk(stores.sessions, "to Zanzibar", scope=APOLLO, trigger=always)
        await store(
            stores.memories,
            create("Will go to Zanzibar", evidence=quote(stated, "Zanzibar"), id="fact"),
            create("tea", APOLLO, id="summary", source="summary", evidence=quote(stated, session="s2")),
            create("rum", APOLLO, id="sum", source="summary", evidence=quote(stated)),
        )
        if how == "after retention":
            await extract(stores)
            assert await stores.sessions.prune(NOW + 1) == 1
        await keep(stores, response("r", scope=APOLLO), response("elsewhere", session_id="s2", scope=APOLLO))
        counted = await stores.memories.forget(of(ANNA), "fact", by="test", dry_run=True)
        assert (counted.memories, counted.responses) == (2, 1)
        assert await forgotten(stores.memories, of(ANNA), "fact") == counted
        assert await contents(stores.memories, "Zanzibar tea rum", APOLLO) == {"tea"}

    async def test_the_memory_of_a_project_takes_no_summary_of_anothers_session_of_that_name(self, stores):
        stated = exchange("to Zanzibar")
        await store(
            stores.memories,
            create("Will go to Zanzibar", APOLLO, evidence=quote(stated), id="fact"),
            create("rum", source="summary", evidence=quote(stated)),
        )
        assert (await forgotten(stores.memories, of(ANNA), "fact")).memories == 1

    async def test_receipts_of_all_that_was_forgotten_survive_and_belong_to_their_user(self, stores):
        await store(stores.memories, create(f"a {WORD}", id="a"), create("tea", id="b", type="episodic"))
        for where, id_ in ((of(ANNA), "nothing"), (of(ANNA), "a"), (of(ANNA, type="episodic"), None)):
            await stores.memories.forget(where, id_, by="key:k1")
        await stores.memories.forget(of(BEN), by="jwt")
        await stores.memories.forget(of(ANNA), by="test")
        found = await stores.receipts.list("acme", None, limit=9)
        assert [(r.user, r.type, r.memory_id, r.by, r.counts.memories) for r in found] == [
            ("anna", None, None, "test", 0),
            ("ben", None, None, "jwt", 0),
            ("anna", "episodic", None, "key:k1", 1),
            ("anna", None, "a", "key:k1", 1),
        ]
        assert all(r.id == r.counts.receipt and r.at == NOW for r in found)
        assert WORD not in str(found)
        first = await stores.receipts.list("acme", "anna", limit=1)
        rest = await stores.receipts.list("acme", "anna", limit=9, after=first[-1].id)
        assert [*first, *rest] == [found[0], *found[2:]]
        assert await stores.receipts.list("other", None, limit=9) == []
        with pytest.raises(NotFound):
            await stores.receipts.list("acme", "ben", limit=3, after=first[0].id)

    async def test_what_expired_more_than_a_day_ago_is_erased_with_a_receipt_and_what_was_said_stays(
        self, stores, engine
    ):
        stated = await talk(stores.sessions)
        await keep(stores, response("r"))
        await store(
            stores.memories,
            create(f"old {WORD}", id="a", expires_at=NOW, evidence=quote(stated)),
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
        assert WORD.encode() not in engine.written()
        assert await stores.memories.stamp(ANNA) == stamp  # nothing was forgotten: writers continue
        assert len(await stores.sessions.recent(ANNA, "s1", 9)) == 1
        assert await stores.chains.get(ANNA, "r", NOW) is not None


@pytest.mark.usefixtures("in_portions")
class TestConcurrentForget:
    @USER_OR_TYPE
    async def test_who_begins_during_a_forget_is_stored_and_survives(
        self, stores, sessions, gate, engine, where
    ):
        stated = await talk(sessions, f"I am a {WORD}")
        facts = [create(f"fact {n}", id=f"f{n}", evidence=quote(stated)) for n in range(9)]
        await store(stores.memories, create("first", id="old"), *facts)
        await store(stores.memories, supersede("old", "second", id="new"))
        before = await stores.memories.stamp(ANNA)
        forgetting = asyncio.create_task(stores.memories.forget(where, by="test"))
        await gate.reached.wait()
        with pytest.raises(Conflict):
            await stores.memories.apply(ANNA, [create("late")], expect=before)
        again = [  # the ids and words of what is not erased yet
            create("first", id="old", superseded_by="new"),
            create("second", id="new"),
            create("fact 7", id="f7"),
            create("fact 8", id="elsewhere"),
        ]
        for change in again:  # one by one: each may meet what the next one makes way for
            assert await store(stores.memories, change) == Applied()
        await store(stores.memories, create("fact", id="e"))
        await store(stores.memories, Edit(memory("fact 6", id="e"), None))
        begun = await sessions.begin(exchange("new words"))
        await keep(stores, response("new"))
        gate.go_on.set()
        deleted = await forgetting
        assert deleted.memories == 11
        (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
        assert receipt.counts == deleted
        page = await stores.memories.list(of(ANNA, include_inactive=True), limit=99)
        assert {m.id for m in page.items} == {"old", "new", "f7", "elsewhere", "e"}
        assert await contents(stores.memories, "fact late") == {"fact 6", "fact 7", "fact 8"}
        assert await sessions.complete(begun, Outcome("hi", whole=True), never)
        assert await stores.chains.get(ANNA, "new", NOW) is not None
        assert engine.rows('SELECT "user" FROM scopes') == [("anna",)]

    async def test_nothing_is_said_in_a_conversation_by_a_running_response_while_much_is_forgotten(
        self, stores, gate, engine
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
        assert WORD.encode() not in engine.written()
        assert await stores.chains.save(ended, generation=generation, over=over, said=items("now"))

    async def test_forgets_at_once_take_everything_once(self, stores, second, engine):
        facts = (create(f"{WORD} {n}", type=("semantic", "episodic")[n % 2]) for n in range(20))
        await store(stores.memories, *facts)
        deleted = await asyncio.gather(
            stores.memories.forget(of(ANNA, type="semantic"), by="test"),
            second.memories.forget(of(ANNA), by="test"),
            stores.memories.forget(of(ANNA), by="test"),
        )
        assert sum(each.memories for each in deleted) == 20
        assert len(await stores.receipts.list("acme", "anna", limit=9)) == 3
        assert WORD.encode() not in engine.written()
        assert engine.rows("SELECT count(*) FROM forgets") == [(0,)]
        assert engine.rows('SELECT "user" FROM scopes') == [("anna",)]

    async def test_a_forget_whose_caller_gave_up_is_finished_by_the_upkeep(self, stores, gate, engine):
        await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
        forgetting = asyncio.create_task(stores.memories.forget(of(ANNA), by="test"))
        await gate.reached.wait()
        forgetting.cancel()
        await asyncio.wait([forgetting])
        gate.go_on.set()
        await stores.upkeep()
        assert WORD.encode() not in engine.written()


# ---------------------------------------------------------------- what repeats a fact
ISLAND = "The user will travel to Zanzibar in October."
BUDGET = "User's budget is $7,500 for the kitchen."
JULY = "User goes to Zanzibar in July"
NUTS = "Has a nut allergy."  # learnt from "peanuts make me swell up"


@pytest.mark.parametrize(
    ("fact", "said", "repeated"),
    [
        (ISLAND, "What to wear? It's hot. I'm travelling to Zanzibar, you know. In October, that is.", True),
        (BUDGET, "my kitchen budget of 7500 is gone", True),
        ("User owns a cat, and a boat.", "my boat, which I own, and cats", True),
        ("用户对花生过敏", "我对花生过敏，能吃什么？", True),
        ("Der Nutzer wohnt in der Lindenstraße in Köln.", "Ich wohne ja in Köln, Lindenstraße 4.", True),
        (NUTS, "as I said, peanuts make me swell up", True),
        (ISLAND, "I will travel in October. Where to? It is far. As to spices: Zanzibar has some.", False),
        (BUDGET, "my kitchen budget is 8000", False),
        ("The user owns two cats and a house.", "Authors of housecats", False),
        ("用户对花生过敏", "我对花生很感兴趣", False),
        (NUTS, "yes, I do", False),
        # A fact of few words is found only in statements about the user.
        ("The user is vegan.", "I am vegan, by the way", "in a personal statement"),
        (JULY, "My cat is called Momo and we go to Zanzibar in July.", True),
        (JULY, "My cat is called Momo and we go to Madagascar in July.", False),
        ("User likes tea.", "My teacher likes me", False),
        ("User likes tea.", "I do like it. Is it tea?", False),
    ],
)
def test_what_says_it_in_nearly_its_words_repeats_a_fact(fact, said, repeated):
    matcher = MentionMatcher([fact], ["peanuts make me swell up", "yes"] if fact == NUTS else [])
    assert matcher.is_in(said, personal=True) == bool(repeated)
    assert matcher.is_in(said, personal=False) == (repeated is True)


def test_long_texts_are_looked_at_in_time_linear_in_them():
    stated = MentionMatcher([ISLAND], [])
    apart = "I travel. To Zanzibar! Why not? In May. " * 5_000 + "Oh. Oh. Oh. October."
    begun = time.process_time()
    assert not stated.is_in(apart, personal=True)
    assert time.process_time() - begun < 4
