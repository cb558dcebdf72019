"""The program's one cache: bounded, least recently used out first, with an optional time to live."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Values for at most `ttl_s` each, and of at most `max_size` together. Safe to use from threads.

    A value counts as one, or as what `size_of` says; one that is larger than `max_size` is not stored.
    """

    def __init__(
        self,
        max_size: int,
        *,
        ttl_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        size_of: Callable[[V], int] = lambda _: 1,
    ) -> None:
        self._max_size, self._ttl_s, self._clock, self._size_of = max_size, ttl_s, clock, size_of
        self._entries: OrderedDict[K, tuple[V, float, int]] = OrderedDict()  # value, expiry, size
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value, which is the most recently used from now on; None if it is absent or expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._clock() >= entry[1]:
                self._remove(key)
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Store the value, and evict the least recently used ones beyond `max_size`."""
        size = self._size_of(value)
        with self._lock:
            self._remove(key)
            if size > self._max_size:
                return
            self._entries[key] = (value, self._clock() + self._ttl_s, size)
            self._size += size
            while self._size > self._max_size:
                self._remove(next(iter(self._entries)))

    def pop(self, key: K) -> None:
        """Remove the value if it is there."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys, those of expired values too."""
        with self._lock:
            return iter(list(self._entries))

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and self._clock() < entry[1]

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._size -= entry[2]
