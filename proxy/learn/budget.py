"""When background work may call the upstream.

By default few calls run at once. When jobs have waited for too long, concurrency grows by one
step with every call that comes back as fast as usual, up to a bound; an upstream that gets slower by it (a
model on one machine answers one request at a time) gets no more. Nor does it grow if this process has no
processor time left: its extractions would take what the users' turns need. When the upstream says stop, one
call runs at a time until one succeeds. The last of an hour's calls, and one slot, are reserved for what users
explicitly ask to be remembered. All processes that share a store share the hourly budget. While the store is
away no call is made: the jobs are in the same store, and what a call found could not be saved.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from proxy.domain.errors import (
    CompletionFailed,
    CompletionPostponed,
    CompletionRefused,
    CredentialNeeded,
    StoreUnavailable,
)
from proxy.domain.limits import HOUR_S, CallQuota, LocalCallQuota, QuotaDecision
from proxy.domain.ports import Clock, Completer, CompletionRequest
from proxy.domain.session import BATCH, EXPLICIT
from proxy.learn.extractor import ROLE

NO_LANE = 0
_LOOK_S = 5.0  # age at which the hour's count is read again: other processes spend calls, too
_AWAY_S = 5.0
_KEEPS_PACE, _FALLS_BEHIND = 1.5, 2.0  # times the usual seconds of a call
_NEWEST = 0.2  # weight of the newest call in an average
_FULL = 0.85  # of one processor: more threads of Python get no further than one
_WINDOW_S = 0.5  # over which processor time is taken


@dataclass(frozen=True, slots=True)
class CallBounds:
    """Calls at once of one process, and calls an hour of all processes. `peak` below `concurrency` counts as
    `concurrency`."""

    concurrency: int = 2
    peak: int = 24  # a thousand jobs in a minute, at a second a call
    calls_per_hour: int = 0  # in any 60 minutes; 0: no bound
    reserve: float = 0.2  # share of them for explicit asks
    patience_s: float = 5.0


Ended = Literal["answered", "failed", "refused", "postponed", "no_credential"]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One of our own calls, for the metrics."""

    role: str
    ended: Ended
    seconds: float


