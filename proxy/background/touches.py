"""Which memories were shown in answers that are not stored, counted together.

An access only weighs a memory a little: it is not worth a commit of its own within a request. What is noted
is written every few seconds, and by an orderly end; a crash takes the last seconds with it.
"""

from collections import Counter
from collections.abc import Sequence

from proxy.domain import Scope
from proxy.ports import Clock, MemoryStore

MOST_SCOPES = 10_000  # while the store is away; of more nothing is noted


class Touches:
    """What was accessed and is not written yet."""

    def __init__(self, memories: MemoryStore, clock: Clock) -> None:
        self._memories, self._clock = memories, clock
        self._noted: dict[Scope, Counter[str]] = {}

    def note(self, scope: Scope, ids: Sequence[str]) -> None:
        """Count an access of each of the scope's memories."""
        if scope in self._noted or len(self._noted) < MOST_SCOPES:
            self._noted.setdefault(scope, Counter()).update(ids)

    async def write(self) -> None:
        """Write what was noted. Raises StoreUnavailable; what is not written stays noted."""
        while self._noted:
            scope = next(iter(self._noted))
            counted = self._noted[scope]
            seen = dict(counted)
            await self._memories.touch(scope, [*Counter(seen).elements()], self._clock())
            counted.subtract(seen)  # what came meanwhile stays
            if not any(counted.values()):
                del self._noted[scope]
