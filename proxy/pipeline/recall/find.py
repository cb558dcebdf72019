"""The search as a whole, from a question to the memories that belong to it, best first: retrieve, rank, and
open or close the gate.

A message that asks several things is searched as a whole and part by part, side by side; each part passes the
gate by itself, and each gets its best memories in.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.domain import DEFAULT_TIMEZONE, Hit, Level, Ranked, Scope
from proxy.gloss import question_gloss
from proxy.observe import Seldom
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.recall.aims import aims_of
from proxy.pipeline.recall.answerable import NEAREST, answer_odds, is_readable
from proxy.pipeline.recall.attributes import untold
from proxy.pipeline.recall.beside import asked_part
from proxy.pipeline.recall.gate import gate_for
from proxy.pipeline.recall.named import Lack, missing
from proxy.pipeline.recall.persons import stranger
from proxy.pipeline.recall.rank import Asked, Ranking, rank
from proxy.pipeline.recall.rerank import Reranking
from proxy.pipeline.recall.retrieve import retrieve
from proxy.pipeline.recall.rewrite import Query, as_it_is
from proxy.pipeline.recall.several import merged
from proxy.pipeline.recall.times import named_times
from proxy.ports import Answerability, Clock, Embedder, MemoryStore, Snapshot
from proxy.reasons import Reason
from proxy.timezones import local


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories to look for: one message inside one scope."""

    scope: Scope
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the embedding model's own
    expected: Expectation = Expectation.STRONG  # by the form of the question
    # The text whose things of one name, and persons, must be in memory (see `named`, `persons`); "": none.
    named: str = ""
    typed: str = ""  # the text as typed that what is found must answer (see `answerable`); "": none
    timezone: str = DEFAULT_TIMEZONE  # in which "yesterday" is understood


@dataclass(frozen=True, slots=True)
class Finding:
    """The memories that belong to the message, best first, and where there are none, why."""

    ranked: Sequence[Ranked]
    reason: Reason | None = None
    level: Level = Level.FULL
    empty: bool = False  # nothing was near at all: the user may have no memories


