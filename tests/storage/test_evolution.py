"""How memories change over time, in the stores: archive, restore, pin, and which visits are due."""

from dataclasses import replace

import pytest

from proxy.domain.changes import (
    DAY_S,
    NEVER,
    Archive,
    Confirm,
    EvolutionPolicy,
    Pin,
    Restore,
    UseVerdict,
    Visit,
)
from proxy.domain.errors import Duplicate, NotFound
from proxy.domain.session import Outcome
from tests.storage.making import ANNA, BEN, NOW, contents, create, of, store, supersede, vector
from tests.storage.talking import exchange, never

POLICY = EvolutionPolicy()
ENGINES = ("sqlite", "postgres")
LEASE_S = 300.0


class TestArchive:
    async def test_an_archived_memory_is_found_again_once_it_is_restored(self, memories):
        await store(memories, create("drinks tea", id="a", weight=0.1))
        await store(memories, Archive(("a", "absent"), NOW + 1, "decay"))
        assert await contents(memories, "tea") == set()
        archived = await memories.get(of(ANNA), "a")
        assert (archived.archived, archived.archived_by) == (True, "decay")
        await store(memories, Restore("a", NOW + 2))
        assert await contents(memories, "tea") == {"drinks tea"}
        restored = await memories.get(of(ANNA), "a")
        assert (restored.archived_by, restored.weight, restored.updated_at) == (None, 1.0, NOW + 2)
        events = (await memories.history(of(ANNA), ["a"]))["a"]
        assert [(e.action, e.by) for e in events[1:]] == [("archived", "decay"), ("restored", "user")]

    async def test_what_is_pinned_superseded_or_anothers_is_not_archived(self, memories):
        await store(memories, create("rum", id="p"), Pin("p", True, NOW))
        await store(memories, create("tea", id="a"), supersede("a", "cocoa", id="b"))
        await store(memories, create("chess", BEN, id="c"), scope=BEN)
        await store(memories, Archive(("a", "c", "p"), NOW + 1, "decay"))
        assert not (await memories.get(of(ANNA), "a")).archived
        assert await contents(memories, "rum") == {"rum"}
        assert await contents(memories, "chess", BEN) == {"chess"}
        await store(memories, Archive(("p",), NOW + 1, "user"))
        assert await contents(memories, "rum") == set()
        assert await contents(memories, "rum", faded=True) == set()  # its owner wants it so

    async def test_what_another_states_or_owns_is_not_restored_or_pinned(self, memories):
        await store(memories, create("tea", id="a"), Archive(("a",), NOW, "user"), create("tea", id="b"))
        with pytest.raises(Duplicate):
            await store(memories, Restore("a", NOW + 1))
        await store(memories, create("chess", BEN, id="c"), scope=BEN)
        for change in (Restore("c", NOW), Pin("c", True, NOW)):
            with pytest.raises(NotFound):
                await store(memories, change)


class TestVisits:
    async def test_a_user_is_due_after_a_change_and_leased_to_one_process(self, stores, second):
        await store(stores.memories, create("tea"))
        assert await stores.evolution.claim(NOW, LEASE_S) is None
        lease = await stores.evolution.claim(NOW + 60, LEASE_S)
        assert (lease.scope, lease.own) == (ANNA, {})
        assert await second.evolution.claim(NOW + 60, LEASE_S) is None
        await stores.evolution.release(lease, NOW + 60, NEVER)
        assert await second.evolution.claim(NOW + 9e9, LEASE_S) is None

    async def test_a_lease_ends_with_its_time_or_a_clock_that_is_set_back(self, stores, second):
        await store(stores.memories, create("tea"))
        assert await stores.evolution.claim(NOW + 60, LEASE_S) is not None
        assert await second.evolution.claim(NOW + 60 + LEASE_S, LEASE_S) is not None
        assert await stores.evolution.claim(NOW + 9e6, LEASE_S) is not None
        await store(stores.memories, create("cocoa"))
        assert await stores.evolution.claim(NOW + 60, LEASE_S) is not None

    async def test_a_user_who_is_not_due_is_leased_on_request_and_due_as_before(self, stores, second):
        assert await stores.evolution.lease(ANNA, NOW, LEASE_S) is not None  # no such user yet
        await store(stores.memories, create("tea"))
        lease = await stores.evolution.lease(ANNA, NOW, LEASE_S)
        assert await second.evolution.lease(ANNA, NOW + 1, LEASE_S) is None
        assert await second.evolution.claim(NOW + 60, LEASE_S) is None
        assert await second.evolution.lease(BEN, NOW + 1, LEASE_S) is not None
        await stores.evolution.release(lease, lease.last_at, NEVER)
        assert await second.evolution.claim(NOW, LEASE_S) is None
        assert (await second.evolution.claim(NOW + 60, LEASE_S)).last_at == 0

    async def test_own_settings_are_the_users_until_everything_is_forgotten(self, stores):
        await stores.evolution.set_own(ANNA, {"half_life_days": 7}, NOW)
        assert await stores.evolution.own(ANNA) == {"half_life_days": 7}
        assert await stores.evolution.own(BEN) == {}
        await stores.memories.forget(of(ANNA, include_inactive=True), by="test")
        assert await stores.evolution.own(ANNA) == {}


