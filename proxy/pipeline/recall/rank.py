"""Rank hits: fuse cosine and BM25 into one score, and order them by what they are worth showing.

Cosines lie between .0 and .7, BM25 between 0 and 20: both are brought to [0, 1] and added. The cosine is
stretched over the hits at hand. BM25 is too where the model reads a gloss, word by word, and knows less than
the words do. Of English, the best of poor matches would become a 1 and push down what the vectors know: there
it is scaled by how much of the question its best hit covers, to the power of .4. (Recall@5 of 262 questions
that avoid the memories' words, and of 200 natural ones: .89 and .95. In proportion to what is covered, in any
language: .89 and .88; stretched in any: .87 and .95; RRF-60: .80 and .93.) The fused score orders and nothing
else; whether a hit belongs at all is for the gate.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.domain import Hit, Memory, Ranked
from proxy.overlap import MEMORY_CHARS, Saying, held, is_content, restates, saying, searchable
from proxy.pipeline.recall.aims import Aim
from proxy.pipeline.recall.byname import beginning
from proxy.pipeline.recall.gate import Gate
from proxy.pipeline.recall.times import Period, is_of

DAY = 86_400.0
# Shares of a memory's words that a better one must hold for the memory to add nothing.
REPEAT_SHARE = 0.9
REPEAT_TERMS = 2
REACH_POWER = 0.4


@dataclass(frozen=True, slots=True)
class Ranking:
    """Constants of the order. A factor lies in [1 - depth, 1 + depth]: it decides between near-equals."""

    dense: bool = True  # search by meaning
    lexical: bool = True  # search by words
    fusion: Literal["linear", "rrf"] = "linear"
    dense_weight: float = 0.65
    rrf_k: int = 60
    recency_depth: float = 0.03
    weight_depth: float = 0.05
    importance_depth: float = 0.05
    confidence_depth: float = 0.05
    half_life_days: float = 90.0
    time_depth: float = 0.1  # for a memory of a time that the question names
    project_worth: float = 0.25  # added for a memory of the very project that is asked in
    aim_worth: float = 0.2  # added for a memory that is what the question aims at
    subject_worth: float = 0.1  # added for a memory told of the one whom the question names


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question says beside its vector."""

    terms: Sequence[str] = ()
    times: Sequence[Period] = ()  # that it names: a memory of one of them is worth `time_depth` more
    aims: Sequence[Aim] = ()  # by its form (see `aims`)
    # The one it is asked in: what belongs to it is most likely meant; a clear match of what belongs to none
    # still comes first. (Eight users whom nobody had seen, 415 questions: recall@5 .77 without, .83.)
    project: str | None = None
    glossed: bool = False  # the model read it word by word (see `gloss`)
    subjects: Sequence[str] = ()  # those named, where memories are told of people by name (see `byname`)


@dataclass(frozen=True, slots=True)
class Lexical:
    """What the words say about the hits, in the hits' order: how many of the question's distinct terms
    each holds, and the share of their weight, rare words weighing more."""

    matched: tuple[int, ...]
    coverage: tuple[float, ...]


def rank(
    hits: Sequence[Hit],
    asked: Asked,
    gate: Gate,
    *,
    limit: int,
    now: float,
    ranking: Ranking | None = None,
    links: Mapping[str, float] | None = None,
) -> list[Ranked]:
    """Return at most `limit` hits that pass the gate, best first, none that only repeats a better one.

    `links`: what a link between memories adds to a score, by memory id; it lets a hit pass wherever another
    one does.
    """
    ranking = ranking or Ranking()
    words = match_words(hits, asked.terms)
    scores = fuse(hits, words, ranking, dense=gate.dense, glossed=asked.glossed)
    opened = gate.opens(max((h.cosine for h in hits if h.cosine is not None), default=-1.0))
    admitted = [gate.admits(h, share, opened) for h, share in zip(hits, words.coverage, strict=True)]
    # Where nothing passes by itself, no link leads anywhere.
    worth = links if links and gate.follows and any(admitted) else {}
    passed = [
        (
            (score + worth.get(hit.memory.id, 0.0) + _meant(hit.memory, asked, ranking))
            * standing(hit.memory, now, ranking)
            * _timely(hit.memory, asked.times, ranking),
            hit,
            matched,
        )
        for hit, score, matched, passes in zip(hits, scores, words.matched, admitted, strict=True)
        if passes or hit.memory.id in worth
    ]
    passed.sort(key=lambda one: (-one[0], -one[1].memory.updated_at, one[1].memory.id))
    kept: list[Ranked] = []
    shown: dict[str, list[str]] = {}  # by type, since a habit and an event may share their words
    for score, hit, matched in passed:
        if len(kept) >= limit:
            break
        memory = hit.memory
        better, said = shown.setdefault(memory.type, []), saying(memory.content)
        if not _repeats(said, better):
            better.append(said.folded)
            kept.append(Ranked(memory, min(1.0, score), _why(hit, matched, gate, memory.id in worth)))
    return kept


