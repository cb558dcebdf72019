"""Outages of the database, in one word: for the log, for /health, and to decide which operations may
still be tried.

Reading and writing fail apart: on a full disk everything that is remembered can still be recalled. Trouble is
over with the first operation of its side that works, so a process that has none under way tries one now and
then (Database.probe). A corrupt file is the exception: it is read where it can be, and not written until a
check of all of it has passed, or another file has taken its place, since writing spreads the damage.

The log says that an outage began, once a minute that it lasts, and that it is over. Outages seldom end at
once: on a disk that is nearly full, small writes work between large ones that do not. So an outage is
reported as over only when it has not come back for a while.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxy import telemetry
from proxy.storage.sql.database import DamagedRow

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


Side = Literal["read", "write"]

CORRUPT = "store_corrupt"
DISK_FULL = "store_disk_full"
READ_ONLY = "store_read_only"
LOCKED = "store_locked"  # too many at once: locks, connections, or statements that take too long
UNAVAILABLE = "store_unavailable"  # gone, unreadable, or the disk fails


class Troubles(ABC):
    """What is wrong with one database now. Called from the threads that use it."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._now: dict[Side, str] = {}
        self._outages = Outages(steady)
        self._seldom = telemetry.Seldom(steady)
        self._row_told_at = float("-inf")

    @abstractmethod
    def kind_of(self, error: BaseException) -> str | None:
        """Return the trouble that the error shows; None for what is no fault of the database's."""

    @abstractmethod
    def is_of_engine(self, error: BaseException | None) -> bool:
        """True for an error that the database engine has raised."""

    @abstractmethod
    def name_of(self, error: BaseException) -> str:
        """Return the engine's or the system's name for the error: no content, no path, no password."""

    @property
    def current(self) -> str:
        """The trouble of reading, else of writing, "" where there is none."""
        return self._now.get("read") or self._now.get("write") or ""

    @property
    def of_reading(self) -> str:
        """The trouble of reading, "" where there is none."""
        return self._now.get("read", "")

    @property
    def is_corrupt(self) -> bool:
        """True while the file must not be written."""
        return CORRUPT in self._now.values()

    def failed(self, side: Side, error: BaseException) -> None:
        """Take note of an operation that failed."""
        if isinstance(error, DamagedRow):
            self._tell_of_a_row(side)
        kind = self.kind_of(error)
        if kind is None and self.is_of_engine(error.__cause__):  # the statement is at fault, not the database
            self._seldom.error("store.failed", operation=side, error=self.name_of(error))
        if kind is None or (self.is_corrupt and kind != CORRUPT):
            return
        if self._now.get(side) != kind:
            self._over(side)
            self._now[side] = kind
        self._outages.failed(kind, side, self.name_of(error))

    def worked(self, side: Side) -> None:
        """Take note of an operation that worked: its side has no trouble but that of a corrupt file."""
        if self._now and not self.is_corrupt and side in self._now:
            self._over(side)

    def mended(self) -> None:
        """The file is another now, or was checked and is sound."""
        for side in tuple(self._now):
            self._over(side)

    def settle(self) -> None:
        """Have the log say what is over by now. To be called now and then."""
        self._outages.settle()

    def _tell_of_a_row(self, side: Side) -> None:
        """Say that a row is damaged. No trouble of the file's: it would end with the next sound one."""
        now = self._steady()
        if now - self._row_told_at >= REMIND_S:
            self._row_told_at = now
            telemetry.log.error("store.row_damaged", operation=side)

    def _over(self, side: Side) -> None:
        kind = self._now.pop(side, None)
        if kind is not None and kind not in self._now.values():
            self._outages.over(kind)
