"""The port of an index that proposes memories for a search, and what it holds of a memory.

It proposes only: the database decides what is found, and computes the scores. A memory is in it by its number
in the database, a user by theirs; it holds no text and no name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class IndexUnavailable(Exception):
    """The index cannot be used now. Does not leave the stores."""


@dataclass(frozen=True, slots=True)
class Point:
    """A current memory as the index holds it."""

    memory: int
    owner: int
    type: str
    project: str | None
    expires_at: float | None
    vector: bytes | None  # float32, unit length
    terms: bytes  # see exact/postings.py


@dataclass(frozen=True, slots=True)
class Query:
    """The best `limit` by cosine and the best `limit` by words among one user's memories."""

    owner: int
    project: str | None
    types: frozenset[str] | None
    now: float
    vector: bytes | None
    terms: Sequence[str]
    limit: int
    compared: Sequence[int]  # generations with vectors that may be compared with `vector`


class CandidateIndex(Protocol):
    """An index with a collection of points for each generation of vectors (see sql/model.py). Every method
    but `close` may raise IndexUnavailable, at once while the index is known to be down."""

    @property
    def name(self) -> str:
        """What tells the index from others that the same database was copied to."""
        ...

    async def search(self, query: Query, generations: Sequence[int]) -> Sequence[int]:
        """Return the numbers of memories found in these generations' collections, all of which must exist."""
        ...

    async def upsert(self, generation: int, points: Sequence[Point], dimension: int) -> None:
        """Write the points, durable on return, and make the collection if it is missing, for vectors of this
        dimension (0: for none)."""
        ...

    async def delete(self, memories: Sequence[int], generations: Sequence[int]) -> None:
        """Delete the memories from the generations' collections; absent ones are no error."""
        ...

    async def generations(self) -> frozenset[int]:
        """Return the generations that have a collection."""
        ...

    async def drop(self) -> None:
        """Delete all collections of this index."""
        ...

    async def close(self) -> None:
        """End the connections."""
        ...
