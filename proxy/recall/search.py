"""Search the memories of a scope, by vector and by words, rank what is found, and read the user's profile.

1. Cosine and BM25 are fused into one score, weighed by recency, use, importance and confidence. Cosines are
   stretched over the hits to [0, 1]. BM25 is divided by the best, or by LEAST_BM25 where even the best is
   poor, so that poor word matches do not outweigh the vectors. This score chooses the candidates.
2. The judge decides which candidates help with the message. It gets all of them in one batch, and reads
   message and memory together where their vectors leave it open. A request's own `similarity_threshold`
   replaces the judge: the least cosine. Without a judge the embedding model's threshold decides.
3. Optionally a cross-encoder reorders the first ones, a few at a time, within a share of the time that is
   left. If it fails, the order stays.

An embedder that is missing, fails, or does not know the language costs its half of the search, never the
whole. Store errors are raised: without a store there is no memory.

The profile is what applies to every conversation. A rule says how to answer (language, tone, form of
address) and is always offered. A trait (diet, health, accessibility) is offered if the message may concern
the user's life. The judge tells them apart by the memory's vector. The store classifies a user's memories
when they change, so that a request pays nothing for it; without vectors in memory, the user's preferences
are classified here.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Literal

import numpy as np

from proxy.domain.core import (
    Hit,
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
from proxy.domain.errors import EmbeddingFailed, RerankFailed
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.ports import (
    Clock,
    Embedder,
    Judge,
    MemoryStore,
    MemoryText,
    ProfileKind,
    Reading,
    Reranker,
    Snapshot,
)
from proxy.recall.triage import MAX_TERMS, SearchQuery
from proxy.telemetry import ThrottledLog, log
from proxy.text.words import normalise

DAY = 86_400.0
LEAST_BM25 = 6.0  # about two rare words in common
# Relevance, measured on held-out users.
HELPS = 0.5  # the operating point of the calibrated head: memories are shown if one reaches it
ALSO_HELPS = 0.03  # then others of at least this are shown, too
HELP_SHARE = 0.2  # of the final score; the rest is the fused score
CANDIDATES = 12  # that the judge reads, at least
MOST_CANDIDATES = 24
DOUBTED = 0.7  # confidence of a preference up to which it is not shown; stating it again raises it
# Reranking.
RERANK_TOP = 20
RERANK_STEP = 4  # memories at a time
RERANKS_AT_ONCE = 2  # requests: others in a burst are served in the order they have, rather than late
TRIP_AFTER = 3  # failures in a row
OPEN_S = 30.0  # until the model is asked again
RERANK_TIME_SHARE = 0.6  # of the time that is left: the rest is for injecting
RERANK_WEIGHT = 0.7  # of the model's score; the rest is the score before
LEAST_SPREAD = 4.0  # logits: a smaller difference between best and worst says little


@dataclass(frozen=True, slots=True)
class Ranking:
    """Constants of the order. A factor is within [1 - depth, 1 + depth]: it decides between near-equals."""

    dense: bool = True  # search by meaning
    lexical: bool = True  # search by words
    fusion: Literal["linear", "rrf"] = "linear"
    dense_weight: float = 0.65
    rrf_k: int = 60
    recency_depth: float = 0.03
    weight_depth: float = 0.02  # use moves the order a little, and hides nothing
    importance_depth: float = 0.05
    confidence_depth: float = 0.05
    half_life_days: float = 90.0
    project_worth: float = 0.25  # added for a memory of the request's project


@dataclass(frozen=True, slots=True)
class ScoredHit:
    """A hit and its fused score in [0, 1]."""

    hit: Hit
    score: float


def fused(hits: Sequence[Hit], ranking: Ranking, *, project: str | None, now: float) -> list[ScoredHit]:
    """Return the hits with their scores, best first; between equals the latest."""
    scores = _reciprocal_ranks(hits, ranking.rrf_k) if ranking.fusion == "rrf" else _linear(hits, ranking)
    found = []
    for hit, score in zip(hits, scores, strict=True):
        if project is not None and hit.memory.scope.project == project:
            score += ranking.project_worth
        found.append((score * merit(hit.memory, now, ranking), hit))
    found.sort(key=lambda one: (-one[0], -one[1].memory.updated_at, one[1].memory.id))
    return [ScoredHit(hit, min(1.0, score)) for score, hit in found]


def merit(memory: Memory, now: float, ranking: Ranking) -> float:
    """Return the product of a memory's factors: recency, weight, importance, confidence. 1 is average."""
    seen = max(memory.updated_at, memory.last_accessed or 0.0)
    recency = 2 * math.pow(0.5, max(0.0, now - seen) / DAY / ranking.half_life_days) - 1
    # An imported memory may have a weight other than 1; its logarithm is symmetric between .2 and 5.
    weight = math.log(min(5.0, max(0.2, memory.weight)), 5.0)
    return (
        (1 + ranking.recency_depth * recency)
        * (1 + ranking.weight_depth * weight)
        * (1 + ranking.importance_depth * (2 * memory.importance - 1))
        * (1 + ranking.confidence_depth * (2 * memory.confidence - 1))
    )


