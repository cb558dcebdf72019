"""What is wrong with the database, in one word: for the log, for /health, and to decide which operations may
still be tried.

Reading and writing fail apart: on a full disk everything that is remembered can still be recalled. Trouble is
over with the first operation of its side that works, so a process that has none under way tries one now and
then (Database.probe); the log waits for a while before it says so. A corrupt file is the exception: it is
read where it can be, and not written until a check of all of it has passed, or another file has taken its
place, since writing spreads the damage.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from proxy import telemetry
from proxy.storage.damage import DamagedRow
from proxy.storage.outages import REMIND_S, Outages

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
