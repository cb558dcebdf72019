"""The Quarantine over SQL: see ports.Quarantine for what every method guarantees.

Nothing but this module and a forget reads or writes the table: what is held is no memory.
"""

import json
from collections.abc import Sequence
from typing import Any

from proxy.domain.core import Candidate, Evidence, Hold, Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import Held
from proxy.storage.damage import legible
from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection, Database

MOST_HELD = 1000  # of one user; beyond that the oldest goes: a flood must not fill the disk

_HELD = """
    SELECT q.seq, q.id, s.tenant, s.user, q.project, q.reason, q.at, q.type, q.content, q.confidence, q.tags,
           q.span, q.replaces, q.source, q.importance, q.observed_at, q.expires_at, q.session_id,
           q.exchange_id
    FROM quarantine q JOIN scopes s ON s.id = q.owner
    WHERE s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR q.project = :project)
"""
_TRIM = """
    DELETE FROM quarantine WHERE owner = :owner AND seq <= (
        SELECT seq FROM quarantine WHERE owner = :owner ORDER BY seq DESC LIMIT 1 OFFSET :most)
"""


class SqlQuarantine:
    """What is held, for its owner to look at."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def held(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Held]:
        def work(tx: Connection) -> Sequence[Held]:
            before = _cursor(tx, scope, after)
            query = f"{_HELD} AND (:before IS NULL OR q.seq < :before) ORDER BY q.seq DESC LIMIT :limit"
            return [_read(row) for row in tx.execute(query, _of(scope) | {"before": before, "limit": limit})]

        return await self._database.read(work)

    async def find(self, scope: Scope, held_id: str) -> Held | None:
        row = await self._database.read(lambda tx: _find(tx, scope, held_id))
        return _read(row) if row else None


def hold(tx: Connection, owner: int, project: str | None, change: Hold) -> bool:
    """Put the candidate in, unless it is there; no search can tell the difference (False)."""
    candidate, origin = change.candidate, change.candidate.origin or Evidence("", "")
    tx.execute(
        "INSERT INTO quarantine (id, owner, project, type, content, reason, source, confidence, importance,"
        " tags, replaces, observed_at, expires_at, session_id, exchange_id, span, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (change.id, owner, project, candidate.type, rows.storable(candidate.content), change.reason,
         candidate.source, candidate.confidence, candidate.importance, json.dumps(candidate.tags),
         candidate.replaces, candidate.observed_at, candidate.expires_at, origin.session_id,
         origin.exchange_id, rows.storable(origin.span or candidate.evidence), change.at),
    )  # fmt: skip
    tx.execute(_TRIM, {"owner": owner, "most": MOST_HELD})
    return False


def release(tx: Connection, owner: int, held_id: str) -> bool:
    """Take the candidate out, if it is there; no search can tell the difference (False)."""
    tx.execute("DELETE FROM quarantine WHERE owner = ? AND id = ?", (owner, rows.storable(held_id)))
    return False


def _find(tx: Connection, scope: Scope, held_id: str) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = tx.execute(
        f"{_HELD} AND q.id = :id", _of(scope) | {"id": rows.storable(held_id)}
    ).fetchone()
    return row


def _cursor(tx: Connection, scope: Scope, after: str | None) -> int | None:
    if after is None:
        return None
    row = _find(tx, Scope(scope.tenant, scope.user), after)
    if row is None:
        raise NotFound("Nothing is held under this id.", param="after")
    return int(row[0])


def _of(scope: Scope) -> dict[str, Any]:
    return {"tenant": scope.tenant, "user": scope.user, "project": scope.project}


def _read(row: tuple[Any, ...]) -> Held:
    _, id_, tenant, user, project, reason, at, type_, content, confidence, tags, span, *more = row
    replaces, source, importance, observed_at, expires_at, session_id, exchange_id = more
    origin = Evidence(session_id, exchange_id, span) if session_id or exchange_id else None
    with legible():
        named = tuple(json.loads(tags))
    candidate = Candidate(
        type=type_, content=content, confidence=confidence, tags=named, evidence=span,
        replaces=replaces, source=source, importance=importance, observed_at=observed_at,
        expires_at=expires_at, origin=origin,
    )  # fmt: skip
    return Held(id=id_, scope=Scope(tenant, user, project), candidate=candidate, reason=reason, at=at)
