"""An inverted index in numpy: which documents hold a term, and how often."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@lru_cache(maxsize=2048)
def term_hash(term: str) -> int:
    """Return the term's 64-bit number, the same on every machine. Two terms of one user share one by
    chance of about n²/2⁶⁵: never in practice."""
    return int.from_bytes(
        hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=8).digest(), "little", signed=True
    )


def pack(terms: Iterable[str]) -> bytes:
    """Return the terms' numbers as the bytes that the store keeps."""
    return np.fromiter((term_hash(term) for term in terms), dtype=np.int64).tobytes()


@dataclass(frozen=True, slots=True)
class Postings:
    """One entry for every (term, document), ordered by term, then document."""

    terms: Ints
    docs: NDArray[np.int32]
    counts: NDArray[np.int32]

    @classmethod
    def build(cls, terms: Ints, lengths: NDArray[np.int32], *, first: int = 0) -> "Postings":
        """Index texts as documents first, first + 1, …: the numbers of their terms one behind the other, and
        how many each text has."""
        docs = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        order = np.argsort(terms, kind="stable")  # stable keeps the documents of a term in order
        terms, docs = terms[order], docs[order]
        if not len(terms):
            return cls(terms, docs, np.empty(0, np.int32))
        is_new = np.ones(len(terms), np.bool_)
        is_new[1:] = (terms[1:] != terms[:-1]) | (docs[1:] != docs[:-1])
        starts = np.flatnonzero(is_new)
        counts = np.diff(starts, append=len(terms)).astype(np.int32)
        return cls(terms[starts], docs[starts], counts)

    def merged(self, later: "Postings") -> "Postings":
        """Return both as one; the documents of `later` come after ours."""
        terms = np.concatenate([self.terms, later.terms])
        order = np.argsort(terms, kind="stable")
        docs, counts = np.concatenate([self.docs, later.docs]), np.concatenate([self.counts, later.counts])
        return Postings(terms[order], docs[order], counts[order])

    def of(self, terms: Ints) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return parallel arrays of what is held of the terms: position in `terms`, document, count."""
        starts = np.searchsorted(self.terms, terms, side="left")
        found = np.searchsorted(self.terms, terms, side="right") - starts
        which = np.repeat(np.arange(len(terms)), found)
        # Every term's entries lie together: count on from the start of each.
        at = np.arange(len(which)) + np.repeat(starts - (np.cumsum(found) - found), found)
        return which, self.docs[at], self.counts[at]

    @property
    def nbytes(self) -> int:
        return self.terms.nbytes + self.docs.nbytes + self.counts.nbytes


NO_POSTINGS = Postings(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
