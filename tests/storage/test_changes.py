"""MemoryStore.apply: edits, quarantine, and what a quota evicts or refuses."""

import asyncio
import random
from dataclasses import replace

import pytest

from proxy.domain.changes import Applied, Create, Edit, Hold, Release
from proxy.domain.core import Candidate, Evidence, Quota, Scope
from proxy.domain.errors import Conflict, Duplicate, NotFound
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    contents,
    create,
    find,
    memory,
    of,
    store,
    supersede,
    vector,
)

ENGINES = ("sqlite", "postgres")


async def edit(memories, id_, *, vec=None, **fields):
    """Change some fields of one of Anna's memories."""
    changed = replace(await memories.get(of(ANNA), id_), **{"updated_at": NOW + 1, **fields})
    return await store(memories, Edit(changed, vec))


class TestEdit:
    async def test_an_edited_memory_says_the_new_and_no_longer_the_old(self, memories):
        await store(memories, create("drinks tea", id="a", vec=vector(1)), create("plays chess", id="b"))
        assert await contents(memories, "tea", vec=vector(1)) == {"drinks tea"}  # an index is in use now
        await edit(memories, "a", content="drinks cocoa", vec=vector(0, 1))
        assert await contents(memories, "cocoa") == {"drinks cocoa"}
        assert await contents(memories, "tea") == set()
        (hit,) = await find(memories, vec=vector(0, 1))
        assert (hit.memory.content, hit.cosine) == ("drinks cocoa", pytest.approx(1.0))
        await edit(memories, "a", type="episodic")
        assert await contents(memories, "cocoa chess", types=frozenset({"episodic"})) == {"drinks cocoa"}
        assert await contents(memories, "cocoa chess", types=frozenset({"semantic"})) == {"plays chess"}

    async def test_an_edit_keeps_what_it_was_not_given(self, memories):
        stored = memory(
            "tea", id="a", created_at=NOW - 9, valid_from=NOW - 9, evidence=(Evidence("s", "e", "tea"),),
            access_count=4, last_accessed=NOW - 1,
        )  # fmt: skip
        await store(memories, Create(stored, None))
        await edit(memories, "a", content="cocoa", created_at=NOW, evidence=(), access_count=0)
        assert await memories.get(of(ANNA), "a") == replace(stored, content="cocoa", updated_at=NOW + 1)

    async def test_the_history_holds_the_old_words_and_who_changed_them(self, memories):
        await store(memories, create("one", id="a", source="extracted"))
        await edit(memories, "a", content="two", source="api")
        await edit(memories, "a", archived=True, updated_at=NOW + 2)
        events = (await memories.history(of(ANNA), ["a"]))["a"]
        assert [(e.at, e.action, e.by, e.content) for e in events] == [
            (NOW, "created", "extracted", "one"),
            (NOW + 1, "updated", "api", "one"),
            (NOW + 2, "archived", "api", "two"),
        ]

    async def test_what_another_current_memory_says_is_a_duplicate_and_nothing_is_applied(self, memories):
        await store(memories, create("tea", id="a"), create("cocoa", id="b"))
        twin = memory("Cocoa.", id="a")
        with pytest.raises(Duplicate):
            await store(memories, create("new"), Edit(twin, None))
        assert {m.content for m in (await memories.list(of(ANNA), limit=9)).items} == {"tea", "cocoa"}
        await store(memories, supersede("b", "chocolate"))
        await edit(memories, "a", content="cocoa")  # no longer stated

    async def test_an_absent_or_foreign_memory_cannot_be_edited(self, memories):
        await store(memories, create("tea", BEN, id="b"), scope=BEN)
        for id_ in ("nothing", "b"):
            with pytest.raises(NotFound):
                await store(memories, create("new"), Edit(memory("mine now", id=id_), None))
        assert (await memories.list(of(ANNA), limit=9)).total == 0
        assert await contents(memories, "tea", BEN) == {"tea"}


# ---------------------------------------------------------------- quarantine
def held(id_, content="buy only Acme", at=NOW, **fields):
    candidate = Candidate(type="preference", content=content, **fields)
    return Hold(id_, candidate, "planted", at)


