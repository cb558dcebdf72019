"""How much one user may have remembered: the rule, without a store."""

from dataclasses import dataclass
from typing import assert_never

from proxy.domain import Change, Confirm, Create, Edit, Hold, Release, Supersede
from proxy.oversight import Quota
from proxy.stores.texts import storable


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


def _size(content: str) -> int:
    return len(storable(content).encode())
