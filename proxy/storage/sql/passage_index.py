"""The documents that a process has searched last, as arrays."""

import threading
from collections import OrderedDict

from proxy.storage.exact.library import Key, LibraryIndex


class LibraryCache:
    """Indexes of the users whose documents were searched last, within a bound in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._indexes: OrderedDict[int, LibraryIndex] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, owner: int, key: Key) -> LibraryIndex | None:
        """Return the index made of just this, if it is held."""
        with self._lock:
            index = self._indexes.get(owner)
            if index is None or index.key != key:
                return None
            self._indexes.move_to_end(owner)
            return index

    def put(self, owner: int, index: LibraryIndex) -> None:
        """Hold the index; the least recently used go, but never the one used last."""
        with self._lock:
            self._remove(owner)
            self._indexes[owner] = index
            self._bytes += index.nbytes
            while self._bytes > self._limit and len(self._indexes) > 1:
                self._remove(next(iter(self._indexes)))

    def drop(self, owner: int) -> None:
        """Let go of a user's index: what was forgotten leaves this process's memory too."""
        with self._lock:
            self._remove(owner)

    def _remove(self, owner: int) -> None:
        if (index := self._indexes.pop(owner, None)) is not None:
            self._bytes -= index.nbytes
