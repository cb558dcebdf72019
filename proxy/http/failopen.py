"""Fail-open: the one place where errors of memory end.

A request must succeed even if memory fails, so all memory work of the request path runs inside
`FailOpen.attempt`: it has a deadline, and every error becomes a `Failed` with a reason for the response
header, a metric, and a log line without content (the first of its kind, then one a minute). An operation that
keeps failing is skipped for a moment (circuit breaker), so that a hanging store does not cost every request
its deadline. Errors caused by one user's rows do not count.

`RecallLimiter` limits how many turns memory works for at once (a bulkhead). In a burst, first come, first
served would let every turn wait until its deadline has almost passed. So the latest is next: it has the most
time left, and those that cannot be served in time cost nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

from proxy import telemetry
from proxy.domain.core import Reason
from proxy.domain.errors import DamagedRow, EmbeddingFailed, StoreError
from proxy.domain.limits import CircuitBreaker

TURNS_AT_ONCE = 6  # more keep no more threads busy, and in a burst make all of them late


class RecallLimiter:
    """A semaphore that serves the latest first, as an async context manager. Belongs to one event loop."""

    def __init__(self, slots: int = TURNS_AT_ONCE) -> None:
        self._free = slots
        self._waiting: list[asyncio.Future[None]] = []  # in the order in which they came

    async def __aenter__(self) -> None:
        """Wait for a slot."""
        if self._free:
            self._free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                self._waiting.remove(mine)
            else:  # it was given the slot and cancelled at the same moment
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if waiting := next((w for w in reversed(self._waiting) if not w.done()), None):
            self._waiting.remove(waiting)
            waiting.set_result(None)
        else:
            self._free += 1


# ---------------------------------------------------------------- fail-open
T = TypeVar("T")

TRIP_AFTER = 3  # failures in a row
TRIP_SILENCE_S = 1.0  # and no success for so long: a short burst is not a hang
OPEN_S = 2.0  # until the operation is tried again


@dataclass(frozen=True, slots=True)
class Failed:
    """Memory work that was skipped or failed, and why."""

    reason: Reason


class FailOpen:
    """Runs memory work so that nothing it does can harm the request."""

    def __init__(self, steady: Callable[[], float], metrics: telemetry.Metrics) -> None:
        """`steady`: a monotonic clock; changes of the wall clock must not extend an open breaker."""
        self._steady, self._metrics = steady, metrics
        self._breakers: dict[str, CircuitBreaker] = {}
        self._reasons: dict[str, Reason] = {}  # of the failures that opened them
        self._seldom = telemetry.ThrottledLog(steady)

    async def attempt(
        self,
        operation: str,
        work: Callable[[], Awaitable[T]],
        deadline_s: float,
        limiter: RecallLimiter | None = None,
    ) -> T | Failed:
        """Return what `work` returns within the deadline, else Failed. Cancellation passes through.

        `limiter`: the work first waits for a slot of it. If none is free in time the reason is BUSY, which
        the circuit breaker does not count: it says nothing about the operation."""
        breaker = self._breaker(operation)
        if breaker.is_open:
            return Failed(self._reasons[operation])
        timeout = asyncio.timeout(max(0.0, deadline_s))
        begun, counts = False, True  # counts: the failure may concern other requests as well
        try:
            async with timeout, limiter or nullcontext():
                begun = True
                with telemetry.span(f"memory.{operation}"):
                    result = await work()
        except TimeoutError as error:
            if not begun:
                failed, counts = Failed(Reason.BUSY), False
            elif timeout.expired():
                failed = Failed(Reason.DEADLINE)
            else:  # a timeout of the work's own
                failed = self._note(operation, Reason.ERROR, error)
        except StoreError as error:
            failed = self._note(operation, Reason.STORE_UNAVAILABLE, error)
            counts = not isinstance(error, DamagedRow)
        except EmbeddingFailed as error:
            failed = self._note(operation, Reason.EMBEDDING_FAILED, error)
        except Exception as error:  # noqa: BLE001  memory's fail-open: see the module's docstring
            failed = self._note(operation, Reason.MEMORY_ERROR, error)
        else:
            breaker.succeeded()
            return result
        self._count(operation, failed)
        if counts and breaker.failed():
            self._reasons[operation] = failed.reason
        return failed

    @property
    def resting(self) -> Reason | None:
        """The reason of an operation that is skipped now, None while all work."""
        return next((self._reasons[name] for name, each in self._breakers.items() if each.is_open), None)

    def _breaker(self, operation: str) -> CircuitBreaker:
        if operation not in self._breakers:
            self._breakers[operation] = CircuitBreaker(
                OPEN_S, trip_after=TRIP_AFTER, quiet_s=TRIP_SILENCE_S, clock=self._steady
            )
        return self._breakers[operation]

    def _note(self, operation: str, reason: Reason, error: Exception) -> Failed:
        self._seldom.warning(
            "memory.failed", operation=operation, reason=reason.value, error=type(error).__name__
        )
        return Failed(reason)

    def _count(self, operation: str, failed: Failed) -> None:
        self._metrics.failures.labels(operation, failed.reason.value).inc()
        if failed.reason in (Reason.DEADLINE, Reason.BUSY):
            self._seldom.warning(f"memory.{failed.reason.value}", operation=operation)
