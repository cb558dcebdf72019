"""Fuse cosine and BM25 into one score, and weigh it by what a memory has earned.

Cosines are stretched over the hits at hand to [0, 1]. BM25 is divided by the best, or by LEAST_BM25 where
even the best is poor, so that poor word matches do not push down what the vectors know. The fused score
chooses the candidates; whether they belong to the message is for `relevance`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.domain.core import Hit, Memory

DAY = 86_400.0
LEAST_BM25 = 6.0  # about two rare words in common


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
    project_worth: float = 0.25  # added for a memory of the very project that is asked in


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit and its fused score in [0, 1]."""

    hit: Hit
    score: float


def fused(hits: Sequence[Hit], ranking: Ranking, *, project: str | None, now: float) -> list[Candidate]:
    """Return the hits with their scores, best first; between equals the latest."""
    scores = _reciprocal_ranks(hits, ranking.rrf_k) if ranking.fusion == "rrf" else _linear(hits, ranking)
    found = []
    for hit, score in zip(hits, scores, strict=True):
        if project is not None and hit.memory.scope.project == project:
            score += ranking.project_worth
        found.append((score * merit(hit.memory, now, ranking), hit))
    found.sort(key=lambda one: (-one[0], -one[1].memory.updated_at, one[1].memory.id))
    return [Candidate(hit, min(1.0, score)) for score, hit in found]


def merit(memory: Memory, now: float, ranking: Ranking) -> float:
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
