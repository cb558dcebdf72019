"""One block for one tool loop: each request of a loop repeats the conversation so far, and a provider reuses
its cached prompt only up to the first byte that differs.

The block stands before the user's last message. If it changed from step to step, because a fact was learnt or
because a tool's output shows a memory already, everything behind it would be read again. So a block holds
until the user speaks again; a forget ends it at once.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b

from proxy.domain import Prepared, Stamp, Turn
from proxy.errors import StoreError
from proxy.pipeline.recent import Recent
from proxy.pipeline.session import exchange_key, opening
from proxy.ports import MemoryStore

LASTS_S = 3600.0  # after the last step
SIZE = 512


@dataclass(frozen=True, slots=True)
class _Held:
    prepared: Prepared
    generation: int


class ToolLoops:
    """What was prepared for the questions of this process whose answers may take several requests."""

    def __init__(self, memories: MemoryStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._memories = memories
        self._recent: Recent[_Held] = Recent(clock, lasts_s=LASTS_S, size=SIZE)

    async def prepared(self, turn: Turn, prepare: Callable[[], Awaitable[Prepared]]) -> Prepared:
        """Return what was prepared when the question was asked, if the turn continues its answer and nothing
        was forgotten since; else what `prepare` makes."""
        begins = opening(turn.messages) if turn.may_loop else ()
        stamp = await self._stamp(turn) if begins else None
        if stamp is None:
            return await prepare()
        key = _key(turn, exchange_key(turn.session_id, begins))
        if len(turn.messages) > len(begins) and key in self._recent:
            held = self._recent.get(key)
            if held.generation == stamp.generation:
                self._recent.put(key, held)
                return held.prepared
        prepared = await prepare()
        self._recent.put(key, _Held(prepared, stamp.generation))
        return prepared

    async def _stamp(self, turn: Turn) -> Stamp | None:
        try:
            return await self._memories.stamp(turn.scope)
        except StoreError:
            return None


def _key(turn: Turn, conversation: str) -> bytes:
    scope, asked = turn.scope, turn.options
    what = (
        scope.tenant,
        scope.user,
        scope.project,
        asked.types,
        asked.limit,
        asked.threshold,
        turn.tool_forced,
    )
    return blake2b(f"{what!r} {conversation}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