def stretch(cosine: float | None, low: float, spread: float) -> float:
    """Return the cosine's place between the lowest and the highest; one alone is the highest."""
    if cosine is None:
        return 0.0
    return (cosine - low) / spread if spread > 0 else 1.0


def _linear(hits: Sequence[Hit], ranking: Ranking) -> list[float]:
    cosines = [h.cosine for h in hits if h.cosine is not None]
    best = max((h.bm25 for h in hits), default=0.0)
    if not cosines:
        return [h.bm25 / best if best else 0.0 for h in hits]
    low, share, most = min(cosines), ranking.dense_weight, max(best, LEAST_BM25)
    spread = max(cosines) - low
    return [share * stretch(h.cosine, low, spread) + (1 - share) * h.bm25 / most for h in hits]


def _reciprocal_ranks(hits: Sequence[Hit], k: int) -> list[float]:
    """Fuse rankings by reciprocal rank: score = Σ 1/(k + rank), rank from 1, scaled so that first in
    every list is 1. k = 60 after Cormack et al., SIGIR 2009. Absent hits add nothing."""
    scores = [0.0] * len(hits)
    near = [(h.cosine, i) for i, h in enumerate(hits) if h.cosine is not None]
    lists = [near, [(h.bm25, i) for i, h in enumerate(hits) if h.bm25 > 0]]
    for found in lists:
        for place, (_, i) in enumerate(sorted(found, key=lambda pair: -pair[0]), start=1):
            scores[i] += (k + 1) / (k + place) / (2 if near else 1)
    return scores


# ---------------------------------------------------------------- relevance
Readings = Callable[[Sequence[str]], Awaitable[Sequence[bytes | None]]]
"""Returns the stored readings of memories by their ids."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a candidate must reach; None: nothing. `asked`: the request's own least cosine, which decides
    alone. `floor`: the server's least cosine. `model`: the embedding model's, used without a judge.
    `helps`: what the judge must give."""

    asked: float | None = None
    floor: float | None = None
    model: float | None = None
    helps: float = HELPS


@dataclass(frozen=True, slots=True)
class Relevant:
    """The candidates that help, best first. `judged`: the judge has read them; `helps`: what it gave each, by
    the memory's id."""

    ranked: list[Ranked]
    judged: bool
    helps: Mapping[str, float] = field(default_factory=dict)


async def relevant(
    reading: Reading | None,
    candidates: Sequence[ScoredHit],
    judge: Judge | None,
    threshold: Threshold,
    readings: Readings | None = None,
) -> Relevant:
    """Return the candidates that help with the message, all of which the judge reads together with it. If the
    judge fails, the cosine decides."""
    if threshold.asked is None and judge is not None and reading is not None:
        near = [c for c in candidates if _reaches(c, threshold.floor)]
        memories = [MemoryText(c.hit.memory.content, c.hit.vector) for c in near]

        async def stored(indices: Sequence[int]) -> Sequence[bytes | None]:
            return await readings([near[i].hit.memory.id for i in indices]) if readings is not None else ()

        try:
            helps = await judge.helps(reading, memories, stored if readings is not None else None)
        except EmbeddingFailed:
            pass
        else:
            given = {c.hit.memory.id: share for c, share in zip(near, helps, strict=True)}
            is_one_enough = max(helps, default=0.0) >= threshold.helps
            enough = min(threshold.helps, ALSO_HELPS) if is_one_enough else math.inf
            found = [ranked(c, share) for c, share in zip(near, helps, strict=True) if share >= enough]
            best_first = sorted(found, key=lambda one: -one.score)
            return Relevant(without_repeats(best_first), judged=True, helps=given)
    plain_rule = threshold.model if threshold.floor is None else threshold.floor
    least = plain_rule if threshold.asked is None else threshold.asked
    plain = [ranked(c) for c in candidates if _reaches(c, least)]
    return Relevant(without_repeats(plain), judged=False)


def ranked(candidate: ScoredHit, helps: float | None = None) -> Ranked:
    """Return the candidate with its final score, and why it was found: "dense .41, lexical 3.2, helps .9".
    `helps`: what the judge gave it."""
    hit, score, why = candidate.hit, candidate.score, list[str]()
    if hit.cosine is not None:
        why.append(f"dense {_short(hit.cosine)}")
    if hit.bm25 > 0:
        why.append(f"lexical {hit.bm25:.1f}")
    if helps is None:
        return Ranked(hit.memory, score, ", ".join(why))
    score = HELP_SHARE * helps + (1 - HELP_SHARE) * score
    return Ranked(hit.memory, score, f"{', '.join(why)}, helps {_short(helps)}")