class Load:
    """Limits the worker's lanes and concurrency by how its calls end. Not thread-safe."""

    def __init__(
        self,
        bounds: CallBounds = CallBounds(),
        clock: Clock = time.time,
        calls: CallQuota | None = None,
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        """`calls`: where the hour's are counted; None: in this process. `worked`: its processor seconds."""
        self._bounds, self._clock, self._worked = bounds, clock, worked
        self._seen_at, self._seen_worked, self._full = clock(), worked(), False
        self._calls = calls or LocalCallQuota()
        self._left, self._free_at = bounds.calls_per_hour, 0.0
        self._looked_at = self._look_at = 0.0
        self.limit = bounds.concurrency  # jobs that may run at once now, plus one explicit ask
        self.running = 0  # jobs
        self._backlog = False  # the last job claimed had waited for too long
        self._held_at, self._held_s = 0.0, 0.0
        self._usual_s: float | None = None  # a call takes, with no more than `concurrency` at once
        self._recent_s: float | None = None

    # ---- called by the worker
    def lane(self) -> int:
        """Return the last lane from which a job may be claimed now, or NO_LANE."""
        if self._held_left_s > 0 or self.running > self.limit:
            return NO_LANE
        left = self.calls_left()
        if left is not None:
            left -= self.running
            if left <= 0:
                return NO_LANE
            if left <= round(self._bounds.calls_per_hour * self._bounds.reserve):
                return EXPLICIT
        return BATCH if self.running < self.limit else EXPLICIT

    def calls_left(self) -> int | None:
        """Return how many of the hour's calls are left, as last read; None: unlimited."""
        if not self._bounds.calls_per_hour:
            return None
        return self._left or int(self._clock() >= self._free_at)

    async def look(self) -> None:
        """Read the hour's count again if it is old. Raises StoreUnavailable."""
        knows = self._looked_at <= self._clock() < self._look_at
        if self._bounds.calls_per_hour and not knows:
            self._note(await self._calls.look(self._bounds.calls_per_hour, self._clock()))

    def began(self, *, waited_s: float) -> None:
        """Count a claimed job as running; `waited_s`: from its creation to the claim."""
        self.running += 1
        self._backlog = waited_s > self._bounds.patience_s

    def ended(self) -> None:
        """Count a job as ended."""
        self.running -= 1

    def idle(self) -> None:
        """No job is due: return to the usual concurrency."""
        self._backlog = False
        self.limit = min(self.limit, self._bounds.concurrency)

    # ---- called around each LLM call
    async def spend(self) -> float:
        """Take one of the hour's calls; return its time, for `refund`. Raises CompletionPostponed if none is
        left, or if the store cannot say."""
        if not self._bounds.calls_per_hour:
            return 0.0
        try:
            spent = await self._calls.spend(self._bounds.calls_per_hour, self._clock())
        except StoreUnavailable as error:
            reason = "the store that counts the hour's calls is unavailable"
            raise CompletionPostponed(reason, retry_after_s=_AWAY_S, shared=True) from error
        self._note(spent)
        if not spent.granted:
            wait_s = max(1.0, spent.retry_after_s)
            raise CompletionPostponed("the hour's calls are spent", retry_after_s=wait_s, shared=True)
        return spent.at

    async def refund(self, at: float) -> None:
        """Return a call that was not made. If the store is unavailable, it stays counted."""
        if self._bounds.calls_per_hour:
            with suppress(StoreUnavailable):
                await self._calls.refund(at)
                self._left += 1

    def answered(self, seconds: float) -> None:
        """Adjust the concurrency after an answer that took so long."""
        at_rest = self.limit <= self._bounds.concurrency
        self._recent_s = _average(self._recent_s, seconds)
        if at_rest or self._usual_s is None:
            self._usual_s = _average(self._usual_s, seconds)
        if self.limit < self._bounds.concurrency:
            self.limit += 1
        elif self._is_full() or self._recent_s > _FALLS_BEHIND * self._usual_s:
            self.limit = max(self._bounds.concurrency, self.limit - 1)
        elif self._backlog and max(seconds, self._recent_s) <= _KEEPS_PACE * self._usual_s:
            self.limit = max(self.limit, min(self.limit + 1, self._bounds.peak))

    def hold(self, seconds: float) -> None:
        """Claim no job for so long: the upstream refuses calls."""
        self.limit = 1
        self._held_at, self._held_s = self._clock(), max(self._held_left_s, seconds)

    def _is_full(self) -> bool:
        """True if this process used all its processor time in the last window."""
        now, worked = self._clock(), self._worked()
        passed = now - self._seen_at
        if not 0 <= passed < _WINDOW_S:
            self._full = worked - self._seen_worked > _FULL * passed > 0
            self._seen_at, self._seen_worked = now, worked
        return self._full

    def _note(self, spent: QuotaDecision) -> None:
        now = self._clock()
        self._left, self._looked_at = spent.left, now
        self._free_at = now + (spent.retry_after_s or HOUR_S)
        self._look_at = min(now + _LOOK_S, self._free_at)

    @property
    def _held_left_s(self) -> float:
        """Seconds for which no job may be claimed; 0 also if the clock was set back."""
        since_s = self._clock() - self._held_at
        return max(0.0, self._held_s - since_s) if since_s >= 0 else 0.0


class MeteredCompleter:
    """A Completer that counts its calls against the load."""

    def __init__(
        self,
        completer: Completer,
        load: Load,
        report: Callable[[CallOutcome], None] = lambda call: None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._completer, self._load, self._report, self._timer = completer, load, report, timer

    async def complete(self, request: CompletionRequest) -> str:
        """Return the answer's text. Raises what the completer raises, and CompletionPostponed if the hour's
        calls are spent."""
        began = self._timer()
        try:
            answer = await self._called(request, await self._load.spend())
        except CompletionFailed as error:
            self._report(CallOutcome(request.role, _ENDED.get(type(error), "failed"), self._timer() - began))
            raise
        seconds = self._timer() - began
        self._report(CallOutcome(request.role, "answered", seconds))
        self._load.answered(seconds)
        return answer

    async def _called(self, request: CompletionRequest, spent_at: float) -> str:
        try:
            return await self._completer.complete(request)
        except CompletionPostponed as error:
            await self._load.refund(spent_at)
            # Other roles may have endpoints of their own.
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
