"""Log an outage without flooding the log: that it began, once a minute while it lasts, and that it is over.

Outages seldom end at once: on a disk that is nearly full, small writes work between large ones that do not.
So an outage is reported as over only when it has not come back for a while; until then it is the same one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proxy import telemetry

REMIND_S = 60.0  # between two log lines about the same trouble
HOLD_S = 10.0  # without trouble until it is over; longer than a write waits for a lock


@dataclass(slots=True)
class _Outage:
    """One trouble, from its beginning until it is said to be over."""

    operation: str
    since: float
    told_at: float = float("-inf")
    over_at: float | None = None  # None: it lasts


class Outages:
    """Troubles of one place, by kind. May be called from several threads."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._open: dict[str, _Outage] = {}

    def failed(self, kind: str, operation: str, error: str) -> None:
        """Take note that an operation failed. `error`: its name, no content."""
        self.settle()
        now = self._steady()
        outage = self._open.setdefault(kind, _Outage(operation, now))
        outage.over_at = None
        if now - outage.told_at >= REMIND_S:
            outage.told_at = now
            telemetry.log.error("store.trouble", kind=kind, operation=operation, error=error)

    def over(self, kind: str) -> None:
        """Take note that it works again: for good, if the kind does not come back before `HOLD_S`."""
        outage = self._open.get(kind)
        if outage is not None and outage.over_at is None:
            outage.over_at = self._steady()
        self.settle()

    def settle(self) -> None:
        """Say of those that have not come back that they are over. To be called now and then."""
        for kind, outage in tuple(self._open.items()):
            over_at = outage.over_at
            if over_at is None or self._steady() - over_at < HOLD_S:
                continue
            if self._open.pop(kind, None) is not None:
                seconds = round(over_at - outage.since, 1)
                telemetry.log.warning(
                    "store.recovered", kind=kind, operation=outage.operation, seconds=seconds
                )
