"""Consolidated and reflective memories, contradictions, and what a forget does to them."""

from dataclasses import replace

import pytest

from proxy.domain.changes import Close, Consolidate, Create, Edit, Flag, Review, Settle, Undo
from proxy.domain.core import Quota
from proxy.domain.errors import NotFound
from tests.storage.making import ANNA, BEN, NOW, contents, create, memory, of, store, supersede

ENGINES = ("sqlite", "postgres")


def merged(ids, content, *, id="c", quotes=(), **fields):
    made = memory(content, id=id, source="consolidated", sources=(*ids, *quotes), **fields)
    return Consolidate(tuple(ids), made, None)


def inferred(ids, content, *, id="r"):
    made = memory(content, id=id, type="reflective", source="reflection", sources=tuple(ids))
    return Create(made, None)


async def budget(memories):
    """Three facts, the first of which was superseded before, and their summary."""
    await store(memories, create("budget 10k", id="a"), supersede("a", "budget 11k", id="b"))
    await store(memories, create("added 2k", id="x"), create("final 12k", id="y"))
    await store(memories, merged("bxy", "budget 12k, from 10k", quotes="a"))


async def current(memories, scope=ANNA):
    return {m.id for m in (await memories.list(of(scope), limit=99)).items}


class TestConsolidate:
    async def test_a_summary_takes_the_place_of_its_sources_once_and_while_all_are_current(self, memories):
        await budget(memories)
        assert await contents(memories, "budget added final") == {"budget 12k, from 10k"}
        source = await memories.get(of(ANNA), "y")
        assert (source.superseded_by, source.content) == ("c", "final 12k")
        assert (await store(memories, merged("bxy", "again"))).dropped == ("c",)
        await store(memories, create("tea", id="t"), create("twin", id="w"))
        assert (await store(memories, merged("tx", "tea and 2k", id="d"))).dropped == ("d",)
        assert (await store(memories, merged("t", "twin", id="e"))).dropped == ("e",)
        assert await current(memories) == {"c", "t", "w"}

    async def test_undo_restores_what_was_superseded_unless_something_followed(self, memories, stores):
        await budget(memories)
        with pytest.raises(NotFound):
            await store(memories, Undo("b", NOW))
        await store(memories, Undo("c", NOW + 5))
        assert await contents(memories, "budget added final 12k") == {"budget 11k", "added 2k", "final 12k"}
        assert await memories.get(of(ANNA), "c") is None
        assert (await memories.history(of(ANNA), ["y"]))["y"][-1].action == "restored"
        assert await stores.derivation.undone(ANNA, ["a", "b", "y"]) == {"b", "y"}
        again = merged("bxy", "budget 12k", id="again")
        await store(memories, again, supersede("again", "budget 15k", id="d"), Undo("again", NOW))
        assert await current(memories) == {"d"}
        assert (await memories.get(of(ANNA), "y")).superseded_by == "d"

    async def test_a_full_memory_under_refuse_stays_as_it_is(self, engine):
        full = await engine.open(quota=Quota(memories=2, evict=False))
        await store(full.memories, create("one", id="a"), create("two", id="b"))
        assert (await store(full.memories, merged("ab", "one, two"))).refused == ("c",)
        assert await current(full.memories) == {"a", "b"}
        await full.close()


@pytest.mark.usefixtures("mode")
class TestForget:
    @pytest.mark.parametrize(
        ("id_", "left"),
        [
            ("x", {"b", "y", "h", "s", "t"}),  # a source: with all that was made of it
            ("a", {"b", "x", "y", "h", "s", "t"}),  # an older value that the summary quotes
            ("d", {"s", "t"}),  # a summary: with its sources
            ("s", {"d", "t"}),  # an inference: without them
        ],
    )
    async def test_what_was_made_of_a_memory_is_deleted_with_it_and_nothing_else(self, memories, id_, left):
        await budget(memories)
        await store(memories, create("hotel booked", id="h"), create("tea", id="t"))
        await store(memories, inferred("c", "plans trips carefully"), inferred("t", "likes tea", id="s"))
        await store(memories, merged("ch", "trip: 12k, hotel booked", id="d"))
        await store(memories, create("tea", BEN, id=id_), scope=BEN)
        await memories.forget(of(ANNA), id_, by="test")
        assert await current(memories) - {"r"} == left
        assert ("r" in await current(memories)) == (id_ == "s")
        assert await current(memories, BEN) == {id_}


class TestContradictions:
    async def test_a_flag_names_the_newer_until_it_is_settled_or_either_is_changed(self, memories, stores):
        await store(memories, *(create(f"fact {n}", id=n) for n in "abcdef"))
        flag = Flag("a", "b", 0.6, NOW)
        await store(memories, flag)
        await store(memories, flag)
        (found,) = await stores.derivation.contradictions(ANNA, limit=9)
        assert (found.older.id, found.newer.id, found.score) == ("a", "b", 0.6)
        assert (await memories.get(of(ANNA), "a")).contradicted_by == "b"
        assert await stores.derivation.contradiction(BEN, found.id) is None
        await store(memories, Settle(found.id), Flag("c", "d", 0.6, NOW), Flag("e", "f", 0.6, NOW))
        await store(memories, Flag("a", "b", 0.6, NOW), Close("a", "b", NOW), Close("b", "a", NOW))
        assert (await memories.get(of(ANNA), "a")).superseded_by == "b"
        assert (await memories.get(of(ANNA), "b")).superseded_by is None
        await memories.forget(of(ANNA), "c", by="test")
        await store(memories, Edit(replace(await memories.get(of(ANNA), "f"), content="other"), None))
        assert await stores.derivation.contradictions(ANNA, limit=9) == []


class TestReviews:
    async def test_a_memory_is_due_until_it_is_reviewed_and_again_once_it_is_rewritten(
        self, memories, stores
    ):
        due = stores.derivation.due
        await store(memories, *(create(f"fact {n}", id=n) for n in "abc"))
        first = await due(ANNA, "step", limit=2, now=NOW)
        assert [m.id for m in first.memories] == ["a", "b"]
        before = await memories.stamp(ANNA)
        await store(memories, Review("step", ("a", "b"), NOW, first.upto, batch="1"))
        assert await memories.stamp(ANNA) == before
        rest = await due(ANNA, "step", limit=9, now=NOW)
        assert [m.id for m in rest.memories] == ["c"]
        await store(memories, Review("step", ("c",), NOW, rest.upto))
        assert not (await due(ANNA, "step", limit=9, now=NOW)).memories
        await store(memories, Edit(replace(await memories.get(of(ANNA), "a"), content="other"), None))
        assert [m.id for m in (await due(ANNA, "step", limit=9, now=NOW)).memories] == ["a"]
        assert len((await due(ANNA, "another", limit=9, now=NOW)).memories) == 3
        assert await stores.derivation.batches(ANNA, "step", NOW - 1) == 1
        assert await stores.derivation.batches(ANNA, "step", NOW) == 0
