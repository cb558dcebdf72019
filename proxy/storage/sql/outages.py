"""Outages of the database, in one word: for the log, for /health, and to decide which operations may
still be tried.

Reading and writing fail apart: on a full disk everything that is remembered can still be recalled. An outage
is over with the first operation of its side that works, so an idle process tries one now and then
(Database.probe). A corrupt file is the exception: it is read where it can be, and not written until a
check of all of it has passed, or another file has taken its place, since writing spreads the damage.

The log says that an outage began, once a minute that it lasts, and that it is over. Outages seldom end at
once: on a disk that is nearly full, small writes work between large ones that do not. So the log reports one
as over only when it has not come back for a while.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxy import telemetry
from proxy.storage.sql.database import DamagedRow

Side = Literal["read", "write"]

CORRUPT = "store_corrupt"
DISK_FULL = "store_disk_full"
READ_ONLY = "store_read_only"
LOCKED = "store_locked"  # too many at once: locks, connections, or statements that take too long
UNAVAILABLE = "store_unavailable"  # missing, unreadable, or the disk fails

REMIND_S = 60.0  # between two log lines about the same outage
HOLD_S = 10.0  # without a failure until it is over; longer than a write waits for a lock


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the errors of one database engine mean."""

    kind_of: Callable[[BaseException], str | None]  # the outage that an error shows, None for another fault
    name_of: Callable[[BaseException], str]  # the engine's name for an error: no content, path or password
    engine_error: type[Exception]


@dataclass(slots=True)
class _Outage:
    operation: Side
    since: float
    logged_at: float = float("-inf")
    over_at: float | None = None  # None: it lasts


class Outages:
    """What is wrong with one database now. May be called from the threads that use it."""

    def __init__(self, diagnosis: Diagnosis, steady: Callable[[], float] = time.monotonic) -> None:
        self._diagnosis, self._steady = diagnosis, steady
        self._now: dict[Side, str] = {}
        self._open: dict[str, _Outage] = {}  # as the log has it, by kind
        self._seldom = telemetry.ThrottledLog(steady)

    @property
    def current(self) -> str:
        """What is wrong with reading, else with writing; "" for nothing."""
        return self._now.get("read") or self._now.get("write") or ""

    @property
    def of_reading(self) -> str:
        """What is wrong with reading; "" for nothing."""
        return self._now.get("read", "")

    @property
    def is_corrupt(self) -> bool:
        """True while the file must not be written."""
        return CORRUPT in self._now.values()

    def failed(self, side: Side, error: BaseException) -> None:
        """Record an operation that failed."""
        if isinstance(error, DamagedRow):  # no outage: it would end with the next sound row
            self._seldom.error("store.row_damaged", operation=side)
        kind, name = self._diagnosis.kind_of(error), self._diagnosis.name_of(error)
        if kind is None and isinstance(error.__cause__, self._diagnosis.engine_error):
            self._seldom.error("store.failed", operation=side, error=name)  # the statement's fault
        if kind is None or (self.is_corrupt and kind != CORRUPT):
            return
        if self._now.get(side) != kind:
            self._end(side)
            self._now[side] = kind
        self.settle()
        now = self._steady()
        outage = self._open.setdefault(kind, _Outage(side, now))
        outage.over_at = None
        if now - outage.logged_at >= REMIND_S:
            outage.logged_at = now
            telemetry.log.error("store.trouble", kind=kind, operation=side, error=name)

    def worked(self, side: Side) -> None:
        """Record an operation that worked: nothing is wrong with its side, unless the file is corrupt."""
        if side in self._now and not self.is_corrupt:
            self._end(side)

    def repaired(self) -> None:
        """The file is another now, or was checked and is sound."""
        for side in tuple(self._now):
            self._end(side)

    def settle(self) -> None:
        """Log what has been over for a while. To be called now and then."""
        for kind, outage in tuple(self._open.items()):
            over_at = outage.over_at
            if over_at is None or self._steady() - over_at < HOLD_S:
                continue
            if self._open.pop(kind, None) is not None:  # not by another thread
                seconds = round(over_at - outage.since, 1)
                telemetry.log.warning(
                    "store.recovered", kind=kind, operation=outage.operation, seconds=seconds
                )

    def _end(self, side: Side) -> None:
        kind = self._now.pop(side, "")
        outage = self._open.get(kind)
        if outage is not None and outage.over_at is None and kind not in self._now.values():
            outage.over_at = self._steady()
        self.settle()