def match_words(hits: Sequence[Hit], query_terms: Sequence[str]) -> Lexical:
    """Return which of the question's terms the hits hold. How rare a term is, is judged among the hits:
    idf = ln(1 + (n - df + ½) / (df + ½)), as in BM25; a term that no hit holds counts as rarest."""
    query_terms = [t for t in query_terms if is_content(t)]
    found = [
        held(query_terms, searchable(h.memory.content, MEMORY_CHARS)) if h.bm25 > 0 else [] for h in hits
    ]
    return Lexical(tuple(len(terms) for terms in found), coverage(query_terms, found))


def coverage(query_terms: Sequence[str], found: Sequence[Collection[str]]) -> tuple[float, ...]:
    """Return the share of the question's weight that each of the texts holds, given the terms found in it."""
    holders = Counter(t for terms in found for t in terms)
    total = len(found)
    idf = {t: math.log(1 + (total - holders[t] + 0.5) / (holders[t] + 0.5)) for t in query_terms}
    whole = sum(idf.values()) or 1.0
    return tuple(sum(idf[t] for t in terms) / whole for terms in found)


def fuse(hits: Sequence[Hit], words: Lexical, ranking: Ranking, *, dense: bool, glossed: bool) -> list[float]:
    """Return each hit's place in the order as a score in [0, 1]. `dense`: whether cosines count. `glossed`:
    whether they are a gloss's."""
    if ranking.fusion == "rrf":
        return _reciprocal_ranks(hits, ranking.rrf_k, dense=dense)
    best = max((h.bm25 for h in hits), default=0.0) or 1.0
    reach = 1.0 if glossed else max(words.coverage, default=0.0) ** REACH_POWER
    if not dense:
        return [h.bm25 / best for h in hits]
    cosines = [h.cosine for h in hits if h.cosine is not None]
    low, high = min(cosines, default=0.0), max(cosines, default=0.0)
    spread = high - low
    share = ranking.dense_weight
    return [share * stretch(h.cosine, low, spread) + (1 - share) * reach * h.bm25 / best for h in hits]


def standing(memory: Memory, now: float, ranking: Ranking) -> float:
    """Return the product of what a memory has earned: recent, useful, important, sure. 1 is average."""
    seen = max(memory.updated_at, memory.last_accessed or 0.0)
    recency = 2 * math.pow(0.5, max(0.0, now - seen) / DAY / ranking.half_life_days) - 1
    # A memory weighs 1 unless it was imported with another weight; between .2 and 5 its logarithm is even.
    weight = math.log(min(5.0, max(0.2, memory.weight)), 5.0)
    return (
        (1 + ranking.recency_depth * recency)
        * (1 + ranking.weight_depth * weight)
        * (1 + ranking.importance_depth * (2 * memory.importance - 1))
        * (1 + ranking.confidence_depth * (2 * memory.confidence - 1))
    )


def _meant(memory: Memory, asked: Asked, ranking: Ranking) -> float:
    """Return what to add for what the memory is, whatever it says: the project's own, what is aimed at, or
    told of whom the question names."""
    ours = asked.project is not None and memory.scope.project == asked.project
    own = ranking.project_worth if ours else 0.0
    aimed = ranking.aim_worth if any(aim.meets(memory) for aim in asked.aims) else 0.0
    # Of two, both are meant.
    named = len(asked.subjects) == 1 and beginning(memory.content) == asked.subjects[0]
    return own + aimed + (ranking.subject_worth if named else 0.0)


def _timely(memory: Memory, times: Sequence[Period], ranking: Ranking) -> float:
    meant = bool(times) and any(is_of(period, memory.content, memory.valid_from) for period in times)
    return 1 + ranking.time_depth if meant else 1.0


def stretch(cosine: float | None, low: float, spread: float) -> float:
    """Return the cosine's place between the lowest and the highest; one alone is the highest."""
    if cosine is None:
        return 0.0
    return (cosine - low) / spread if spread > 0 else 1.0


def _reciprocal_ranks(hits: Sequence[Hit], k: int, *, dense: bool) -> list[float]:
    """Fuse rankings by reciprocal rank: score = Σ 1/(k + rank), rank from 1, scaled so that first in
    every list is 1. k = 60 after Cormack et al., SIGIR 2009. Absent hits add nothing."""
    scores = [0.0] * len(hits)
    lists = [[(h.bm25, i) for i, h in enumerate(hits) if h.bm25 > 0]]
    if dense:
        lists.append([(h.cosine, i) for i, h in enumerate(hits) if h.cosine is not None])
    for found in lists:
        for place, (_, i) in enumerate(sorted(found, key=lambda pair: -pair[0]), start=1):
            scores[i] += (k + 1) / (k + place) / len(lists)
    return scores


def _repeats(said: Saying, better: Sequence[str]) -> bool:
    """True if one of the better contents (in searchable form) already says this."""
    return any(restates(text, said, share=REPEAT_SHARE, at_least=REPEAT_TERMS) for text in better)


def _why(hit: Hit, matched: int, gate: Gate, linked: bool) -> str:
    """Return which lists found it, and whether a link led to it: "dense .41, lexical 3 terms, linked"."""
    parts = []
    if gate.dense and hit.cosine is not None:
        parts.append(f"dense {hit.cosine:.2f}".replace("0.", ".", 1))
    if matched:
        parts.append(f"lexical {matched} {'term' if matched == 1 else 'terms'}")
    if linked:
        parts.append("linked")
    return ", ".join(parts)
