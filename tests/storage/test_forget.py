"""What a forget takes, its receipts, and what expires."""

import time

import pytest

from proxy.domain.core import ForgetCounts
from proxy.domain.errors import NotFound
from proxy.storage.sql.forget_related import MentionMatcher
from tests.storage.forgetting_support import SCOPES, WORD, everything
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    always,
    contents,
    create,
    exchange,
    forgotten,
    of,
    quote,
    store,
    supersede,
    talk,
)
from tests.storage.test_responses import keep, response

ENGINES = ("sqlite", "postgres", "indexed")

DAY = 86_400.0


class TestForgetting:
    @pytest.mark.parametrize("where", SCOPES.values(), ids=SCOPES)
    async def test_a_dry_run_counts_just_what_a_forget_then_removes(self, stores, where, mode):
        await everything(stores)
        project = await talk(stores.sessions, "in the project", scope=APOLLO, trigger=always)
        await store(stores.memories, create("plan", APOLLO, evidence=quote(project)), scope=ANNA)
        counted = await stores.memories.forget(where, by="test", dry_run=True)
        assert counted != ForgetCounts()
        assert await forgotten(stores.memories, where) == counted
        assert await forgotten(stores.memories, where) == ForgetCounts()

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
            job = await stores.jobs.claim(NOW, 60)
            batch = await stores.jobs.batch(job, limit=9, context=0)
            await stores.memories.apply(ANNA, [], expect=batch.stamp, done=job)
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

    # ------------------------------------------------------------ all of it
    async def test_a_forgotten_user_is_nowhere_in_the_data_directory(self, stores, written, mode):
        await everything(stores)
        assert WORD.encode() in await written()
        counted = await stores.memories.forget(of(ANNA), by="test", dry_run=True)
        deleted = await forgotten(stores.memories, of(ANNA))
        assert counted == deleted
        assert deleted == ForgetCounts(
            memories=3, exchanges=3, sessions=3, jobs=2, responses=1, quarantined=1, documents=2,
            conversations=1,
        )  # fmt: skip
        assert WORD.encode() not in await written()

    async def test_a_memory_takes_the_responses_of_its_session_after_retention_removed_what_was_said(
        self, stores
    ):
        stated = await talk(stores.sessions, f"I am a {WORD}", trigger=always)
        job = await stores.jobs.claim(NOW, 60)
        stamp = (await stores.jobs.batch(job, limit=9, context=0)).stamp
        change = create(f"is a {WORD}", id="a", evidence=quote(stated))
        await stores.memories.apply(ANNA, [change], expect=stamp, done=job)
        await keep(stores, response("r"), response("elsewhere", session_id="s2"))
        assert await stores.sessions.prune(NOW + 1) == 1
        assert await forgotten(stores.memories, of(ANNA), "a") == ForgetCounts(memories=1, responses=1)
        assert await stores.chains.get(ANNA, "elsewhere", NOW) is not None

    # ------------------------------------------------------------ receipts
    async def test_every_forget_of_a_scope_leaves_a_receipt_and_by_id_those_that_found_something(
        self, stores
    ):
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

    async def test_receipts_survive_later_forgets_and_belong_to_their_user(self, stores, mode):
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

    # ------------------------------------------------------------ expiry
    async def test_what_expired_more_than_a_day_ago_is_erased_with_a_receipt(self, stores, written):
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
        assert WORD.encode() not in await written()
        assert await stores.memories.stamp(ANNA) == stamp  # nothing was forgotten: writers continue

    async def test_expiry_leaves_what_was_said_and_answered(self, stores, sessions):
        stated = await talk(sessions)
        await keep(stores, response("r"))
        await store(stores.memories, create("a", expires_at=NOW, evidence=quote(stated)))
        assert await stores.memories.expire(NOW + DAY) == 1
        assert len(await sessions.recent(ANNA, "s1", 9)) == 1
        assert await stores.chains.get(ANNA, "r", NOW) is not None


ISLAND = "The user will travel to Zanzibar in October."
STATED = [
    (ISLAND, "What does one wear? It's hot. I'm travelling to Zanzibar, you know. In October, that is."),
    ("User's budget is $7,500 for the kitchen.", "my kitchen budget of 7500 is gone"),
    ("User owns a cat, and a boat.", "my boat, which I own, and cats"),
    ("用户对花生过敏", "我对花生过敏，能吃什么？"),
    ("Der Nutzer wohnt in der Lindenstraße in Köln.", "Ich wohne ja in Köln, Lindenstraße 4."),
]
NOT_STATED = [
    (ISLAND, "I will travel in October. Where to? I ask you. It is far. As to spices: Zanzibar has some."),
    ("User's budget is $7,500 for the kitchen.", "my kitchen budget is 8000"),
    ("The user owns two cats and a house.", "Authors of housecats"),
    ("用户对花生过敏", "我对花生很感兴趣"),
]


@pytest.mark.parametrize(("fact", "text"), STATED)
def test_what_says_it_in_nearly_its_words_tells_a_fact(fact, text):
    assert MentionMatcher([fact], []).is_in(text, personal=False)


@pytest.mark.parametrize(("fact", "text"), NOT_STATED)
def test_other_values_other_things_and_words_far_apart_do_not(fact, text):
    assert not MentionMatcher([fact], []).is_in(text, personal=True)


def test_the_words_that_a_fact_was_learnt_from_tell_it_too():
    stated = MentionMatcher(["Has a nut allergy."], ["peanuts make me swell up", "yes"])
    assert stated.is_in("as I said, peanuts make me swell up", personal=False)
    assert not stated.is_in("yes, I do", personal=True)


def test_a_fact_of_few_words_is_found_only_in_statements_about_the_user():
    vegan = MentionMatcher(["The user is vegan."], [])
    assert vegan.is_in("I am vegan, by the way", personal=True)
    assert not vegan.is_in("Is there a vegan restaurant?", personal=False)
    trip = MentionMatcher(["User goes to Zanzibar in July"], [])
    assert trip.is_in("My cat is called Momo and we go to Zanzibar in July.", personal=True)
    assert not trip.is_in("My cat is called Momo and we go to Madagascar in July.", personal=True)
    assert not MentionMatcher(["User likes tea."], []).is_in("My teacher likes me", personal=True)
    assert not MentionMatcher(["User likes tea."], []).is_in("I do like it. Is it tea?", personal=True)


def test_long_texts_are_looked_at_in_time_linear_in_them():
    stated = MentionMatcher([ISLAND], [])
    apart = "I travel. To Zanzibar! Why not? In May. " * 5_000 + "Oh. Oh. Oh. October."
    begun = time.process_time()
    assert not stated.is_in(apart, personal=True)
    assert time.process_time() - begun < 4
