"""The hourly quota of our own model calls, without I/O: how many are left, and when the next is free.

All processes that share a store share them: what an hour may cost is one sum, however many there are.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Whether a call may be made, how many more could follow at once, and, if none, in how long one can."""

    granted: bool
    left: int
    retry_after_s: float = 0.0
    at: float = 0.0  # when it was counted: what `refund` takes back


class Calls(Protocol):
    """The calls of any 60 minutes. Every method may raise StoreUnavailable."""

    async def spend(self, limit: int, now: float) -> Spent:
        """Count a call made now, if it is no more than the `limit`th of the last hour. A store that has a
        clock of its own goes by that."""
        ...

    async def look(self, limit: int, now: float) -> Spent:
        """Return what `spend` would, and count nothing."""
        ...

    async def refund(self, at: float) -> None:
        """A call that was counted then was not made."""
        ...


def judge(times: Sequence[float], limit: int, now: float) -> tuple[list[float], Spent]:
    """Return what is left of the times, oldest first, once those that are an hour old are gone, and whether a
    call may be made now. One that a clock set back has put into the future counts as made now."""
    hour = [min(at, now) for at in times[bisect_right(times, now - HOUR_S) :]]
    left = max(0, limit - len(hour))
    return hour, Spent(left > 0, left, _wait_s(hour, limit, now))


def spend(times: Sequence[float], limit: int, now: float) -> tuple[list[float], Spent]:
    """Return the times with the call that is made now, if it may be, and what became of it."""
    hour, found = judge(times, limit, now)
    if not found.granted:
        return hour, found
    hour.append(now)
    return hour, Spent(True, found.left - 1, _wait_s(hour, limit, now), now)


def _wait_s(hour: Sequence[float], limit: int, now: float) -> float:
    if len(hour) < limit or not limit:
        return 0.0
    # So many as are above the limit have to go first: it may have been lowered.
    return hour[len(hour) - limit] + HOUR_S - now


class OwnCalls:
    """The calls of this process alone."""

    def __init__(self) -> None:
        self._times: list[float] = []

    async def spend(self, limit: int, now: float) -> Spent:
        self._times, found = spend(self._times, limit, now)
        return found

    async def look(self, limit: int, now: float) -> Spent:
        self._times, found = judge(self._times, limit, now)
        return found

    async def refund(self, at: float) -> None:
        if at in self._times:
            self._times.remove(at)