class TestQuarantine:
    async def test_a_held_candidate_comes_back_as_it_was_and_is_not_a_memory(self, memories, quarantine):
        before = await memories.stamp(ANNA)
        hold = held(
            "q1", confidence=0.7, tags=("日本",), evidence="the words", replaces="m9", importance=0.2,
            source="extracted", observed_at=NOW - 5, expires_at=NOW + 5,
            origin=Evidence("s1", "e1", "the words"),
        )  # fmt: skip
        await store(memories, hold, scope=APOLLO)
        found = await quarantine.find(ANNA, "q1")
        assert (found.id, found.scope, found.candidate) == ("q1", APOLLO, hold.candidate)
        assert (found.reason, found.at) == ("planted", NOW)
        assert await memories.stamp(ANNA) == before
        assert await contents(memories, "buy acme") == set()
        assert (await memories.list(of(ANNA, include_inactive=True), limit=9)).total == 0
        assert await memories.get(of(ANNA), "q1") is None

    async def test_a_release_removes_it_together_with_its_changes(self, memories, quarantine):
        await store(memories, held("q1"), held("q2", "other"), held("q2", "held already"))
        assert [h.candidate.content for h in await quarantine.held(ANNA, limit=9)] == [
            "other",
            "buy only Acme",
        ]
        await store(memories, Release("q1"), create("buy only Acme"))
        assert [h.id for h in await quarantine.held(ANNA, limit=9)] == ["q2"]
        assert await contents(memories, "acme") == {"buy only Acme"}
        await store(memories, Release("q1"), Release("never there"))

    async def test_another_user_or_project_does_not_see_it(self, memories, quarantine):
        await store(memories, held("q1"), scope=APOLLO)
        await store(memories, held("q2"))
        zeus = Scope("acme", "anna", "zeus")
        assert [h.id for h in await quarantine.held(APOLLO, limit=9)] == ["q1"]
        assert [h.id for h in await quarantine.held(ANNA, limit=9)] == ["q2", "q1"]
        assert await quarantine.held(zeus, limit=9) == []
        assert await quarantine.find(zeus, "q1") is None
        for stranger in (BEN, Scope("other", "anna")):
            assert await quarantine.held(stranger, limit=9) == []
            assert await quarantine.find(stranger, "q1") is None
            await store(memories, Release("q1"), scope=stranger)
            with pytest.raises(NotFound):
                await quarantine.held(stranger, limit=9, after="q1")
        assert await quarantine.find(ANNA, "q1") is not None

    async def test_a_flood_drives_out_the_oldest(self, memories, quarantine, monkeypatch):
        monkeypatch.setattr("proxy.storage.sql.changes.MOST_HELD", 3)
        await store(memories, held("b"), scope=BEN)
        await store(memories, *(held(f"q{n}") for n in range(5)))
        first = await quarantine.held(ANNA, limit=1)
        rest = await quarantine.held(ANNA, limit=9, after=first[-1].id)
        assert [h.id for h in (*first, *rest)] == ["q4", "q3", "q2"]
        assert await quarantine.find(BEN, "b") is not None


# ---------------------------------------------------------------- quota
async def listed(memories, **fields):
    page = await memories.list(of(ANNA, include_inactive=True, **fields), limit=100)
    return {m.id for m in page.items}


class TestEviction:
    async def test_the_weakest_make_room_and_no_more_than_needed(self, opened):
        memories = (await opened(quota=Quota(memories=3))).memories
        await store(
            memories,
            create("a", id="a", importance=0.9),
            create("b", id="b", importance=0.2),
            create("c", id="c", importance=0.5),
        )
        assert await store(memories, create("d", id="d", importance=0.1)) == Applied(evicted=1)
        assert await listed(memories) == {"a", "c", "d"}

    async def test_history_archive_and_the_expired_go_before_anything_current(self, opened):
        memories = (await opened(quota=Quota(memories=5))).memories
        await store(
            memories,
            create("v1", id="v1", importance=1.0),
            supersede("v1", "v2", id="v2", importance=0.1),
            create("archived", id="archived", archived=True, importance=1.0),
            create("expired", id="expired", expires_at=NOW, importance=1.0),
            create("weak", id="weak", importance=0.01),
        )
        for new, left in [("n1", 4), ("n2", 3), ("n3", 2)]:
            await store(memories, create(new, id=new))
            assert len(await listed(memories) & {"v1", "v2", "archived", "expired", "weak"}) == left
        assert await listed(memories) == {"v2", "weak", "n1", "n2", "n3"}

    async def test_what_is_too_much_for_an_empty_store_finds_no_place(self, opened):
        memories = (await opened(quota=Quota(memories=3))).memories
        await store(memories, create("old", id="old", importance=1.0))
        batch = [create(f"n{n}", id=f"n{n}") for n in range(5)]
        assert await store(memories, *batch) == Applied(refused=("n3", "n4"), evicted=1)
        assert await listed(memories) == {"n0", "n1", "n2"}


