"""What the processes of a store share beside users' data: API keys, what models were found to accept, and
the hourly quota of model calls. See ports.KeyStore, ports.FormStore and limits.CallQuota.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.domain import limits
from proxy.domain.limits import QuotaDecision
from proxy.domain.ports import Key, latest_forms
from proxy.storage.sql import users
from proxy.storage.sql.database import Connection, Database, legible

# ---------------------------------------------------------------- API keys
_SELECT_KEY = "SELECT id, name, tenant, user, rights, upstream_key, created_at, revoked_at FROM keys"


class SqlKeys:
    """The keys of all processes that share the file: one revoked anywhere is revoked everywhere at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: Key, digest: bytes) -> None:
        def work(tx: Connection) -> None:
            tx.execute(
                "INSERT INTO keys"
                " (id, digest, name, tenant, user, rights, upstream_key, created_at, revoked_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (key.id, digest, key.name, key.tenant, key.user, json.dumps(sorted(key.rights)),
                 key.upstream_key, key.created_at, key.revoked_at),
            )  # fmt: skip

        await self._database.write(work)

    async def find(self, digest: bytes) -> Key | None:
        def work(tx: Connection) -> Key | None:
            row = tx.execute(f"{_SELECT_KEY} WHERE digest = ?", (digest,)).fetchone()
            return _read(row) if row else None

        return await self._database.read(work)

    async def list(self) -> Sequence[Key]:
        def work(tx: Connection) -> Sequence[Key]:
            return [_read(row) for row in tx.execute(f"{_SELECT_KEY} ORDER BY seq DESC")]

        return await self._database.read(work)

    async def revoke(self, key_id: str, at: float) -> bool:
        def work(tx: Connection) -> bool:
            # Its digest stays, so that the key is known as revoked; the upstream's is of no more use.
            done = tx.execute(
                "UPDATE keys SET revoked_at = ?, upstream_key = NULL WHERE id = ? AND revoked_at IS NULL",
                (at, key_id),
            )
            return done.rowcount > 0

        return await self._database.write(work)


def _read(row: tuple[Any, ...]) -> Key:
    id_, name, tenant, user, rights, upstream_key, created_at, revoked_at = row
    with legible():
        allowed = frozenset(json.loads(rights))
    return Key(
        id=id_, name=name, tenant=tenant, user=user, rights=allowed,
        upstream_key=upstream_key, created_at=created_at, revoked_at=revoked_at,
    )  # fmt: skip


# ---------------------------------------------------------------- forms
_FORMS = "forms"  # of `meta`: one JSON object


class SqlForms:
    """A thousand short rows at most, in one row of the file: they change seldom."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Mapping[str, str]:
        """As FormStore says."""
        return await self._database.read(rows_of)

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """As FormStore says."""

        def work(tx: Connection) -> None:
            found = {**rows_of(tx, lock=True), **rows}
            latest = {key: found[key] for key in latest_forms(found)[:most]}
            keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            tx.execute(keep, (_FORMS, json.dumps(latest)))

        await self._database.write(work)


def rows_of(tx: Connection, *, lock: bool = False) -> dict[str, str]:
    """Return all rows; none where they cannot be read, since all of it can be learnt again."""
    row = users.shared_row(tx, _FORMS, lock=lock)
    try:
        found = json.loads(row[0]) if row else {}
    except (ValueError, TypeError):
        return {}
    return (
        {key: value for key, value in found.items() if isinstance(value, str)}
        if isinstance(found, dict)
        else {}
    )


# ---------------------------------------------------------------- calls
_CALLS = "calls"  # of `meta`: the times, oldest first


class SqlCalls:
    """A few thousand times at most, in one row: a call takes longer than to write it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        """As CallQuota says."""

        def work(tx: Connection) -> QuotaDecision:
            times, spent = limits.spend_call(_times(tx, lock=True), limit, now)
            _keep(tx, times)
            return spent

        return await self._database.write(work)

    async def look(self, limit: int, now: float) -> QuotaDecision:
        """As CallQuota says."""
        _, found = limits.calls_left(await self._database.read(_times), limit, now)
        return found

    async def refund(self, at: float) -> None:
        """As CallQuota says."""

        def work(tx: Connection) -> None:
            times = _times(tx, lock=True)
            if at in times:
                times.remove(at)
                _keep(tx, times)

        await self._database.write(work)


def _times(tx: Connection, *, lock: bool = False) -> list[float]:
    row = users.shared_row(tx, _CALLS, lock=lock)
    with legible():
        return sorted(json.loads(row[0])) if row else []


def _keep(tx: Connection, times: Sequence[float]) -> None:
    keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    tx.execute(keep, (_CALLS, json.dumps(times)))