# ---------------------------------------------------------------- use
async def answer(stores, *ids, said="dinner?", at=NOW):
    """Complete an exchange that was given these memories; return it as the judge gets it."""
    begun = await stores.sessions.begin(exchange(said, at=at))
    await stores.sessions.complete(begun, Outcome("Try it.", whole=True, recalled=ids), never)
    (*_, found) = await stores.evolution.answered(ANNA, 9)
    return found


async def judge(stores, ids, used, *, at=NOW):
    verdict = UseVerdict(frozenset(used))
    return await stores.evolution.record_use(await answer(stores, *ids, at=at), verdict, POLICY, at + 1)


async def weights(stores, *ids):
    return [round((await stores.memories.get(of(ANNA), id_)).weight, 6) for id_ in ids]


class TestUse:
    async def test_use_raises_the_weight_and_lack_of_use_lowers_it_once_per_exchange(self, stores, second):
        await store(stores.memories, create("tea", id="a"), create("chess", id="b"), create("spared", id="c"))
        await store(stores.memories, create("pinned", id="d"), Pin("d", True, NOW))
        found = await answer(stores, "a", "b", "c", "d")
        assert {s.memory.id for s in found.shown} == {"a", "b", "c", "d"}
        assert (found.said, found.answer) == ("dinner?", "Try it.")
        for each in (stores, second, stores):
            verdict = UseVerdict(frozenset({"a"}), frozenset({"c"}))
            await each.evolution.record_use(found, verdict, POLICY, NOW + 1)
        assert await weights(stores, "a", "b", "c", "d") == [1.5, 0.7, 1.0, 1.0]
        used = await stores.memories.get(of(ANNA), "a")
        assert (used.uses, used.used_at) == (1, NOW)
        assert await stores.evolution.answered(ANNA, 9) == []

    async def test_what_is_never_used_is_archived_and_comes_back_when_it_is(self, stores):
        await store(stores.memories, create("drinks tea", id="a"), create("plays chess", id="b"))
        for turn in range(3):
            await judge(stores, ["a", "b"], ["b"], at=NOW + turn)
        assert await contents(stores.memories, "tea chess") == {"plays chess"}
        history = (await stores.memories.history(of(ANNA), ["a"]))["a"]
        assert [e.by for e in history if e.action == "archived"] == ["use"]
        assert await contents(stores.memories, "tea chess", faded=True) == {"drinks tea"}
        await judge(stores, ["a"], ["a"], at=NOW + 9)
        assert await contents(stores.memories, "tea chess") == {"drinks tea", "plays chess"}
        assert await weights(stores, "a") == [1.5]

    async def test_what_faded_is_current_again_if_restated_and_never_if_it_changed(self, stores):
        faded = Archive(("a", "b"), NOW, "decay")
        await store(stores.memories, create("drinks tea", id="a"), create("lives in Paris", id="b"), faded)
        again = supersede("b", "lives in Lyon", id="c")
        await store(stores.memories, Confirm("a", NOW + 1, 0.9), again)
        assert await contents(stores.memories, "tea paris lyon") == {"drinks tea", "lives in Lyon"}
        assert await contents(stores.memories, "tea paris lyon", faded=True) == set()

    async def test_what_is_used_often_belongs_to_the_profile(self, stores):
        await store(stores.memories, create("tea", id="a", vec=vector(1)), create("chess", id="b"))
        snapshot = await stores.memories.snapshot(ANNA, lambda vectors: [""] * len(vectors))
        assert list(snapshot.profile) == []
        for turn in range(9):
            await judge(stores, ["a"], ["a"], at=NOW + turn)
        await store(stores.memories, Pin("b", True, NOW))
        snapshot = await stores.memories.snapshot(ANNA, lambda vectors: [""] * len(vectors))
        assert [(m.id, kind) for m, kind in snapshot.profile] == [("b", "pinned"), ("a", "core")]

    async def test_an_answer_that_broke_off_or_was_forgotten_is_not_judged(self, stores):
        await store(stores.memories, create("tea", id="a"))
        begun = await stores.sessions.begin(exchange("a?"))
        await stores.sessions.complete(begun, Outcome("Well", whole=False, recalled=("a",)), never)
        assert await stores.evolution.answered(ANNA, 9) == []
        found = await answer(stores, "a", said="b?")
        await stores.memories.forget(of(ANNA, include_inactive=True), by="test")
        assert await stores.evolution.record_use(found, UseVerdict(frozenset({"a"})), POLICY, NOW) == {}

    async def test_a_user_with_answers_to_judge_is_leased_without_being_due(self, stores, second):
        await store(stores.memories, create("tea", id="a"))
        await stores.evolution.release(await stores.evolution.claim(NOW + 60, LEASE_S), NOW + 60, NEVER)
        await answer(stores, "a")
        lease = await stores.evolution.claim(NOW + 61, LEASE_S)
        assert lease.only_use
        assert await second.evolution.claim(NOW + 61, LEASE_S) is None
        await stores.evolution.release(lease, lease.last_at, NEVER)
        assert (await second.evolution.claim(NOW + 62, LEASE_S)).only_use


