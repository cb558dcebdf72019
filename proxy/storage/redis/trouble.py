"""Recognise why a Redis that answers cannot take a write: it is full, or cannot persist. Reading may go on
meanwhile.
"""

import time
from collections.abc import Callable

from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from proxy.storage.outages import Outages

FULL = "store_full"  # maxmemory is reached, and there is nothing that it may evict
DISK_FULL = "store_disk_full"  # it cannot write its files
READ_ONLY = "store_read_only"


def kind_of(error: Exception) -> str:
    """Return the trouble that the error tells of; "" for what is no objection of Redis's."""
    if isinstance(error, OutOfMemoryError):
        return FULL
    if isinstance(error, ReadOnlyError | NoPermissionError):
        return READ_ONLY
    return DISK_FULL if isinstance(error, ResponseError) and "MISCONF" in str(error) else ""


class Trouble:
    """What this Redis objects to writes with now. The log says that it is over after a while."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._outages = Outages(steady)
        self.kind = ""  # "": nothing

    def refused(self, error: Exception) -> None:
        """Take note of a write that failed."""
        kind = kind_of(error)
        if not kind:
            return
        if kind != self.kind:
            self._outages.over(self.kind)
            self.kind = kind
        self._outages.failed(kind, "write", type(error).__name__)

    def worked(self) -> None:
        """Take note of a write that came through."""
        if self.kind:
            self._outages.over(self.kind)
            self.kind = ""

    def settle(self) -> None:
        """Have the log say what is over by now. To be called now and then."""
        self._outages.settle()
