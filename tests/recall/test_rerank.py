"""Reranking changes the order and nothing else, within its time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from proxy.domain.core import Hit, MemoryOptions, Ranked
from proxy.domain.errors import RerankFailed
from proxy.recall.explain import search
from proxy.recall.prepare import prepare
from proxy.recall.search import RERANK_STEP, Reranking
from tests.recall.conftest import NOW, SCOPE, Shelf, memory, tools_with, turn
from tests.support.judge import ScriptedJudge


@dataclass
class Oracle:
    """A reranker that prefers one text, hangs after some texts, or fails."""

    answer: str
    hangs_after: int = 1_000
    failing: bool = False
    reads: bool = True
    read: list[str] = field(default_factory=list)

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        if self.failing:
            raise RerankFailed("broken")
        if len(self.read) >= self.hangs_after:
            await asyncio.Event().wait()
        self.read += texts
        return [6.0 if self.answer in text else -6.0 for text in texts]

    def understands(self, text: str) -> bool:
        return self.reads


def ranked(count: int) -> list[Ranked]:
    """Return memories m0, m1 …, the first with the best score."""
    return [Ranked(memory(f"m{i}", f"fact number{i}."), 1 - i / 100, "dense .5") for i in range(count)]


def ids(found: Sequence[Ranked]) -> list[str]:
    return [one.memory.id for one in found]


async def reordered(oracle: Oracle, found: Sequence[Ranked], *, spent_s: float = 0.0) -> Sequence[Ranked]:
    async with asyncio.timeout(20):
        return await Reranking(oracle, deadline_s=0.1).reorder("which?", found, spent_s=spent_s)


async def test_the_model_s_favourite_comes_first_and_the_rest_keeps_its_order():
    found = await reordered(Oracle("number7."), ranked(30))
    assert ids(found) == ["m7", *(f"m{i}" for i in range(30) if i != 7)]
    assert found[0].why == "dense .5, reranked"
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] <= scores[0] <= 1


@pytest.mark.parametrize(
    ("oracle", "spent_s", "read"),
    [
        (Oracle("number7.", hangs_after=0), 0.0, 0),
        (Oracle("number7.", failing=True), 0.0, 0),
        (Oracle("number7.", reads=False), 0.0, 0),  # cannot read the question
        (Oracle("number7."), 0.2, 0),  # no time left
        (Oracle("number29."), 0.0, 20),  # only the first are read
    ],
)
async def test_a_model_that_cannot_help_leaves_the_order(oracle, spent_s, read):
    assert ids(await reordered(oracle, ranked(30), spent_s=spent_s)) == ids(ranked(30))
    assert len(oracle.read) == read


async def test_after_the_deadline_what_was_read_is_in_order_and_the_rest_stays():
    oracle = Oracle("number7.", hangs_after=2 * RERANK_STEP)
    found = await reordered(oracle, ranked(20))
    assert ids(found)[0] == "m7"
    assert ids(found)[2 * RERANK_STEP :] == [f"m{i}" for i in range(2 * RERANK_STEP, 20)]


# ---------------------------------------------------------------- in the read path
HITS = [Hit(memory(f"m{i}", f"User keeps number{i} in drawer{i}."), 0.6 - i / 100, 0.0) for i in range(16)]


def tools(**searcher):
    return tools_with(Shelf(HITS), ScriptedJudge(), **searcher)


async def test_the_read_path_reads_deeper_than_it_shows():
    options = MemoryOptions(read=True, write=False, types=None, limit=3, threshold=None)
    reranking = Reranking(Oracle("number12 "), deadline_s=5)
    asked = turn("Where do I keep it all the time?", options=options)
    assert (await prepare(asked, tools())).memory_ids == ("m0", "m1", "m2")
    assert (await prepare(asked, tools(reranking=reranking))).memory_ids == ("m12", "m0", "m1")
    late = Reranking(Oracle("number12 "), deadline_s=0.15)
    begun = turn("Where do I keep it?", at=NOW - 1, options=options)
    assert (await prepare(begun, tools(reranking=late))).memory_ids == ("m0", "m1", "m2")
    assert ids(await search(SCOPE, "where?", tools(reranking=reranking), limit=2)) == ["m12", "m0"]
