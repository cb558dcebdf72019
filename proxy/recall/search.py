"""Search the memories of a scope: by vector and by words, fused, then judged for relevance.

An embedder that is missing, fails, or does not know the language costs its half of the search, never the
whole. Store errors are the caller's: without a store there is no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from proxy.domain.core import Level, Memory, Ranked, Reason, Scope, Search, with_children
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge, Reading
from proxy.domain.ports import Clock, Embedder, MemoryStore, Snapshot
from proxy.recall.query import MAX_TERMS, Query
from proxy.recall.rank import Candidate, Ranking, fused
from proxy.recall.relevance import HELPS, Threshold, depth, is_doubted, relevant
from proxy.recall.rerank import Reranking
from proxy.telemetry import Seldom

LIST_LENGTH = 16  # of each of the two lists, at least


@dataclass(frozen=True, slots=True)
class Encoded:
    """A query as the models read it. `vector`: None where nothing can be searched by meaning. `reading`: for
    the relevance head; None without a judge."""

    query: Query
    vector: bytes | None
    reading: Reading | None
    level: Level = Level.FULL


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories to look for: one message inside one scope."""

    scope: Scope
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the relevance head decides
    began: float  # when memory's work for the request began, Unix seconds
    least_help: float = HELPS  # of what the judge has read; 0: everything, in its order


@dataclass(frozen=True, slots=True)
class Found:
    """The memories that help with the message, best first, and if there are none, why. `empty`: nothing was
    near at all, the user may have no memories."""

    ranked: Sequence[Ranked]
    reason: Reason | None = None
    level: Level = Level.FULL
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches the memories."""

    memories: MemoryStore
    embedder: Embedder | None
    clock: Clock
    judge: Judge | None = None
    ranking: Ranking = field(default_factory=Ranking)
    least_cosine: float | None = None  # the server's similarity threshold, if it sets one
    shares_space: bool = False  # the judge's vectors are the embedding model's: one pass serves both
    reranking: Reranking | None = None  # a model that reads question and memory together
    seldom: Seldom = field(default_factory=Seldom)  # logs what a search did without

    def begin(self, query: Query) -> None:
        """Start to read the query. A hint: it never fails."""
        if query.text and self.judge is not None:
            self.judge.begin(query.text)
        if query.text and self.embedder is not None and not self.shares_space:
            self.embedder.begin(query.text)

    async def encode(self, query: Query, reading: Reading | None) -> Encoded:
        """Return the query with its vector and what the judge read of its text. `reading`: of the text as the
        user wrote it; a text that a model wrote is read anew."""
        level = Level.UNJUDGED if reading is None else Level.FULL
        if not self.ranking.dense:
            return Encoded(query, None, reading, level)
        vector = None
        if self.shares_space and reading is not None:
            vector = reading.vector
        elif self.embedder is not None and self.embedder.understands(query.text):
            try:
                vector = await self.embedder.embed_query(query.text)
            except EmbeddingFailed:
                self.seldom.warning("memory.embedding_failed")
        if vector is not None and query.imagined:
            vector = await self._pooled(vector, query.imagined)
        return Encoded(query, vector, reading, Level.LEXICAL if vector is None else level)

    async def read(self, text: str) -> Reading | None:
        """Return what the judge reads in a text; None without a judge."""
        if self.judge is None:
            return None
        try:
            return await self.judge.read(text)
        except EmbeddingFailed:
            return None

    async def find(
        self,
        encoded: Encoded,
        wanted: Wanted,
        *,
        snapshot: Snapshot | None = None,
        besides: Sequence[Memory] = (),
    ) -> Found:
        """Return what helps with the query. `besides`: memories that are judged though no list found them.

        Raises StoreUnavailable."""
        level, candidates = encoded.level, self._depth(wanted)
        if encoded.vector is None and not self._looked_up(encoded.query):
            return Found((), Reason.BELOW_THRESHOLD, level)
        ranked = await self.candidates(encoded, wanted, snapshot)
        chosen = ranked[:candidates]
        if besides:
            kept_ids = {c.hit.memory.id for c in chosen} | {m.id for m in besides}
            chosen += [c for c in ranked[len(chosen) :] if c.hit.memory.id in kept_ids]
        threshold = self._threshold(wanted)
        readings = partial(self.memories.readings, wanted.scope)
        judged = await relevant(encoded.reading, chosen, self.judge, threshold, readings)
        if not judged.judged and level is Level.FULL and wanted.threshold is None:
            level = Level.UNJUDGED
        found = judged.ranked
        if self.reranking is not None:
            spent_s = self.clock() - wanted.began
            found = [*await self.reranking.reorder(encoded.query.text, found, spent_s=spent_s)]
        sure = [r for r in found if not (wanted.least_help and is_doubted(r.memory))][: wanted.limit]
        reason = None
        if not sure:
            near = Reason.UNANSWERED if judged.judged else Reason.BELOW_THRESHOLD
            reason = Reason.DOUBTED if found else near
        return Found(sure, reason, level, empty=not ranked)

    async def candidates(
        self, encoded: Encoded, wanted: Wanted, snapshot: Snapshot | None = None
    ) -> list[Candidate]:
        """Return what is near to the query, best first, not judged yet. Raises StoreUnavailable."""
        looked_up = self._looked_up(encoded.query)
        if encoded.vector is None and not looked_up:
            return []
        types = None if wanted.types is None else with_children(wanted.types)
        now, longest = self.clock(), max(LIST_LENGTH, self._depth(wanted))
        search = Search(encoded.vector, looked_up, longest, types, now, vectors=longest)
        hits = None if snapshot is None else snapshot.search(search)
        if hits is None:
            hits = await self.memories.search(wanted.scope, search)
        return fused(hits, self.ranking, project=wanted.scope.project, now=now)

    def _looked_up(self, query: Query) -> tuple[str, ...]:
        return (*query.terms, *query.extra)[:MAX_TERMS] if self.ranking.lexical else ()

    def _depth(self, wanted: Wanted) -> int:
        return depth(max(wanted.limit, self.reranking.top) if self.reranking else wanted.limit)

    def _threshold(self, wanted: Wanted) -> Threshold:
        model = self.embedder.model.similarity_threshold if self.embedder and wanted.least_help else None
        return Threshold(wanted.threshold, self.least_cosine, model, wanted.least_help)

    async def _pooled(self, vector: bytes, imagined: str) -> bytes:
        assert self.embedder is not None
        try:
            (second,) = await self.embedder.embed([imagined])
        except EmbeddingFailed:
            return vector
        return pooled(vector, second, least=self.embedder.model.similarity_threshold)


def pooled(question: bytes, imagined: bytes, *, least: float) -> bytes:
    """Return the unit vector between both, or the question's where their cosine is below `least`: an imagined
    answer that has nothing to do with the question must not lead the search away."""
    first, second = np.frombuffer(question, np.float32), np.frombuffer(imagined, np.float32)
    if float(first @ second) < least:
        return question
    mean = first + second
    return (mean / np.linalg.norm(mean)).astype(np.float32).tobytes()
