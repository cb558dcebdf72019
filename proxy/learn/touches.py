"""Batch the access counts of memories that were shown in answers which are not stored.

An access only weighs a memory a little: it is not worth a commit of its own within a request. What is noted
is written every few seconds, and by an orderly end; a crash takes the last seconds with it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from proxy.domain.core import Scope
from proxy.domain.ports import Clock, MemoryStore

AT_ONCE = 64
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
            some = [self._noted.popitem() for _ in range(min(AT_ONCE, len(self._noted)))]
            at = self._clock()
            # Side by side: a store that commits in groups makes one commit of them.
            touched = (self._memories.touch(scope, [*ids.elements()], at) for scope, ids in some)
            results = await asyncio.gather(*touched, return_exceptions=True)
            failed = [(one, result) for one, result in zip(some, results, strict=True) if result]
            for (scope, ids), _ in failed:
                self._noted.setdefault(scope, Counter()).update(ids)
            for _, error in failed:
                raise error