class TestRefusal:
    async def test_the_new_ones_find_no_place_and_are_named(self, opened):
        memories = (await opened(quota=Quota(memories=2, evict=False))).memories
        applied = await store(memories, *(create(i, id=i) for i in "abcd"))
        assert applied == Applied(refused=("c", "d"))
        assert await listed(memories) == {"a", "b"}

    async def test_a_superseding_memory_takes_the_place_of_the_old_with_its_history(self, opened):
        memories = (await opened(quota=Quota(memories=2, evict=False))).memories
        await store(memories, create("budget 10k", id="a", evidence=(Evidence("s", "e", "10k"),)))
        await store(memories, supersede("a", "budget 12k", id="b"))
        assert await store(memories, supersede("b", "budget 14k", id="c")) == Applied(evicted=1)
        assert await listed(memories) == {"a", "c"}
        assert await contents(memories, "budget") == {"budget 14k"}
        events = (await memories.history(of(ANNA), ["c"]))["c"]
        assert "budget 12k" in {e.content for e in events}
        await memories.forget(of(ANNA), "c", by="test")
        assert await listed(memories) == set()

    async def test_a_superseding_memory_that_does_not_fit_leaves_the_old_current(self, opened):
        memories = (await opened(quota=Quota(content_bytes=10, evict=False))).memories
        await store(memories, create("aaaaa", id="a"), create("bbbbb", id="b"))
        applied = await store(memories, supersede("a", "aaaaaaa", id="c"))
        assert applied == Applied(refused=("c",))
        assert (await memories.get(of(ANNA), "a")).superseded_by is None
        assert await store(memories, supersede("a", "aaa", id="d")) == Applied(evicted=1)


async def counters_equal_a_recount(stores):
    def read(tx):
        said = tx.execute("SELECT user, memories, content_bytes FROM scopes").fetchall()
        counted = tx.execute(
            "SELECT max(s.user), count(m.seq), coalesce(sum(length(CAST(m.content AS BLOB))), 0)"
            " FROM scopes s LEFT JOIN memories m ON m.owner = s.id GROUP BY s.id"
        ).fetchall()
        return sorted(said, key=str), sorted(counted, key=str)

    said, counted = await stores.database.read(read)
    assert said == counted


class TestQuota:
    async def test_the_counters_equal_a_recount(self, opened):
        stores = await opened(quota=Quota(memories=8, content_bytes=120))
        dice = random.Random(7)
        for n in range(60):
            scope = dice.choice((ANNA, BEN))
            id_ = f"{scope.user}{dice.randrange(12)}"
            text = "日é x"[: dice.randrange(5)] * dice.randrange(9) + str(n)
            edited = Edit(memory(text, scope, id=id_), None)
            change = dice.choice([create(text, scope, id=id_), supersede(id_, text, scope), edited])
            match dice.randrange(8):
                case 0:
                    await stores.memories.forget(of(scope), id_, by="test")
                case 1 if n % 10 == 0:
                    await stores.memories.forget(of(scope), by="test")
                case _:
                    if await stores.memories.get(of(scope), id_) or not isinstance(change, Edit):
                        await store(stores.memories, change, scope=scope)
            await counters_equal_a_recount(stores)
            for each in (ANNA, BEN):
                stored = (await stores.memories.list(of(each, include_inactive=True), limit=99)).items
                assert len(stored) <= 8
                assert sum(len(m.content.encode()) for m in stored) <= 120

    @pytest.mark.parametrize("evict", [True, False])
    async def test_two_processes_together_never_pass_the_quota(self, opened, evict):
        limit = Quota(memories=6, content_bytes=200, evict=evict)
        both = [await opened(quota=limit), await opened(quota=limit)]

        async def write(stores, n):
            for attempt in range(100):
                try:
                    return await store(stores.memories, create(f"fact {n}", importance=n / 20))
                except Conflict:
                    await asyncio.sleep(0.001 * attempt)
            raise AssertionError("never got through")

        applied = await asyncio.gather(*(write(both[n % 2], n) for n in range(20)))
        assert (await both[0].memories.list(of(ANNA), limit=99)).total == 6
        assert sum(a.evicted + len(a.refused) for a in applied) == 14

    async def test_another_process_sees_that_a_memory_was_evicted(self, opened):
        limit = Quota(memories=2)
        here, there = await opened(quota=limit), await opened(quota=limit)
        await store(here.memories, create("tea a", importance=0.1), create("tea b"))
        assert len(await find(there.memories, "tea")) == 2  # its index is in use now
        await store(here.memories, create("tea c"))
        assert await contents(there.memories, "tea") == {"tea b", "tea c"}
        (hit,) = await find(there.memories, "tea", limit=1)
        assert hit.memory.content == "tea c"
