"""The EvolutionStore over SQL: see domain/evolution.py for what every method guarantees."""

import json
from collections.abc import Mapping
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.evolution import NEVER, VisitLease
from proxy.storage.sql import users
from proxy.storage.sql.database import Connection, Store, legible, reads, value, writes

AFTER_CHANGE_S = 30.0  # from a change of memories to the user's visit: changes often come in groups
_DUE = """
    INSERT INTO evolution (owner, due_at) VALUES (?, ?)
    ON CONFLICT (owner) DO UPDATE SET due_at = min(evolution.due_at, excluded.due_at)"""
# A lease that ends later than any lease can was made before the clock was set back.
_FREE = "(e.leased_until <= :now OR e.leased_until > :now + 2 * :lease_s)"
_NEXT = f"""
    SELECT e.owner, s.tenant, s.user, e.settings, e.last_at
    FROM evolution e JOIN scopes s ON s.id = e.owner
    WHERE e.due_at <= :now AND {_FREE} AND s.user IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = e.owner)
    ORDER BY e.due_at LIMIT 1"""
# Due again when the lease ends, for the case that its process dies.
_LEASE = (
    f"UPDATE evolution AS e SET leased_until = :until, due_at = :until WHERE e.owner = :owner AND {_FREE}"
)
_RELEASE = """
    UPDATE evolution SET last_at = :at, leased_until = 0,
    due_at = CASE WHEN due_at = :until THEN :due_at ELSE min(due_at, :due_at) END
    WHERE owner = :owner AND leased_until = :until"""
_OWN = """
    SELECT e.settings FROM evolution e JOIN scopes s ON s.id = e.owner WHERE s.tenant = ? AND s.user = ?"""


def make_due(tx: Connection, owner: int, at: float) -> None:
    """Let the user's next visit be due at `at`, if it is not due earlier."""
    tx.execute(_DUE, (owner, at))


class SqlEvolution(Store):
    """Visits of all processes that share the database."""

    async def claim(self, now: float, lease_s: float) -> VisitLease | None:
        """See EvolutionStore. Asked every few seconds: reading first spares other writers the time."""
        asked = {"now": now, "lease_s": lease_s, "until": now + lease_s}
        found = await self._database.read(lambda tx: tx.execute(_NEXT, asked).fetchone())
        if found is None or not await self._lease({**asked, "owner": found[0]}):
            return None
        _, tenant, user, settings, last_at = found
        return VisitLease(Scope(tenant, user), _settings(settings), last_at, now + lease_s)

    @writes
    def _lease(self, tx: Connection, asked: Mapping[str, Any]) -> bool:
        return tx.execute(_LEASE, asked).rowcount > 0

    @writes
    def release(self, tx: Connection, lease: VisitLease, at: float, due_at: float) -> None:
        """See EvolutionStore. What became due since the visit began stays due."""
        if (owner := users.find(tx, lease.scope)) is not None:
            ends = {"at": at, "until": lease.leased_until, "due_at": min(due_at, NEVER), "owner": owner.id}
            tx.execute(_RELEASE, ends)

    @reads
    def own(self, tx: Connection, scope: Scope) -> Mapping[str, Any]:
        """See EvolutionStore."""
        return _settings(value(tx, _OWN, (scope.tenant, scope.user)) or "{}")

    @writes
    def set_own(self, tx: Connection, scope: Scope, own: Mapping[str, Any], at: float) -> None:
        """See EvolutionStore."""
        owner = users.ensure(tx, scope).id
        make_due(tx, owner, at)
        tx.execute("UPDATE evolution SET settings = ? WHERE owner = ?", (json.dumps(dict(own)), owner))


def _settings(text: str) -> Mapping[str, Any]:
    with legible():
        return dict(json.loads(text))
