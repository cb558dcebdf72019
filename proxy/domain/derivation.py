"""Memories made from others, contradictions between memories: values and the port. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.core import Memory, Scope


@dataclass(frozen=True, slots=True)
class Due:
    """Current memories that a step has not considered, in the order of their changes, with their vectors by
    id. Once these are reviewed, all up to the version `upto` are."""

    memories: tuple[Memory, ...]
    vectors: Mapping[str, bytes | None]
    upto: int | None


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two current memories of a user that cannot both hold, where neither is certain."""

    id: str
    older: Memory
    newer: Memory
    score: float
    found_at: float


class DerivationStore(Protocol):
    """What background steps have still to consider, and what they found. Results are written through
    MemoryStore.apply. Methods may raise StoreUnavailable."""

    async def due(self, scope: Scope, step: str, *, limit: int, now: float) -> Due:
        """Return up to `limit` current memories that the step has not considered."""
        ...

    async def batches(self, scope: Scope, step: str, since: float) -> int:
        """Return how many batches the step has considered since a time."""
        ...

    async def undone(self, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        """Return those of the memories whose consolidation was undone."""
        ...

    async def superseded(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Memory]:
        """Return up to `limit` memories that these have superseded, and what those had, the latest first."""
        ...

    async def outdated(self, scope: Scope) -> Sequence[str]:
        """Return the current reflective memories with a source that was superseded by another fact, or is
        archived."""
        ...

    async def contradictions(
        self, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[Contradiction]:
        """Return up to `limit` contradictions of the user, newest first. Raises NotFound for an unknown
        `after`."""
        ...

    async def contradiction(self, scope: Scope, id: str) -> Contradiction | None:
        """Return one; None if it is absent, settled or another user's."""
        ...
