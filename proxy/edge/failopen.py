"""The one place where memory's failures end.

A request must succeed even if memory fails, so all memory work of the request path runs inside
`FailOpen.attempt`: it has a deadline, and whatever goes wrong becomes a `Failed` with a reason for the
response header, a metric, and a log line without content: the first of its kind, then one a minute. An
operation that keeps failing is left out for a moment (circuit breaker), so that a hanging store does not
cost every request its deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from proxy import observe, tracing
from proxy.errors import EmbeddingFailed, StoreError
from proxy.ports import Clock

T = TypeVar("T")

TRIP_AFTER = 3  # failures in a row
TRIP_SILENCE_S = 1.0  # and no success for so long: a burst that is too much for a moment is no hang
REST_S = 2.0  # until the operation is tried again
REMIND_S = 60.0  # between two log lines that say the same


@dataclass(frozen=True, slots=True)
class Failed:
    """Memory work that was left out; `reason` is a word for X-Memory-Reason."""

    reason: str


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    succeeded_at: float = float("-inf")
    open_until: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class _Told:
    """A line of the log that is said once in a while."""

    at: float = float("-inf")
    left_out: int = 0  # since then


class FailOpen:
    """Runs memory work so that nothing it does can harm the request."""

    def __init__(self, clock: Clock, metrics: observe.Metrics) -> None:
        self._clock, self._metrics = clock, metrics
        self._breakers: dict[str, _Breaker] = {}
        self._told: dict[tuple[str, ...], _Told] = {}  # as many as there are operations and kinds of error

    async def attempt(
        self, operation: str, work: Callable[[], Awaitable[T]], deadline_s: float
    ) -> T | Failed:
        """Return what `work` returns within the deadline, else Failed. Cancellation passes through."""
        breaker = self._breakers.setdefault(operation, _Breaker())
        if breaker.open_until > self._clock():
            return Failed(breaker.reason)
        timeout = asyncio.timeout(max(0.0, deadline_s))
        try:
            async with timeout:
                with tracing.span(f"memory.{operation}"):
                    result = await work()
        except TimeoutError as error:
            # A timeout of the work's own is not our deadline.
            failed = Failed("deadline") if timeout.expired() else self._note(operation, "error", error)
        except StoreError as error:
            failed = self._note(operation, "store_unavailable", error)
        except EmbeddingFailed as error:
            failed = self._note(operation, "embedding_failed", error)
        except Exception as error:  # noqa: BLE001  memory's fail-open: see the module's docstring
            failed = self._note(operation, "memory_error", error)
        else:
            breaker.failures, breaker.succeeded_at = 0, self._clock()
            return result
        self._count(operation, breaker, failed)
        return failed

    @property
    def resting(self) -> str | None:
        """The reason of an operation that is being left out now, None while all work."""
        now = self._clock()
        return next((b.reason for b in self._breakers.values() if b.open_until > now), None)

    def _note(self, operation: str, reason: str, error: Exception) -> Failed:
        self._tell("memory.failed", operation=operation, reason=reason, error=type(error).__name__)
        return Failed(reason)

    def _tell(self, event: str, **facts: str) -> None:
        """Log the line, unless it was said less than a minute ago: then the next one counts it."""
        told, now = self._told.setdefault((event, *facts.values()), _Told()), self._clock()
        if now - told.at < REMIND_S:
            told.left_out += 1
            return
        more = {"left_out": told.left_out} if told.left_out else {}
        told.at, told.left_out = now, 0
        observe.log.warning(event, **facts, **more)

    def _count(self, operation: str, breaker: _Breaker, failed: Failed) -> None:
        if failed.reason == "deadline":
            self._tell("memory.deadline", operation=operation)
        self._metrics.failures.labels(operation, failed.reason).inc()
        breaker.failures += 1
        now = self._clock()
        if breaker.failures >= TRIP_AFTER and now - breaker.succeeded_at >= TRIP_SILENCE_S:
            breaker.open_until, breaker.reason = now + REST_S, failed.reason
            breaker.failures = 0
