"""The port of the index of vectors and words that the stores of a fleet search: in Redis itself, or in
Qdrant.

The index only proposes candidates. The rows in Redis are the truth: a point that disagrees with its row is
ignored.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class IndexUnavailable(Exception):
    """The index cannot be asked now, or is not what it should be. Does not leave the stores."""


@dataclass(frozen=True, slots=True)
class Point:
    """What the index holds of a memory. Never its text, and not its user's name."""

    uid: str
    memory: str  # its id
    project: str | None
    type: str
    current: bool
    expires_at: float | None
    written: int
    vector_of: int | None  # a number of the vector that the memory has; None: it has none
    vector: bytes | None
    terms: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories a search is about: see domain.Search and Scope."""

    project: str | None
    types: frozenset[str] | None
    now: float

    def admits(self, type: str, project: str | None) -> bool:
        return (self.types is None or type in self.types) and (
            self.project is None or project is None or project == self.project
        )


@dataclass(frozen=True, slots=True)
class Query:
    """The nearest `limit` by cosine and the best by words, roughly ordered, inside one user's memories."""

    uid: str
    wanted: Wanted
    vector: bytes | None
    generations: Collection[int]  # whose vectors may be compared with `vector`
    weights: Mapping[str, float]  # of the terms
    limit: int
    vectors: int = 0  # how many of the nearest are to come with their vectors


@dataclass(frozen=True, slots=True)
class Near:
    """A point found. `cosine` is None where there is nothing to compare. `vector`: of those asked for."""

    memory: str
    vector_of: int | None
    cosine: float | None
    vector: bytes | None = None


class VectorIndex(Protocol):
    """An index of points, in a collection for each generation of vectors. Every method may raise
    IndexUnavailable."""

    async def open(self) -> None:
        """Ask whether it is there."""
        ...

    async def upsert(self, generation: int, points: Sequence[Point]) -> None:
        """Write the points, unless the index has newer ones, and take them out of other generations."""
        ...

    async def delete(self, uid: str, ids: Sequence[str]) -> None:
        """Delete points of the user's from every generation."""
        ...

    async def delete_all(self, uid: str, written: int) -> None:
        """Delete every point of the user's that was not written after this version."""
        ...

    async def vectors(self, generation: int, uid: str, ids: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """Return the vectors held, each with its `vector_of`, by memory id."""
        ...

    async def search(self, query: Query, generations: Collection[int]) -> list[Near]:
        """Return what is found in these generations, in no order, nothing twice."""
        ...

    async def close(self) -> None: ...
