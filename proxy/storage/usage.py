"""The rule of the quota: how much one user may have remembered. Independent of the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from proxy.domain.core import Change, Confirm, Create, Edit, Hold, Release, Supersede
from proxy.domain.documents import Limits, NewDocument
from proxy.domain.errors import QuotaExceeded
from proxy.domain.oversight import Quota
from proxy.storage.texts import storable


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user has, or a change adds."""

    memories: int = 0
    content_bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.memories + other.memories, self.content_bytes + other.content_bytes)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the changes. `changed`: a search may return something else now."""

    changed: bool
    refused: tuple[str, ...] = ()
    evicted: int = 0


def fits(quota: Quota, usage: Usage) -> bool:
    return (not quota.memories or usage.memories <= quota.memories) and (
        not quota.content_bytes or usage.content_bytes <= quota.content_bytes
    )


def grown_too_far(quota: Quota, before: Usage, after: Usage) -> bool:
    """True for growth beyond the quota. Who is above it already may still shrink, or stay."""
    too_many = quota.memories and after.memories > max(quota.memories, before.memories)
    too_much = quota.content_bytes and after.content_bytes > max(quota.content_bytes, before.content_bytes)
    return bool(too_many or too_much)


def growth(change: Change) -> Usage:
    """Return the most that the change can add."""
    match change:
        case Create() | Supersede():
            return Usage(1, _size(change.memory.content))
        case Edit():
            return Usage(0, _size(change.memory.content))
        case Confirm() | Hold() | Release():
            return Usage()
        case _:
            assert_never(change)


def latest(changes: Iterable[Change]) -> float:
    """Return the time of the last of the changes: by now, what was to expire before has."""
    return max(map(_time, changes), default=0.0)


def check_room(others: int, passages: int, new: NewDocument, limits: Limits) -> None:
    """Raise QuotaExceeded if the user may not have the document beside the others, with their passages."""
    if others + 1 > limits.documents:
        raise QuotaExceeded(f"This user has {limits.documents} documents already, and may have no more.")
    if passages + len(new.passages) > limits.passages_of_user:
        raise QuotaExceeded(f"This user's documents may hold {limits.passages_of_user} passages together.")


def _time(change: Change) -> float:
    match change:
        case Create() | Supersede() | Edit():
            return change.memory.updated_at
        case Confirm() | Hold():
            return change.at
        case Release():
            return 0.0
        case _:
            assert_never(change)


def _size(content: str) -> int:
    return len(storable(content).encode())
