"""The Quarantine over Redis: see ports.Quarantine for what every method guarantees.

Nothing but this module and a forget reads or writes the table: what is held is no memory.
"""

from collections.abc import Sequence

from proxy.domain.core import Candidate, Evidence, Hold, Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import Held
from proxy.storage.redis.layout import HeldRow, storable
from proxy.storage.redis.unit import Unit, Units

MOST_HELD = 1000  # of one user; beyond that the oldest goes: a flood must not fill the store


class RedisQuarantine:
    """What is held, for its owner to look at."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def held(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Held]:
        async def work(unit: Unit) -> Sequence[Held]:
            rows: dict[str, HeldRow] = await unit.table("held").all()
            before = rows.get(storable(after)) if after is not None else None
            if after is not None and before is None:
                raise NotFound("Nothing is held under this id.", param="after")
            found = [
                (id_, row)
                for id_, row in rows.items()
                if _is_seen(row, scope) and (before is None or row["seq"] < before["seq"])
            ]
            found.sort(key=lambda each: each[1]["seq"], reverse=True)
            return [_read(scope, id_, row) for id_, row in found[:limit]]

        return await self._units.glance(scope, work)

    async def find(self, scope: Scope, held_id: str) -> Held | None:
        id_ = storable(held_id)

        async def work(unit: Unit) -> Held | None:
            row: HeldRow | None = await unit.table("held").get(id_)
            return _read(scope, id_, row) if row and _is_seen(row, scope) else None

        return await self._units.glance(scope, work)


async def hold(unit: Unit, project: str | None, change: Hold) -> bool:
    """Put the candidate in, unless it is there; no search can tell the difference (False)."""
    candidate, origin = change.candidate, change.candidate.origin or Evidence("", "")
    table, id_ = unit.table("held"), storable(change.id)
    rows: dict[str, HeldRow] = await table.all()
    if id_ in rows:
        return False
    row: HeldRow = {
        "seq": unit.next(),
        "project": project,
        "type": candidate.type,
        "content": storable(candidate.content),
        "reason": change.reason,
        "source": candidate.source,
        "confidence": candidate.confidence,
        "importance": candidate.importance,
        "tags": [storable(tag) for tag in candidate.tags],
        "replaces": None if candidate.replaces is None else storable(candidate.replaces),
        "observed_at": candidate.observed_at,
        "expires_at": candidate.expires_at,
        "session_id": storable(origin.session_id),
        "exchange_id": storable(origin.exchange_id),
        "span": storable(origin.span or candidate.evidence),
        "at": change.at,
    }
    table.put(id_, row)
    for old in sorted(rows, key=lambda each: rows[each]["seq"])[: len(rows) + 1 - MOST_HELD]:
        table.drop(old)
    return False


async def release(unit: Unit, held_id: str) -> bool:
    """Take the candidate out, if it is there; no search can tell the difference (False)."""
    unit.table("held").drop(storable(held_id))
    return False


def _is_seen(row: HeldRow, scope: Scope) -> bool:
    return scope.project is None or row["project"] == scope.project


def _read(scope: Scope, id_: str, row: HeldRow) -> Held:
    session_id, exchange_id, span = row["session_id"], row["exchange_id"], row["span"]
    candidate = Candidate(
        type=row["type"],
        content=row["content"],
        confidence=row["confidence"],
        tags=tuple(row["tags"]),
        evidence=span,
        replaces=row["replaces"],
        source=row["source"],
        importance=row["importance"],
        observed_at=row["observed_at"],
        expires_at=row["expires_at"],
        origin=Evidence(session_id, exchange_id, span) if session_id or exchange_id else None,
    )
    owned = Scope(scope.tenant, scope.user, row["project"])
    return Held(id=id_, scope=owned, candidate=candidate, reason=row["reason"], at=row["at"])
