"""Search the memories of a scope, by vector and by words, and read the user's profile.

An embedder that is missing, fails, or does not know the language costs its half of the search, never the
whole. Store errors are raised: without a store there is no memory.

The profile is what applies to every conversation. A rule says how to answer (language, tone, form of
address) and is always offered. A trait (diet, health, accessibility) is offered if the message may concern
the user's life. The judge tells them apart by the memory's vector. The store classifies a user's memories
when they change, so that a request pays nothing for it; without vectors in memory, the user's preferences
are classified here.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import numpy as np

from proxy.domain.core import (
    Level,
    Memory,
    MemoryFilter,
    MemoryOptions,
    Ranked,
    Reason,
    Scope,
    Search,
    with_children,
)
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge, Reading
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Clock, Embedder, MemoryStore, ProfileKind, Snapshot
from proxy.recall.query import MAX_TERMS, SearchQuery
from proxy.recall.rank import (
    HELPS,
    Ranking,
    Reranking,
    ScoredHit,
    Threshold,
    depth,
    fused,
    is_doubted,
    relevant,
)
from proxy.telemetry import ThrottledLog

LIST_LENGTH = 16  # of each of the two lists, at least
PROFILE_HOLDS = 0.5  # the operating point of the calibrated head
_LISTED_PREFERENCES = 100  # from a store without vectors in memory
_LISTED_TTL_S = 600.0
_LISTED_USERS = 1024

ProfileMemories = Sequence[tuple[Memory, ProfileKind]]
"""The user's memories that apply to every conversation, the latest first."""


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query as the models read it. `vector`: None if it cannot be searched by meaning. `reading`: for the
    relevance head; None without a judge."""

    query: SearchQuery
    vector: bytes | None
    reading: Reading | None
    level: Level = Level.FULL


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search for one message inside one scope."""

    scope: Scope
    types: tuple[str, ...] | None
    limit: int
    threshold: float | None  # None: the relevance head decides
    began: float  # when memory's work for the request began, Unix seconds
    least_help: float = HELPS  # what the judge must give; 0: everything, in its order


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The memories that help with the message, best first, or why there are none. `empty`: nothing was near,
    the user may have no memories. The rest is for an explanation: the `candidates`, what the judge gave each,
    and all that are helpful, before the limit."""

    ranked: Sequence[Ranked]
    reason: Reason | None = None
    level: Level = Level.FULL
    empty: bool = False
    candidates: Sequence[ScoredHit] = ()
    helps: Mapping[str, float] = field(default_factory=dict)
    helping: Sequence[Ranked] = ()


@dataclass(frozen=True, slots=True)
class ProfileSorter:
    """Classifies memories by their vectors: a ports.SortProfile."""

    judge: Judge

    def __call__(self, vectors: Sequence[bytes]) -> list[ProfileKind]:
        """Return for each vector whether it is a rule, a trait or neither. If the judge fails, none is."""
        try:
            scores = self.judge.profile(vectors)
        except EmbeddingFailed:
            return [""] * len(vectors)
        return [
            "rule" if s.rule >= PROFILE_HOLDS else "trait" if s.trait >= PROFILE_HOLDS else "" for s in scores
        ]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches the memories, and reads the profile."""

    memories: MemoryStore
    embedder: Embedder | None
    clock: Clock
    judge: Judge | None = None
    ranking: Ranking = field(default_factory=Ranking)
    least_cosine: float | None = None  # the server's similarity threshold, if set
    shares_space: bool = False  # the judge's vectors are the embedding model's: one pass serves both
    reranking: Reranking | None = None
    seldom: ThrottledLog = field(default_factory=ThrottledLog)  # logs failures of the embedder
    _listed: TTLCache[bytes, ProfileMemories] = field(
        default_factory=lambda: TTLCache(_LISTED_USERS, ttl_s=_LISTED_TTL_S)
    )

    def begin(self, query: SearchQuery) -> None:
        """Start to read the query. A hint: it never fails."""
        if query.text and self.judge is not None:
            self.judge.begin(query.text)
        if query.text and self.embedder is not None and not self.shares_space:
            self.embedder.begin(query.text)

    async def encode(self, query: SearchQuery, reading: Reading | None) -> EncodedQuery:
        """Return the query with its vector. `reading`: what the judge read of its text."""
        level = Level.UNJUDGED if reading is None else Level.FULL
        if not self.ranking.dense:
            return EncodedQuery(query, None, reading, level)
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
        return EncodedQuery(query, vector, reading, Level.LEXICAL if vector is None else level)

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
        encoded: EncodedQuery,
        wanted: SearchRequest,
        *,
        snapshot: Snapshot | None = None,
        also_judge: Sequence[Memory] = (),
    ) -> SearchResult:
        """Return what helps with the query. `also_judge`: memories to judge even if they are not among the
        best candidates.

        Raises StoreUnavailable."""
        level, candidates = encoded.level, self._depth(wanted)
        if encoded.vector is None and not self._looked_up(encoded.query):
            return SearchResult((), Reason.BELOW_THRESHOLD, level)
        ranked = await self.candidates(encoded, wanted, snapshot)
        chosen = ranked[:candidates]
        if also_judge:
            ids = {c.hit.memory.id for c in chosen} | {m.id for m in also_judge}
            chosen += [c for c in ranked[len(chosen) :] if c.hit.memory.id in ids]
        readings = partial(self.memories.readings, wanted.scope)
        judged = await relevant(encoded.reading, chosen, self.judge, self._threshold(wanted), readings)
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
        return SearchResult(sure, reason, level, not ranked, chosen, judged.helps, found)

    async def candidates(
        self, encoded: EncodedQuery, wanted: SearchRequest, snapshot: Snapshot | None = None
    ) -> list[ScoredHit]:
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

    def snapshot(self, scope: Scope) -> Awaitable[Snapshot | None]:
        """Begin to read the scope's memories (see MemoryStore.snapshot)."""
        return self.memories.snapshot(scope, self._sorter)

    async def profile(
        self, scope: Scope, snapshot: Snapshot | None, options: MemoryOptions
    ) -> ProfileMemories:
        """Return the profile that the request may see. Raises StoreUnavailable."""
        if self._sorter is None:
            return ()
        profile = snapshot.profile if snapshot is not None else await self._listed_profile(scope)
        now, types = self.clock(), None if options.types is None else with_children(options.types)
        return [
            (memory, kind)
            for memory, kind in profile
            if memory.is_current(now)
            and (types is None or memory.type in types)
            and memory.scope.project in (None, scope.project or memory.scope.project)
            and not is_doubted(memory)
        ]

    @property
    def _sorter(self) -> ProfileSorter | None:
        return None if self.judge is None else ProfileSorter(self.judge)

    async def _listed_profile(self, scope: Scope) -> ProfileMemories:
        """Return the profile from the latest preferences, if the store has no vectors in memory."""
        if self.embedder is None or self._sorter is None:
            return ()
        stamp = await self.memories.stamp(scope)
        key = blake2b(repr((scope.tenant, scope.user, stamp)).encode("utf-8", "surrogatepass")).digest()
        if (known := self._listed.get(key)) is not None:
            return known
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, type="preference", now=self.clock())
        listed = (await self.memories.list(where, limit=_LISTED_PREFERENCES, total=False)).items
        try:
            vectors = await self.embedder.embed([m.content for m in listed]) if listed else []
        except EmbeddingFailed:
            return ()
        kinds = self._sorter(vectors)
        profile: ProfileMemories = [(m, kind) for m, kind in zip(listed, kinds, strict=True) if kind]
        self._listed.put(key, profile)
        return profile

    def _looked_up(self, query: SearchQuery) -> tuple[str, ...]:
        return (*query.terms, *query.extra)[:MAX_TERMS] if self.ranking.lexical else ()

    def _depth(self, wanted: SearchRequest) -> int:
        return depth(max(wanted.limit, self.reranking.top) if self.reranking else wanted.limit)

    def _threshold(self, wanted: SearchRequest) -> Threshold:
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
    """Return the unit vector between both, or the question's if their cosine is below `least`: an unrelated
    imagined answer must not mislead the search."""
    first, second = np.frombuffer(question, np.float32), np.frombuffer(imagined, np.float32)
    if float(first @ second) < least:
        return question
    mean = first + second
    return (mean / np.linalg.norm(mean)).astype(np.float32).tobytes()


def offered(profile: ProfileMemories, *, traits: bool) -> list[Memory]:
    """Return the memories to offer: rules, then traits if they are wanted, each the latest first."""
    rules = [memory for memory, kind in profile if kind == "rule"]
    return rules + [memory for memory, kind in profile if traits and kind == "trait"]
