"""Rush: the users' turns come first. Background work that can wait begins when no turn needs the processor.

An extraction takes some tens of milliseconds of processor time, and a turn that is prepared meanwhile waits
for it. Mostly there is a pause in which it costs nobody anything: while a user reads, or a model answers.
Where none comes for PATIENCE_S, the work goes on beside the turns, until nothing is left to do: what is put
off must not grow without bound.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.domain.ports import Clock

PAUSE_S = 0.02  # without a turn: the next of a client that asks one after the other has come by then
SHARE = 4  # parts of the time for turns to one for background work
PATIENCE_S = 4.0  # less than what makes more calls run at once (budget.Bounds)


class Rush:
    """What one process's turns and its background work know of each other. Belongs to one event loop."""

    def __init__(self, steady: Clock = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        """`steady`: a clock that nobody sets."""
        self._steady, self._patience_s = steady, patience_s
        self._turns = 0
        self._last_ended_at = float("-inf")
        self._put_off = 0  # pieces of work that wait here
        self._put_off_since: float | None = None  # None: nothing had to wait since all was done

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn is being prepared."""
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1
            self._last_ended_at = self._steady()

    async def over(self) -> None:
        """Return in a pause, or when patience is at its end."""
        self._put_off += 1
        try:
            while (left_s := self._left_s()) > 0:  # noqa: ASYNC110 no event tells of a pause
                await asyncio.sleep(left_s)
        finally:
            self._put_off -= 1

    async def give_way(self, spent_s: float) -> None:
        """Return in a pause, or after SHARE times what the last step took."""
        ends_at = self._steady() + SHARE * spent_s
        while (now := self._steady()) < ends_at:
            pause_in_s = PAUSE_S if self._turns else self._last_ended_at + PAUSE_S - now
            if pause_in_s <= 0:
                return
            await asyncio.sleep(min(pause_in_s, ends_at - now))

    def nothing_due(self) -> None:
        """All is done: patience begins anew."""
        if not self._put_off:
            self._put_off_since = None

    def _left_s(self) -> float:
        """Return how long to wait before looking again."""
        now = self._steady()
        pause_in_s = PAUSE_S if self._turns else self._last_ended_at + PAUSE_S - now
        if pause_in_s <= 0:
            return 0.0
        if self._put_off_since is None:
            self._put_off_since = now
        return min(pause_in_s, self._put_off_since + self._patience_s - now)
