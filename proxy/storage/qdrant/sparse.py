"""Texts and questions as sparse vectors whose product is about BM25, inside one user's memories.

A memory's side holds how much a term's count is worth there, a question's side how rare the term is among
this user's memories. Qdrant's own IDF counts everybody's. The mean length is a constant here, so that nothing
has to be written anew when it moves: the caller makes the order exact.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from qdrant_client.models import SparseVector

_K1, _B = 1.2, 0.4  # as in redis/words.py
_MEAN_LENGTH = 12.0


@lru_cache(maxsize=65_536)
def number_of(term: str) -> int:
    """Return the term's 32-bit number, the same on every machine. Two terms that share one cost a candidate
    that the exact score drops."""
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=4).digest(), "little")


def of_memory(terms: str) -> SparseVector:
    """Return the vector of a memory with these terms (separated by spaces)."""
    words = terms.split()
    norm = _K1 * (1 - _B) + _K1 * _B / _MEAN_LENGTH * len(words)
    return _vector({term: (_K1 + 1) * count / (count + norm) for term, count in Counter(words).items()})


def of_question(weights: Mapping[str, float]) -> SparseVector:
    """Return the vector of a question whose terms weigh this much."""
    return _vector(weights)


def _vector(values: Mapping[str, float]) -> SparseVector:
    summed: dict[int, float] = {}
    for term, value in values.items():
        summed[number_of(term)] = summed.get(number_of(term), 0.0) + value
    return SparseVector(indices=list(summed), values=list(summed.values()))
