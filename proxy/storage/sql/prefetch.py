"""After a start, bring in those who may come back: their first question need not wait for their rows.

To read a user of a hundred memories takes a third of what all else of a recall does. It is done a little at a
time, until the caches are mostly full: what nobody asks for must not push out what somebody does. First come
those whose talks were extracted last, then those who were there last.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from proxy.domain.core import Scope
from proxy.domain.errors import DamagedRow, StoreUnavailable
from proxy.storage.sql.connection import Connection, Database

AT_MOST = 2_000  # users are looked up; the caches hold fewer, unless these have few memories
STEP_S = 0.5  # of each round of upkeep
_LATEST = """
    SELECT tenant, user FROM (
        SELECT id, tenant, user, served, memories FROM scopes ORDER BY served DESC, id DESC LIMIT ?
    ) latest
    WHERE user IS NOT NULL AND memories BETWEEN 1 AND ? ORDER BY served DESC, id DESC
"""

BringIn = Callable[[Connection, Scope], object]
"""Reads a user's memories into the caches."""


class Prefetch:
    """Who is to be brought in, one by one."""

    def __init__(
        self,
        database: Database,
        bring_in: BringIn,
        has_room: Callable[[], bool],
        few: int,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._bring_in, self._has_room = bring_in, has_room
        self._steady = steady
        self._few = few  # who has more memories than these is left out
        self._waiting: deque[Scope] | None = None  # None: not looked up yet

    async def step(self) -> None:
        """Bring in the next few; where the store cannot be read, nobody any more."""
        try:
            if self._waiting is None:
                self._waiting = await self._database.read(self._latest)
            end = self._steady() + STEP_S
            while self._waiting and self._has_room() and self._steady() < end:
                await self._database.read(partial(self._one, self._waiting.popleft()))
        except StoreUnavailable:
            self._waiting = deque()

    def _latest(self, tx: Connection) -> deque[Scope]:
        return deque(Scope(*name) for name in tx.execute(_LATEST, (AT_MOST, self._few)))

    def _one(self, scope: Scope, tx: Connection) -> None:
        with suppress(DamagedRow):  # whoever asks for it will be told
            self._bring_in(tx, scope)
