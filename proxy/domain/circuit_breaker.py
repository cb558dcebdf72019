"""The program's one circuit breaker: stops calling what keeps failing, and tries again later."""

import time
from collections.abc import Callable

_NEVER = float("-inf")


class CircuitBreaker:
    """Opens for `open_s` after `trip_after` failures in a row. When that time is over, calls are let through
    again; it closes with a success, and opens again with a failure, for twice as long up to `max_open_s`."""

    def __init__(
        self,
        open_s: float,
        *,
        max_open_s: float | None = None,
        trip_after: int = 1,
        quiet_s: float = 0.0,
        probe_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`quiet_s`: a success within this time keeps it closed: a burst that is too much for a moment is no
        outage. `probe_s`: once it has been open, one call is let through in this time, so that an endpoint
        that comes back is not met at once by all that have waited. `jitter`: up to 1; half of the time is
        multiplied by it."""
        self._open_s, self._max_open_s = open_s, max_open_s or open_s
        self._trip_after, self._quiet_s, self._probe_s = trip_after, quiet_s, probe_s
        self._clock, self._jitter = clock, jitter
        self._failures = self._openings = 0  # both since the last success
        self._opened_at = self._open_until = self._succeeded_at = _NEVER

    @property
    def is_open(self) -> bool:
        """True while no call should be made."""
        return self._clock() < self._open_until

    def acquire(self) -> float:
        """Return 0 if a call may be made, which has to report its outcome; else the seconds to wait."""
        now = self._clock()
        if now < self._open_until:
            return self._open_until - now
        if self._openings:
            self._open_until = now + self._probe_s
        return 0.0

    def succeeded(self) -> None:
        """Close."""
        self._failures = self._openings = 0
        self._open_until, self._succeeded_at = _NEVER, self._clock()

    def failed(self, *, began_at: float | None = None, wanted_s: float | None = None) -> float:
        """Count a failure; return for how many seconds the breaker is open, 0 while it is closed.

        `began_at`: when the call began; calls that were under way together count as one failure. `wanted_s`:
        the time that the other side has asked for.
        """
        now = self._clock()
        if began_at is not None and began_at < self._opened_at:
            self._open_until = max(self._open_until, now + (wanted_s or 0.0))
            return self._open_until - now
        self._failures += 1
        tripped = self._failures >= self._trip_after and now - self._succeeded_at >= self._quiet_s
        if not tripped and not self._openings:
            return 0.0
        self._openings += 1
        length_s = self._length_s() if wanted_s is None else wanted_s + 0.5 * self._open_s * self._jitter()
        self._opened_at, self._open_until = now, now + length_s
        return length_s

    def _length_s(self) -> float:
        full = min(self._max_open_s, self._open_s * 2.0 ** min(self._openings - 1, 30))
        return full * (0.5 + 0.5 * self._jitter())