# ---------------------------------------------------------------- decay
async def fade(stores, day, *, policy=POLICY, limit=50, dry_run=False):
    """Run the decay step at the end of a day until nothing is left; return the ids that it archived."""
    archived, more = [], True
    while more:
        visit = Visit(ANNA, NOW + day * DAY_S, policy, dry_run=dry_run)
        counts = await stores.evolution.fade(visit, limit)
        archived += counts.ids["archived"]
        more = counts.more and not dry_run
    return sorted(archived), counts.due_at


class TestDecay:
    async def test_a_memory_fades_at_its_time_and_the_visit_is_due_then(self, stores):
        await store(stores.memories, create("tea", id="a", importance=0.8), create("b", type="preference"))
        none, due_at = await fade(stores, 0)
        assert none == []
        assert due_at == pytest.approx(NOW + 300 * DAY_S)
        assert (await fade(stores, 299))[0] == []
        assert (await fade(stores, 301, dry_run=True))[0] == ["a"]
        assert await contents(stores.memories, "tea") == {"tea"}
        assert (await fade(stores, 301))[0] == ["a"]
        assert await contents(stores.memories, "tea") == set()
        assert await contents(stores.memories, "tea", faded=True) == {"tea"}
        await store(stores.memories, Restore("a", NOW + 301 * DAY_S))
        assert (await fade(stores, 400))[0] == []

    async def test_use_moves_the_time_on_and_a_clock_set_back_loses_nothing(self, stores):
        await store(stores.memories, create("tea", id="a", importance=0.8))
        await fade(stores, 0)
        await stores.memories.touch(ANNA, ["a"], NOW + 200 * DAY_S)
        assert (await fade(stores, 301)) == ([], pytest.approx(NOW + 500 * DAY_S))
        assert (await fade(stores, -900))[0] == []

    async def test_changed_settings_take_effect_in_portions_for_all_memories(self, stores):
        ids = [f"m{n}" for n in range(7)]
        await store(stores.memories, *(create(f"tea {n}", id=id_) for n, id_ in enumerate(ids)))
        assert (await fade(stores, 100))[0] == []
        hasty = replace(POLICY, half_life_days=1.0)
        assert (await fade(stores, 100, policy=replace(POLICY, half_life_days=0), limit=2))[0] == []
        assert (await fade(stores, 9999, policy=replace(POLICY, half_life_days=0), limit=2))[0] == []
        await stores.evolution.fade(Visit(ANNA, NOW + 100 * DAY_S, hasty), 2)  # and is killed
        assert (await fade(stores, 100, policy=hasty, limit=2))[0] == ids[2:]


class TestInsights:
    async def test_they_count_what_there_is_in_a_project_and_what_happened_by_day(self, stores):
        apollo, zeus = (replace(ANNA, project=name) for name in ("apollo", "zeus"))
        await store(
            stores.memories, create("tea", apollo, id="a"), create("b", apollo, id="b", type="episodic")
        )
        await store(stores.memories, create("c", apollo, id="c"), supersede("c", "d", apollo, id="d"))
        await store(stores.memories, create("tea", zeus, id="z"), Pin("d", True, NOW))
        await judge(stores, ["a", "d", "z"], ["z"])
        await store(stores.memories, Archive(("b",), NOW + DAY_S, "user"))
        await fade(stores, 1)
        found = await stores.evolution.insights(apollo, NOW + DAY_S, 2)
        assert (found.active, found.archived, found.core, found.pinned) == (2, 1, 1, 1)
        assert (found.by_type, found.used, found.unused) == ({"semantic": 2}, 0, 2)
        assert [(d.date, d.added, d.superseded, d.archived) for d in found.by_day] == [
            ("1970-01-01", 4, 1, 0),
            ("1970-01-02", 0, 0, 1),
        ]
        assert [m.id for m in found.fading] == ["a"]
        assert (await stores.evolution.insights(BEN, NOW, 2)).active == 0

    async def test_a_forget_erases_the_counts(self, stores, engine):
        await store(stores.memories, create("tea", id="a"), create("chess", id="b"))
        await judge(stores, ["a", "b"], ["a"])
        await stores.memories.forget(of(ANNA), "a", by="test")
        assert engine.rows("SELECT count(*) FROM memory_uses") == [(1,)]
        await stores.memories.forget(of(ANNA, include_inactive=True), by="test")
        for table in ("memory_uses", "evolution"):
            assert engine.rows(f"SELECT count(*) FROM {table}") == [(0,)]