@dataclass(frozen=True, slots=True)
class Finder:
    """Searches the memories."""

    memories: MemoryStore
    embedder: Embedder | None
    ranking: Ranking
    clock: Clock
    reranking: Reranking | None = None
    answerability: Answerability | None = None
    seldom: Seldom = field(default_factory=Seldom)  # logs what a search did without

    async def find(
        self,
        query: Query,
        wanted: Wanted,
        *,
        began: float,
        snapshot: Awaitable[Snapshot | None] | None = None,
    ) -> Finding:
        """Return what belongs to the query. `began`: when memory's work for the request did. `snapshot`: of
        the scope, where its reading has begun. Raises StoreUnavailable."""
        if self.embedder is not None and self.ranking.dense:
            self.embedder.begin(query.text)
        # Before anything is made of the question: while this waits, the model gets to run.
        few = await (snapshot or self.memories.snapshot(wanted.scope))
        parts = [as_it_is(part) for part in query.parts]
        if self.reranking is not None and not parts:
            return await self._reranked(query, wanted, self.reranking, few, began=began)
        now = self.clock()
        if not parts:
            return await self._one(query, wanted, few, now=now)
        named = [replace(wanted, named=wanted.named and part.text, typed="") for part in parts]
        whole, *each = await asyncio.gather(
            self._one(query, wanted, few, now=now),
            *(self._one(part, its, few, now=now) for part, its in zip(parts, named, strict=True)),
        )
        found = [one.ranked for one in each if one.reason is not Reason.NOT_IN_MEMORY]
        # Where memory has nothing under a part's name, what the whole found may be near that part alone.
        ranked = merged(whole.ranked if len(found) == len(each) else (), found, wanted.limit)
        reason = None if ranked else next((one.reason for one in (*each, whole) if one.reason), None)
        return replace(whole, ranked=ranked, reason=reason)

    async def _reranked(
        self, query: Query, wanted: Wanted, reranking: Reranking, few: Snapshot | None, *, began: float
    ) -> Finding:
        deeper = replace(wanted, limit=max(wanted.limit, reranking.top))
        found = await self._one(query, deeper, few, now=self.clock())
        spent_s = self.clock() - began
        ranked = await reranking.reorder(query.text, found.ranked, spent_s=spent_s)
        return replace(found, ranked=ranked[: wanted.limit])

    async def _one(self, query: Query, wanted: Wanted, few: Snapshot | None, *, now: float) -> Finding:
        # While the model reads the question:
        lacks, glossed = _lacks_of(wanted.named), question_gloss(query.text).text != query.text
        aims, at = aims_of(query.text), local(now, wanted.timezone)
        times = (*named_times(query.text, at), *named_times(query.time, at))
        looked_up = (*query.terms, *query.extra) if self.ranking.lexical else ()
        embedder = self.embedder if self.ranking.dense else None
        reader = self.answerability if is_readable(query, wanted.typed) else None
        found = await retrieve(
            replace(query, terms=looked_up),
            wanted.scope,
            wanted.types,
            now=now,
            memories=self.memories,
            embedder=embedder,
            few=few,
            vectors=NEAREST if reader else 0,
        )
        if embedder is not None and found.level is Level.LEXICAL and embedder.understands(query.text):
            self.seldom.warning("memory.embedding_failed")
        gate = partial(
            gate_for,
            dense=found.dense,
            model_threshold=self.embedder.model.similarity_threshold if self.embedder else 0.0,
            asked=wanted.threshold,
        )
        ranked_by = partial(
            rank,
            found.hits,
            Asked(query.terms, times, aims, wanted.scope.project, glossed, found.subjects),
            limit=wanted.limit,
            now=now,
            ranking=self.ranking,
            links=found.links,
        )
        # "My usual way" speaks of what was said before, whatever else is asked, and so does the name of one
        # of whom memory is told.
        expected = Expectation.STRONG if aims or found.subjects else wanted.expected
        ranked = ranked_by(gate(expected=expected))
        reason = _reason(found.hits, ranked, lacks)
        # What a link leads to answers only together with the memory that it leads from.
        if reader is not None and found.question is not None and not found.links:
            odds = partial(
                answer_odds, reader, found.question, query, found.hits, others=found.others, glossed=glossed
            )
            if reason is None and (await odds(ranked) or 0.0) < 0:
                reason = Reason.UNANSWERED
            if reason is Reason.BELOW_THRESHOLD and expected is Expectation.UNSAID:
                ranked = ranked_by(gate(expected=Expectation.SOME))
                reason = _reason(found.hits, ranked, lacks)
                if reason is None and (await odds(ranked) or 0.0) < _SURELY:
                    reason = Reason.BELOW_THRESHOLD
        return Finding(() if reason else ranked, reason, found.level, empty=not found.hits)


_RULES = (missing, stranger, untold)
# Log-odds above the bar that show what is a little too far from a question whose form says nothing.
_SURELY = 1.5


def _lacks_of(named: str) -> Sequence[Lack]:
    """Return what says of memories that they lack what the text asks for; of most texts nothing does."""
    return [partial(_both, rule, lack, named) for rule in _RULES if (lack := rule(named))] if named else []


def _both(rule: Callable[[str], Lack | None], whole: Lack, named: str, contents: Sequence[str]) -> bool:
    """True if they lack what the text asks for, and not only what it mentions beside (the rarer look)."""
    return whole(contents) and (asked := rule(asked_part(named))) is not None and asked(contents)


def _reason(hits: Sequence[Hit], ranked: Sequence[Ranked], lacks: Sequence[Lack]) -> Reason | None:
    """Return why nothing of this is shown, None if it is."""
    if not ranked:
        return Reason.BELOW_THRESHOLD
    contents = [hit.memory.content for hit in hits] if lacks else []
    return Reason.NOT_IN_MEMORY if any(lack(contents) for lack in lacks) else None
