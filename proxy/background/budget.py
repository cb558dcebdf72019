"""How much of the upstream our own calls may take: how many at once, how many an hour, and when none.

Few calls at once are the rule. When jobs have waited for longer than is right, more are let out with every
call that comes back as fast as usual, up to a bound; an upstream that gets slower by it (a model on one
machine answers one at a time) gets no more. When it says stop, it is one call at a time until one succeeds.
The last of an hour's calls are kept for what users ask to be remembered, and so is one call at once.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxy.background.extract import ROLE
from proxy.background.schedule import BATCH, EXPLICIT
from proxy.errors import CompletionFailed, CompletionPostponed, CompletionRefused, CredentialNeeded
from proxy.ports import Clock, Completer, CompletionRequest

HOUR_S = 3_600.0
NO_LANE = 0
_KEEPS_PACE, _FALLS_BEHIND = 1.5, 2.0  # times the usual seconds of a call
_NEWEST = 0.2  # weight of the newest call in an average


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one process may take of the upstream. `peak` below `concurrency` counts as `concurrency`."""

    concurrency: int = 2
    peak: int = 24  # a thousand jobs in a minute, at a second a call
    calls_per_hour: int = 0  # in any 60 minutes; 0: no bound
    reserve: float = 0.2  # share of them kept for explicit asks
    patience_s: float = 5.0


Ended = Literal["answered", "failed", "refused", "postponed", "no_credential"]


@dataclass(frozen=True, slots=True)
class Call:
    """One of our own calls, for the metrics."""

    role: str
    ended: Ended
    seconds: float


class Load:
    """Tells the worker which lanes may be served, and hears how the calls go. Belongs to one event loop."""

    def __init__(self, bounds: Bounds = Bounds(), clock: Clock = time.time) -> None:
        self._bounds, self._clock = bounds, clock
        self._limit = bounds.concurrency
        self._running = 0
        self._backlog = False  # the last job claimed had waited for too long
        self._held_until = 0.0
        self._usual_s: float | None = None  # a call takes, with no more than `concurrency` at once
        self._recent_s: float | None = None
        self._spent: deque[float] = deque()

    # ------------------------------------------------------------ asked by the worker
    @property
    def limit(self) -> int:
        """How many jobs are served at once now; one explicit ask more."""
        return self._limit

    @property
    def running(self) -> int:
        """How many jobs are being served."""
        return self._running

    def lane(self) -> int:
        """Return the last lane of which a job may be claimed now; NO_LANE: of none."""
        if self._clock() < self._held_until or self._running > self._limit:
            return NO_LANE
        left = self.calls_left()
        if left is not None:
            left -= self._running
            if left <= 0:
                return NO_LANE
            if left <= self._reserved:
                return EXPLICIT
        return BATCH if self._running < self._limit else EXPLICIT

    def calls_left(self) -> int | None:
        """Return how many calls are left of the last hour's; None: no bound."""
        if not self._bounds.calls_per_hour:
            return None
        while self._spent and self._spent[0] <= self._clock() - HOUR_S:
            self._spent.popleft()
        return self._bounds.calls_per_hour - len(self._spent)

    def began(self, *, waited_s: float) -> None:
        """A job was claimed that had been waiting for so long."""
        self._running += 1
        self._backlog = waited_s > self._bounds.patience_s

    def ended(self) -> None:
        """A job is no longer served."""
        self._running -= 1

    def idle(self) -> None:
        """Nothing was due."""
        self._backlog = False
        self._limit = min(self._limit, self._bounds.concurrency)

    # ------------------------------------------------------------ told by the calls
    def spend(self) -> None:
        """Take one call out of the hour's. Raises CompletionPostponed if none is left."""
        if self.calls_left() == 0:
            wait_s = max(1.0, self._spent[0] + HOUR_S - self._clock())
            raise CompletionPostponed("the hour's calls are spent", retry_after_s=wait_s, shared=True)
        if self._bounds.calls_per_hour:
            self._spent.append(self._clock())

    def refund(self) -> None:
        """Put one call back: it was not made."""
        if self._spent:
            self._spent.pop()

    def answered(self, seconds: float) -> None:
        """A call was answered: let more out, fewer, or as many."""
        at_rest = self._limit <= self._bounds.concurrency
        self._recent_s = _average(self._recent_s, seconds)
        if at_rest or self._usual_s is None:
            self._usual_s = _average(self._usual_s, seconds)
        if self._limit < self._bounds.concurrency:
            self._limit += 1
        elif self._recent_s > _FALLS_BEHIND * self._usual_s:
            self._limit = max(self._bounds.concurrency, self._limit - 1)
        elif self._backlog and max(seconds, self._recent_s) <= _KEEPS_PACE * self._usual_s:
            self._limit = max(self._limit, min(self._limit + 1, self._bounds.peak))

    def hold(self, seconds: float) -> None:
        """Claim nothing for so long: the upstream wants no calls."""
        self._limit = 1
        self._held_until = max(self._held_until, self._clock() + seconds)

    @property
    def _reserved(self) -> int:
        return round(self._bounds.calls_per_hour * self._bounds.reserve)


class Metered:
    """A Completer whose calls are counted against the load."""

    def __init__(
        self,
        completer: Completer,
        load: Load,
        report: Callable[[Call], None] = lambda call: None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._completer, self._load, self._report, self._timer = completer, load, report, timer

    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises what the completer raises, and CompletionPostponed when the
        hour's calls are spent."""
        began = self._timer()
        try:
            self._load.spend()
            answer = await self._called(request)
        except CompletionFailed as error:
            self._report(Call(request.role, _ENDED.get(type(error), "failed"), self._timer() - began))
            raise
        seconds = self._timer() - began
        self._report(Call(request.role, "answered", seconds))
        self._load.answered(seconds)
        return answer

    async def _called(self, request: CompletionRequest) -> str:
        try:
            return await self._completer.complete(request)
        except CompletionPostponed as error:
            self._load.refund()
            # Jobs wait for the extraction's endpoint only: another role may have one of its own.
            if error.shared and error.retry_after_s and request.role == ROLE:
                self._load.hold(error.retry_after_s)
            raise


_ENDED: dict[type[CompletionFailed], Ended] = {
    CompletionPostponed: "postponed",
    CompletionRefused: "refused",
    CredentialNeeded: "no_credential",
}


def _average(so_far: float | None, newest: float) -> float:
    return newest if so_far is None else so_far + _NEWEST * (newest - so_far)
