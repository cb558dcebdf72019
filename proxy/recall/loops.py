"""One block for one tool loop: each request of a loop repeats the conversation so far, and a provider reuses
its cached prompt only up to the first byte that differs.

The block is placed before the user's last message. If it changed from step to step, because a fact was
learnt or because a tool's output shows a memory already, everything behind it would be read again. So a
block holds until the user speaks again; a forget ends it at once.
"""

import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b

from proxy.domain.core import Prepared, Stamp, Turn
from proxy.domain.errors import StoreError
from proxy.domain.limits import TTLCache
from proxy.domain.ports import MemoryStore
from proxy.recall.session import exchange_key, opening

LASTS_S = 3600.0  # after the last step
SIZE = 512


class ToolLoops:
    """Blocks prepared in this process for questions that may take several requests to answer."""

    def __init__(self, memories: MemoryStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._memories = memories
        self._prepared = TTLCache[bytes, Prepared](SIZE, ttl_s=LASTS_S, clock=clock)
        self._generations = TTLCache[bytes, int](SIZE, ttl_s=LASTS_S, clock=clock)  # by user

    async def prepared(self, turn: Turn, prepare: Callable[[], Awaitable[Prepared]]) -> Prepared:
        """Return what was prepared when the question was asked, if the turn continues its answer and nothing
        was forgotten since; else what `prepare` makes."""
        begins = opening(turn.messages) if turn.may_loop else ()
        stamp = await self._stamp(turn) if begins else None
        if stamp is None:
            return await prepare()
        owner = _digest(turn.scope.tenant, turn.scope.user)
        self._see(owner, stamp.generation)
        key = owner + _key(turn, exchange_key(turn.session_id, begins))
        goes_on = len(turn.messages) > len(begins)
        prepared = (self._prepared.get(key) if goes_on else None) or await prepare()
        if self._generations.get(owner) == stamp.generation:
            self._prepared.put(key, prepared)
        return prepared

    async def _stamp(self, turn: Turn) -> Stamp | None:
        try:
            return await self._memories.stamp(turn.scope)
        except StoreError:
            return None

    def _see(self, owner: bytes, generation: int) -> None:
        """Delete what is held of the user if the user forgot something since."""
        if self._generations.get(owner) != generation:
            for key in self._prepared:
                if key.startswith(owner):
                    self._prepared.pop(key)
        self._generations.put(owner, generation)


def _key(turn: Turn, conversation: str) -> bytes:
    asked = turn.options
    return _digest(
        turn.scope.project, asked.types, asked.limit, asked.threshold, turn.tool_forced, conversation
    )


def _digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
