"""Classify what is wrong with the database file, in one word: for the log, for /health, and to decide which
operations may still be tried.

Reading and writing fail apart: on a full disk everything that is remembered can still be recalled. Trouble is
over with the first operation of its side that works, so whoever has none under way tries one now and then
(Database.probe); the log waits for a while before it says so. A corrupt file is the exception: it is read as
far as it can be, and not written until a check of all of it has passed, or another file is in its place,
since writing spreads the damage.
"""

import errno
import sqlite3
import time
from collections.abc import Callable
from typing import Literal

from proxy import telemetry
from proxy.storage.damage import DamagedRow
from proxy.storage.outages import REMIND_S, Outages

Side = Literal["read", "write"]

CORRUPT = "store_corrupt"
DISK_FULL = "store_disk_full"
READ_ONLY = "store_read_only"
LOCKED = "store_locked"
UNAVAILABLE = "store_unavailable"  # gone, unreadable, or the disk fails

_BY_CODE = {
    sqlite3.SQLITE_CORRUPT: CORRUPT,
    sqlite3.SQLITE_NOTADB: CORRUPT,
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_IOERR: UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: UNAVAILABLE,
    sqlite3.SQLITE_PERM: UNAVAILABLE,
}
_BY_ERRNO = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EFBIG: DISK_FULL,
    errno.EROFS: READ_ONLY,
}
_PRIMARY = 0xFF  # of an extended result code


def kind_of(error: BaseException) -> str | None:
    """Return the trouble that the error tells of; None for what is no fault of the file's."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return _BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY)
        if isinstance(error, UnicodeDecodeError):
            return CORRUPT  # see file.mapped
        if isinstance(error, OSError):
            return _BY_ERRNO.get(error.errno or 0, UNAVAILABLE)
        cause = error.__cause__
        if cause is None:
            return None
        error = cause
    return None


class Troubles:
    """What is wrong with one file now. Called from the threads that use it."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._now: dict[Side, str] = {}
        self._outages = Outages(steady)
        self._seldom = telemetry.Seldom(steady)
        self._row_told_at = float("-inf")

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
        kind = kind_of(error)
        if kind is None and isinstance(error.__cause__, sqlite3.Error):  # no fault of the file's: ours
            self._seldom.error("store.failed", operation=side, error=_name_of(error))
        if kind is None or (self.is_corrupt and kind != CORRUPT):
            return
        if self._now.get(side) != kind:
            self._over(side)
            self._now[side] = kind
        self._outages.failed(kind, side, _name_of(error))

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


def _name_of(error: BaseException) -> str:
    """Return the system's or SQLite's name for the error: no content, no path."""
    cause = error.__cause__ or error
    name = getattr(cause, "sqlite_errorname", None)
    return str(name or getattr(cause, "strerror", None) or type(cause).__name__)
