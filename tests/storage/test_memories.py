"""MemoryStore: searching, changing, listing and forgetting."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.changes import Applied, Confirm, Create, Edit, Event
from proxy.domain.core import Evidence, MemoryFilter, Scope, Search, Stamp
from proxy.domain.errors import NotFound
from proxy.storage.sql import memories as sql_memories
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    contents,
    create,
    find,
    forgotten,
    memory,
    of,
    store,
    supersede,
    vector,
)

ENGINES = ("sqlite", "postgres", "indexed", "behind")


class TestSearch:
    async def test_a_memory_is_found_by_its_words_and_by_its_vector(self, memories):
        await store(
            memories, create("Allergic to peanuts", vec=vector(1)), create("Likes jazz", vec=vector(0, 1))
        )
        (by_words,) = await find(memories, "peanuts")
        assert by_words.memory.content == "Allergic to peanuts"
        assert (by_words.cosine, by_words.bm25 > 0) == (None, True)
        by_vector = {h.memory.content: h for h in await find(memories, vec=vector(1, 1))}
        assert by_vector["Likes jazz"].cosine == pytest.approx(0.7071, abs=1e-3)
        assert by_vector["Likes jazz"].bm25 == 0

    async def test_a_reading_is_stored_with_its_memory_and_changes_with_its_content(self, memories):
        one, other = create("Owns a horse", vec=vector(1)), create("Likes jazz", vec=vector(0, 1))
        await store(memories, replace(one, reading=b"horse"), other)
        ids = [other.memory.id, one.memory.id, "none"]
        assert list(await memories.readings(ANNA, ids)) == [None, b"horse", None]
        assert list(await memories.readings(BEN, ids)) == [None] * 3
        pony = replace(one.memory, content="Owns a pony")
        await store(memories, Edit(replace(one.memory, importance=0.9), None, b"nothing new"))
        assert list(await memories.readings(ANNA, ids))[1] == b"horse"
        await store(memories, Edit(pony, vector(1), b"pony"))
        assert list(await memories.readings(ANNA, ids))[1] == b"pony"
        await store(memories, Edit(replace(pony, content="Owns a mule"), None))
        assert list(await memories.readings(ANNA, ids))[1] is None

    async def test_a_search_sees_what_came_after_a_snapshot_was_begun(self, memories):
        begun = [memories.snapshot(ANNA)]  # never seen
        await store(memories, create("Has a boat"), create("Sails a boat", id="gone"))
        begun.append(memories.snapshot(ANNA))
        await forgotten(memories, of(ANNA), "gone")
        assert await contents(memories, "boat") == {"Has a boat"}
        *_, last = await asyncio.gather(*begun)
        hits = last and last.search(Search(None, ("boat",), now=NOW))
        assert hits is None or {hit.memory.content for hit in hits} == {"Has a boat"}

    async def test_a_snapshot_says_what_a_search_says(self, memories):
        assert await memories.snapshot(ANNA) is None  # never seen
        await store(
            memories,
            create("Has a boat", vec=vector(1)),
            create("Sails a boat", APOLLO, type="episodic"),
            create("Owns a horse", vec=vector(0, 1)),
            create("Had a boat", id="gone"),
        )
        for scope in (APOLLO, replace(ANNA, project="another")):
            few = await memories.snapshot(scope)
            for types in (None, frozenset({"semantic"})):
                wanted = Search(vector(1), ("boat",), types=types, now=NOW)
                hits = few and few.search(wanted)
                assert hits is None or hits == await memories.search(scope, wanted)
        await forgotten(memories, of(ANNA), "gone")
        assert few is None or few.search(wanted) is None

    async def test_bm25_does_not_depend_on_other_users_or_on_what_the_filter_leaves_out(self, memories):
        await store(memories, create("green tea"), create("black coffee"))
        (before,) = await find(memories, "tea")
        await store(memories, *(create(f"tea {n}", BEN) for n in range(5)), scope=BEN)
        await store(memories, *(create(f"tea {n}", type="episodic") for n in range(5)))
        (after,) = await find(memories, "tea", types=frozenset({"semantic"}))
        assert after.bm25 == pytest.approx(before.bm25)

    async def test_another_user_tenant_or_project_is_never_seen(self, memories):
        zeus = Scope("acme", "anna", "zeus")
        await store(
            memories,
            create("plan a", APOLLO, vec=vector(1)),
            create("plan b", zeus),
            create("plan c", id="c"),
        )
        assert await contents(memories, "plan", APOLLO) == {"plan a", "plan c"}
        assert await contents(memories, "plan", ANNA) == {"plan a", "plan b", "plan c"}
        for stranger in (BEN, Scope("other", "anna")):
            assert await contents(memories, "plan", stranger, vec=vector(1)) == set()
            assert (await memories.list(of(stranger), limit=10)).total == 0
            assert await memories.get(of(stranger), "c") is None
            assert await memories.history(of(stranger), ["c"]) == {}
        assert await memories.get(MemoryFilter(tenant="acme", user=None), "c") is not None
        assert await memories.get(MemoryFilter(tenant="other", user=None), "c") is None

    async def test_the_past_is_not_returned(self, memories):
        await store(
            memories,
            create("cat named Tom", expires_at=NOW + 10),
            create("cat named Kit", archived=True),
            create("cat named Old", id="old"),
        )
        assert await contents(memories, "cat") == {"cat named Tom", "cat named Old"}
        await store(memories, supersede("old", "cat named New"))
        assert await contents(memories, "cat") == {"cat named Tom", "cat named New"}
        assert await contents(memories, "cat", now=NOW + 10) == {"cat named New"}


class TestChange:
    ENGINES = ("sqlite", "postgres")

    async def test_a_memory_comes_back_as_it_was_stored(self, memories):
        stored = memory(
            "Zürich 東京 👋 'quoted' %_", APOLLO, id="m", type="preference", source="extracted",
            valid_to=NOW + 5, expires_at=NOW + 9, importance=0.7, weight=2.0, confidence=0.8,
            tags=("work", "日本"), evidence=(Evidence("s", "e", "the words"),), access_count=3,
            last_accessed=NOW,
        )  # fmt: skip
        await store(memories, Create(stored, None))
        assert await memories.get(of(ANNA), "m") == stored

    async def test_the_stamp_rises_with_every_change_and_only_then(self, memories):
        assert await memories.stamp(ANNA) == Stamp(0, 0)
        await store(memories, create("tea", id="a"))
        first = await memories.stamp(ANNA)
        assert first == Stamp(0, 1)
        await store(memories, create("Tea."))
        await memories.touch(ANNA, ["a"], NOW)
        assert await memories.stamp(ANNA) == first
        await store(memories, Confirm("a", NOW, 0.9))
        assert await memories.stamp(ANNA) == Stamp(0, 2)
        assert await memories.stamp(BEN) == Stamp(0, 0)

    async def test_one_of_two_concurrent_writers_must_read_again(self, memories):
        stamp = await memories.stamp(ANNA)
        outcomes = await asyncio.gather(
            *(memories.apply(ANNA, [create(f"fact {n}")], expect=stamp) for n in range(5)),
            return_exceptions=True,
        )
        assert sorted(type(o).__name__ for o in outcomes) == ["Applied"] + ["Conflict"] * 4

    async def test_the_same_statement_is_stored_once_per_type_and_project_and_who_stores_learns_it(
        self, memories
    ):
        applied = await store(
            memories, create("Likes  TEA", id="a"), create("likes tea.", id="b"), create("milk", id="c"),
            create("likes tea", id="d", type="episodic"), create("likes tea", APOLLO, id="e"),
            create("other", id="c"), supersede("a", "Milk", id="f"),
        )  # fmt: skip
        assert applied == Applied(dropped=("b", "c", "f"))
        current = (await memories.list(of(ANNA), limit=9)).items
        assert {m.id for m in current} == {"c", "d", "e"}  # "a" gave way to "c"

    async def test_a_memory_from_outside_takes_no_id_that_another_user_has(self, memories):
        history = (Event(1.5, "imported", "api", ""),)
        await store(memories, create("ben's", BEN, id="x"), create("too", BEN, id="y"), scope=BEN)
        theirs = [
            Create(memory("older", id="x", superseded_by="y"), None, history),
            Create(memory("newer", id="y"), None, history),
            Create(memory("free", id="z"), None, history),
        ]
        await store(memories, *theirs)
        newest, new, old = (await memories.list(of(ANNA, include_inactive=True), limit=9)).items
        assert (newest.id, old.superseded_by) == ("z", new.id)
        assert {new.id, old.id}.isdisjoint({"x", "y"})
        assert (await store(memories, *theirs)).dropped == ("x", "y", "z")
        stranger = Scope("other", "anna")
        await store(memories, Create(memory("older", stranger, id="x"), None, history), scope=stranger)
        assert await memories.get(of(stranger), "x") is not None

    async def test_superseding_closes_the_old_one_and_keeps_it_readable(self, memories):
        await store(memories, create("budget 10k", id="a", source="explicit"))
        await store(memories, supersede("a", "budget 12k", id="b", valid_from=NOW + 5, updated_at=NOW + 5))
        old = await memories.get(of(ANNA), "a")
        assert (old.superseded_by, old.valid_to) == ("b", NOW + 5)
        assert [(e.action, e.by) for e in (await memories.history(of(ANNA), ["a", "b"]))["a"]] == [
            ("created", "explicit"), ("superseded", "b"),
        ]  # fmt: skip

    async def test_confirming_keeps_the_better_confidence_and_adds_the_evidence(self, memories):
        await store(memories, create("vegan", id="a", confidence=0.7, evidence=(Evidence("s", "e1"),)))
        again = (Evidence("s", "e2", "still vegan"),)
        await store(memories, Confirm("a", NOW + 1, 0.6, again), Confirm("a", NOW, 0.9, again))
        found = await memories.get(of(ANNA), "a")
        assert (found.confidence, found.updated_at) == (0.9, NOW + 1)
        assert found.evidence == (Evidence("s", "e1"), *again)

    @pytest.mark.parametrize(
        ("expires_at", "said", "then"),
        [(10, 90, 90), (10, 5, 10), (10, None, 10), (None, 90, None), (None, None, None)],
    )
    async def test_confirming_moves_the_end_of_what_expires_and_only_to_later(
        self, memories, expires_at, said, then
    ):
        def at(seconds):
            return None if seconds is None else NOW + seconds

        await store(memories, create("bay seven", id="a", vec=vector(1), expires_at=at(expires_at)))
        assert await contents(memories, "bay", vec=vector(1)) == {"bay seven"}
        await store(memories, Confirm("a", NOW + 1, 0.6, expires_at=at(said)))
        assert (await memories.get(of(ANNA), "a")).expires_at == at(then)
        for words, vec in (("bay", None), ("", vector(1))):
            for now in (5, 50, 500):
                lives = {"bay seven"} if then is None or then > now else set()
                assert await contents(memories, words, vec=vec, now=NOW + now) == lives, (words, now)
        page = await memories.list(replace(of(ANNA), now=NOW + 50), limit=9)
        assert len(page.items) == page.total == (then in (90, None))
        deleted = await memories.expire(NOW + 1_000_000)
        assert deleted == (then is not None)

    async def test_touching_counts_only_ones_own(self, memories):
        await store(memories, create("tea", id="a"))
        await memories.touch(ANNA, ["a", "absent"], NOW + 1)
        await memories.touch(BEN, ["a"], NOW + 2)
        assert (await memories.get(of(ANNA), "a")).last_accessed == NOW + 1
        assert (await find(memories, "tea"))[0].memory.access_count == 1
        with pytest.raises(ValueError, match="another user"):
            await store(memories, create("mine", BEN), scope=ANNA)


class TestList:
    ENGINES = ("sqlite", "postgres")

    @pytest.mark.parametrize("oldest_first", [True, False])
    async def test_pages_of_a_whole_tenant_hold_each_users_in_order_without_gaps(
        self, memories, oldest_first, monkeypatch
    ):
        monkeypatch.setattr(sql_memories, "_SLICE", 3)  # rows are read in slices
        users = [Scope("acme", name) for name in ("zoe", "anna", "東京", "ben")]
        for n in range(5):  # as an import brings them, the latest may be the oldest by its time
            for user in (*users, Scope("acme2", "anna"), Scope("acm", "zoe")):
                name = f"{user.tenant}-{user.user}-{n}"
                await store(memories, create(name, user, id=name, created_at=NOW - n), scope=user)
            archived = create("not current", users[n % 2], archived=True)
            await store(memories, archived, scope=archived.memory.scope)
        where, seen, after = MemoryFilter(tenant="acme", user=None, now=NOW), [], None
        while True:
            page = await memories.list(where, limit=3, after=after, oldest_first=oldest_first)
            assert page.total == 20
            seen += page.items
            if not page.has_more:
                break
            after = seen[-1].id
        assert len(seen) == 20
        for cursor in ("nothing", "acme-ben-1"):
            with pytest.raises(NotFound):
                await memories.list(of(ANNA), limit=2, after=cursor)
        order = range(5) if oldest_first else range(4, -1, -1)
        for user in users:
            assert [m.id for m in seen if m.scope == user] == [f"acme-{user.user}-{n}" for n in order]

    async def test_text_is_looked_for_literally_and_without_case(self, memories):
        await store(memories, create("Zürich 100% sure"), create("100 ways"))
        for text, count in (("ZÜRI", 1), ("100%", 1), ("%", 1), ("_", 0), ("100", 2)):
            assert len((await memories.list(of(ANNA, text=text), limit=9)).items) == count, text

    async def test_filters_by_type_with_its_kinds_and_by_exactly_one_project(self, memories):
        await store(
            memories, create("a"), create("b", type="preference"), create("c", APOLLO, type="episodic")
        )

        async def listed(where):
            return {m.content for m in (await memories.list(where, limit=9)).items}

        assert await listed(of(ANNA, type="semantic")) == {"a", "b"}
        assert await listed(of(ANNA, type="preference")) == {"b"}
        assert await listed(of(APOLLO)) == {"c"}


@pytest.mark.usefixtures("mode")
class TestForget:
    async def test_forgetting_without_a_user_or_an_id_is_refused(self, memories):
        with pytest.raises(ValueError, match="user"):
            await forgotten(memories, MemoryFilter(tenant="acme", user=None))
