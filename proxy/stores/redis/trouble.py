"""What a Redis that answers has to object: it is full, or cannot write. Reading may go on meanwhile."""

import time
from collections.abc import Callable

from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from proxy import observe

FULL = "store_full"  # maxmemory is reached, and there is nothing that it may evict
DISK_FULL = "store_disk_full"  # it cannot write its files
READ_ONLY = "store_read_only"
REMIND_S = 60.0  # between two log lines about the same trouble


def kind_of(error: Exception) -> str:
    """Return the trouble that the error tells of; "" for what is no objection of Redis's."""
    if isinstance(error, OutOfMemoryError):
        return FULL
    if isinstance(error, ReadOnlyError | NoPermissionError):
        return READ_ONLY
    return DISK_FULL if isinstance(error, ResponseError) and "MISCONF" in str(error) else ""


class Trouble:
    """What this Redis objects to writes with now, and the log of it."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._told_at = self._since = float("-inf")
        self.kind = ""  # "": nothing

    def refused(self, error: Exception) -> None:
        """Take note of a write that failed."""
        kind, now = kind_of(error), self._steady()
        if not kind:
            return
        if kind != self.kind:
            self.kind, self._since, self._told_at = kind, now, float("-inf")
        if now - self._told_at >= REMIND_S:
            self._told_at = now
            observe.log.error("store.trouble", kind=kind, operation="write", error=type(error).__name__)

    def worked(self) -> None:
        """Take note of a write that came through."""
        if self.kind:
            seconds = round(self._steady() - self._since, 1)
            observe.log.warning("store.recovered", kind=self.kind, operation="write", seconds=seconds)
            self.kind = ""
