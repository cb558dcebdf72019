"""The hourly quota of our own model calls, shared by all processes of one data directory. See calls.Calls."""

import json
from collections.abc import Sequence

from proxy.domain import calls
from proxy.domain.calls import Spent
from proxy.storage.damage import legible
from proxy.storage.sql import owners
from proxy.storage.sql.connection import Connection, Database

_KEY = "calls"  # of `meta`: the times, oldest first


class SqlCalls:
    """A few thousand times at most, in one row: a call takes longer than to write it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spend(self, limit: int, now: float) -> Spent:
        """As Calls says."""

        def work(tx: Connection) -> Spent:
            times, spent = calls.spend(_times(tx, lock=True), limit, now)
            _keep(tx, times)
            return spent

        return await self._database.write(work)

    async def look(self, limit: int, now: float) -> Spent:
        """As Calls says."""
        _, found = calls.judge(await self._database.read(_times), limit, now)
        return found

    async def refund(self, at: float) -> None:
        """As Calls says."""

        def work(tx: Connection) -> None:
            times = _times(tx, lock=True)
            if at in times:
                times.remove(at)
                _keep(tx, times)

        await self._database.write(work)


def _times(tx: Connection, *, lock: bool = False) -> list[float]:
    row = owners.shared_row(tx, _KEY, lock=lock)
    with legible():
        return sorted(json.loads(row[0])) if row else []


def _keep(tx: Connection, times: Sequence[float]) -> None:
    keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    tx.execute(keep, (_KEY, json.dumps(times)))