def without_repeats(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the memories without those whose text is contained in a better one of the same type."""
    distinct: list[Ranked] = []
    said: list[tuple[str, str]] = []
    for one in ranked:
        text = normalise(one.memory.content)
        if not any(kind == one.memory.type and text in better for kind, better in said):
            said.append((one.memory.type, text))
            distinct.append(one)
    return distinct


def is_doubted(memory: Memory) -> bool:
    """True for an uncertain preference, which would influence every answer if it was shown."""
    return memory.type == "preference" and memory.confidence <= DOUBTED


def _reaches(candidate: ScoredHit, least: float | None) -> bool:
    """True if its cosine is high enough; without a cosine a shared word does."""
    cosine = candidate.hit.cosine
    return least is None or (candidate.hit.bm25 > 0 if cosine is None else cosine >= least)


def _short(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


# ---------------------------------------------------------------- reranking
class Reranking:
    """Reorders what was ranked. `deadline_s`: for all memory work of a request."""

    def __init__(
        self,
        reranker: Reranker,
        *,
        deadline_s: float,
        top: int = RERANK_TOP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reranker, self._deadline_s, self.top = reranker, deadline_s, top
        self._breaker = CircuitBreaker(OPEN_S, trip_after=TRIP_AFTER, clock=clock)
        self._reading = 0

    async def reorder(self, question: str, ranked: Sequence[Ranked], *, spent_s: float) -> Sequence[Ranked]:
        """Return the same memories, those that the model has read in time in its order.

        `spent_s`: how much of the deadline has passed.
        """
        left_s = RERANK_TIME_SHARE * (self._deadline_s - max(0.0, spent_s))
        is_busy = self._reading >= RERANKS_AT_ONCE or self._breaker.is_open
        if len(ranked) < 2 or left_s <= 0 or is_busy or not self._reranker.understands(question):
            return ranked
        logits = await self._read(question, [one.memory.content for one in ranked[: self.top]], left_s)
        if len(logits) < 2:
            return ranked
        read = blended(ranked[: len(logits)], logits)
        # The budget is filled by score, so memories that were not read must not score above those that were.
        unread = (replace(one, score=min(one.score, read[-1].score)) for one in ranked[len(logits) :])
        return [*read, *unread]

    async def _read(self, question: str, texts: Sequence[str], within_s: float) -> Sequence[float]:
        """Return the logits of the first texts, as many as time allows."""
        logits: list[float] = []
        self._reading += 1
        try:
            async with asyncio.timeout(within_s):
                for start in range(0, len(texts), RERANK_STEP):
                    logits += await self._reranker.rerank(question, texts[start : start + RERANK_STEP])
        except TimeoutError:
            log.debug("memory.rerank_cut", read=len(logits), of=len(texts))
        except RerankFailed as error:
            log.warning("memory.rerank_failed", error=str(error))
            logits = []
        finally:
            self._reading -= 1
        if logits:
            self._breaker.succeeded()
        elif open_s := self._breaker.failed():
            log.warning("memory.rerank_rests", seconds=open_s)
        return logits


def blended(ranked: Sequence[Ranked], logits: Sequence[float]) -> list[Ranked]:
    """Return the memories by RERANK_WEIGHT of the model's score and the rest of the score before.

    Both are scaled to [0, 1]. A spread below LEAST_SPREAD is not stretched, so that a model to which all
    are alike leaves the order nearly as it was.
    """
    best, before = max(logits), max(one.score for one in ranked) or 1.0
    spread = max(best - min(logits), LEAST_SPREAD)
    scored = [
        replace(
            one,
            score=RERANK_WEIGHT * (1 - (best - logit) / spread) + (1 - RERANK_WEIGHT) * one.score / before,
            why=f"{one.why}, reranked",
        )
        for one, logit in zip(ranked, logits, strict=True)
    ]
    return sorted(scored, key=lambda one: -one.score)


# ---------------------------------------------------------------- search and profile
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
    faded: bool = False  # see Search


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
        if vector is not None and query.imagined and self.embedder is not None:
            with suppress(EmbeddingFailed):
                (imagined,) = await self.embedder.embed([query.imagined])
                vector = pooled(vector, imagined, least=self.embedder.model.similarity_threshold)
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
        model = self.embedder.model.similarity_threshold if self.embedder and wanted.least_help else None
        threshold = Threshold(wanted.threshold, self.least_cosine, model, wanted.least_help)
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
        search = Search(encoded.vector, looked_up, longest, types, now, vectors=longest, faded=wanted.faded)
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
        """Return how many candidates to look at."""
        limit = max(wanted.limit, self.reranking.top) if self.reranking else wanted.limit
        return max(CANDIDATES, min(limit + 2, MOST_CANDIDATES))


def pooled(question: bytes, imagined: bytes, *, least: float) -> bytes:
    """Return the unit vector between both, or the question's if their cosine is below `least`: an unrelated
    imagined answer must not mislead the search."""
    first, second = np.frombuffer(question, np.float32), np.frombuffer(imagined, np.float32)
    if float(first @ second) < least:
        return question
    mean = first + second
    return (mean / np.linalg.norm(mean)).astype(np.float32).tobytes()


def offered(profile: ProfileMemories, *, traits: bool) -> list[Memory]:
    """Return the memories to offer: rules and what is pinned, then traits and what many answers used if they
    are wanted, each the latest first."""
    wanted = ("rule", "pinned", "trait", "core") if traits else ("rule", "pinned")
    return [memory for kind in wanted for memory, is_ in profile if is_ == kind]
