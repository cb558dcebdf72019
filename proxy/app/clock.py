"""A clock that does not follow sudden jumps of the system's time.

Job deadlines, idle sessions, expiry and retention all depend on the time of day. When it jumps, by an
operator's slip, a failing battery or a virtual machine that is moved, whatever was to last a day is over,
or stands still for one. So a jump is not believed at once: time goes on as before, and only when the system
clock has kept to its new time for `PATIENCE_S` is that adopted. Small corrections are followed.
"""

import threading
import time
from collections.abc import Callable

from proxy import telemetry

JUMP_S = 5.0  # NTP slews what is less than half a second, and steps what is more, seldom by seconds
PATIENCE_S = 600.0


def elapsed() -> float:
    """Return seconds that only ever go by; a sleep of the machine counts where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """A ports.Clock: Unix seconds, without jumps."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = elapsed,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._wall, self._elapsed, self._patience_s = wall, elapsed, patience_s
        self._lock = threading.Lock()
        self._offset = wall() - elapsed()  # what makes the time of day of what has elapsed
        self._jumped: tuple[float, float] | None = None  # the offset after a jump, and since when

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            elapsed = self._elapsed()
            offset = self._wall() - elapsed
            if abs(offset - self._offset) < JUMP_S:
                self._offset, self._jumped = offset, None
            elif self._jumped is None or abs(offset - self._jumped[0]) >= JUMP_S:
                self._jumped = offset, elapsed
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=False)
            elif elapsed - self._jumped[1] >= self._patience_s:
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=True)
                self._offset, self._jumped = offset, None
            return elapsed + self._offset
