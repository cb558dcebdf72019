"""Small in-memory caches: what was decided a moment ago, and a pause for something that keeps failing."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

TRIP_AFTER = 3  # failures in a row
REST_S = 30.0


class Recent(Generic[V]):
    """The last `size` values by a digest of what they were made from, each for `lasts_s`; the one used
    longest ago goes first. It holds no text but what is in a value."""

    def __init__(self, clock: Callable[[], float], *, lasts_s: float, size: int) -> None:
        self._clock, self._lasts_s, self._size = clock, lasts_s, size
        self._kept: OrderedDict[bytes, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: bytes) -> bool:
        return key in self._kept and self._kept[key][1] > self._clock()

    def get(self, key: bytes) -> V:
        """Return what was put under a key that is contained."""
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: bytes, value: V) -> None:
        """Keep the value, in place of the one used longest ago."""
        self._kept[key] = (value, self._clock() + self._lasts_s)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def drop(self, prefix: bytes) -> None:
        """Delete the values under all keys that begin so."""
        for key in [key for key in self._kept if key.startswith(prefix)]:
            del self._kept[key]


class Patience:
    """A model that keeps failing, or is too slow, is not waited for again and again: after TRIP_AFTER
    failures in a row it rests for REST_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures, self._rests_until = 0, float("-inf")

    @property
    def rests(self) -> bool:
        """True while the model should not be asked."""
        return self._clock() < self._rests_until

    def succeeded(self) -> None:
        """Count anew."""
        self._failures = 0

    def failed(self) -> bool:
        """Count a failure; returns True where a rest begins with it."""
        self._failures += 1
        if self._failures < TRIP_AFTER:
            return False
        self._failures, self._rests_until = 0, self._clock() + REST_S
        return True
