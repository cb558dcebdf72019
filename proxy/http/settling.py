"""Answers that a client has, and the disk a moment later: its next request may come in between.

A request that brings nothing of its conversation is told of it from the disk, and waits for the answer before
it, some milliseconds. Answers of other processes are not waited for.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.domain.core import Scope, Turn

WAIT_S = 0.05  # longer, and the request goes on with what is on disk


class Settling:
    """What was answered in each session and is being written down."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[Scope, str], set[asyncio.Event]] = {}

    @contextmanager
    def answered(self, turn: Turn) -> Iterator[None]:
        """The client has the turn's answer; at the end of the block it is on disk."""
        key, done = (turn.scope, turn.session_id), asyncio.Event()
        under_way = self._under_way.setdefault(key, set())
        under_way.add(done)
        try:
            yield
        finally:
            done.set()
            under_way.discard(done)
            if not under_way:
                self._under_way.pop(key, None)

    async def settled(self, turn: Turn, within_s: float) -> None:
        """Wait until what was answered in the turn's session is on disk, if the turn needs to know of it."""
        under_way = self._under_way.get((turn.scope, turn.session_id))
        if not under_way or not (turn.standalone or turn.continues):
            return
        try:
            async with asyncio.timeout(max(0.0, min(within_s, WAIT_S))):
                for done in tuple(under_way):
                    await done.wait()
        except TimeoutError:
            pass  # its deadline is dearer to the request
