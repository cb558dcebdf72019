"""What happened to a user's memories, in order of time, and what they said before. See ports.Timeline."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from proxy.domain.changes import Event, TimelineEvent
from proxy.domain.core import Memory, MemoryFilter, Scope
from proxy.domain.errors import NotFound
from proxy.storage.sql import erasure, rows, users
from proxy.storage.sql.database import BEYOND_ALL, Connection, Store

_SLICE = 2_000  # events that one read looks at
_STEPS = 8  # of what a memory superseded, back in time
_START = (float("inf"), BEYOND_ALL)
# An event's number among those of its memory: the id would tell how much all users do.
_NUMBER = "(SELECT count(*) FROM events n WHERE n.memory = e.memory AND n.id < e.id)"
_BECAME = """
    CASE WHEN e.action IN ('updated', 'archived', 'restored') THEN coalesce((
            SELECT n.content FROM events n WHERE n.memory = e.memory AND n.id > e.id ORDER BY n.id LIMIT 1
        ), m.content)
        WHEN e.action = 'superseded'
        THEN (SELECT n.content FROM memories n WHERE n.id = e.by AND n.owner = e.owner)
    END"""
_EVENTS = f"""
    SELECT e.at, e.id, m.id, {_NUMBER}, m.type, m.project, e.action, e.by, e.content, {_BECAME}
    FROM (SELECT * FROM events WHERE owner = :owner AND (at, id) < (:at, :id) AND at >= :since AND at < :until
          ORDER BY at DESC, id DESC LIMIT :slice) e
    JOIN memories m ON m.seq = e.memory
    WHERE (:project IS NULL OR m.project = :project) {{}} ORDER BY e.at DESC, e.id DESC LIMIT :limit"""
_LAST = """
    SELECT at, id FROM events WHERE owner = :owner AND (at, id) < (:at, :id) AND at >= :since AND at < :until
    ORDER BY at DESC, id DESC LIMIT 1 OFFSET :slice - 1"""
_CURSOR = """
    SELECT e.at, e.id FROM memories m JOIN events e ON e.memory = m.seq
    WHERE m.id = ? AND m.owner = ? ORDER BY e.id LIMIT 1 OFFSET ?"""
_EARLIER = f"""
    WITH RECURSIVE line (head, seq, id, steps) AS (
        SELECT m.superseded_by, m.seq, m.id, 1 FROM memories m
        WHERE m.superseded_by IN (SELECT value FROM json_each(:ids)) AND +m.owner = :owner
        UNION
        SELECT line.head, m.seq, m.id, line.steps + 1
        FROM line CROSS JOIN memories m ON m.superseded_by = line.id AND +m.owner = :owner
        WHERE line.steps < {_STEPS})
    SELECT head, seq FROM line"""


Place = tuple[float, int]
"""Where a page begins: an event's time and row."""


class SqlTimeline(Store):
    """Events and superseded memories of one user at a time."""

    async def events(
        self, where: MemoryFilter, *, limit: int, after: str | None = None
    ) -> Sequence[TimelineEvent]:
        place: Place | None = await self._database.read(partial(_place, where=where, after=after))
        found: list[TimelineEvent] = []
        while place is not None and len(found) < limit:
            work = partial(_slice, where=where, place=place, limit=limit - len(found))
            more, place = await self._database.read(work)
            found += more
        return found

    async def earlier(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Memory]]:
        return await self._database.begin_read(partial(_earlier, scope=scope, ids=ids))


def _earlier(tx: Connection, *, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Memory]]:
    owner = users.number(tx, scope.tenant, scope.user)
    asked = {"owner": owner, "ids": rows.as_json(map(rows.storable, ids))}
    heads: list[tuple[str, int]] = tx.execute(_EARLIER, asked).fetchall()
    if not heads:
        return {}
    condition = f"m.seq IN {rows.seqs_in(':seqs')} AND (:project IS NULL OR m.project IS NULL"
    condition += f" OR m.project = :project){erasure.hidden(tx)} ORDER BY m.valid_from DESC, m.seq DESC"
    wanted = {"seqs": rows.as_json(seq for _, seq in heads), "project": scope.project}
    found: dict[str, list[Memory]] = {}
    for seq, memory in rows.memories_where(tx, condition, wanted):
        for head in dict.fromkeys(head for head, of in heads if of == seq):
            found.setdefault(head, []).append(memory)
    return found


def _place(tx: Connection, *, where: MemoryFilter, after: str | None) -> Place | None:
    owner = users.number(tx, where.tenant, where.user)
    if after is None:
        return _START
    memory_id, _, number = after.rpartition(":")
    asked = (rows.storable(memory_id), owner, int(number) if number.isdecimal() and len(number) < 10 else -1)
    row = tx.execute(_CURSOR, asked).fetchone() if asked[2] >= 0 else None
    if row is None:
        raise NotFound("no event has this id", param="after")
    return (row[0], row[1])


def _slice(
    tx: Connection, *, where: MemoryFilter, place: Place, limit: int
) -> tuple[list[TimelineEvent], Place | None]:
    """Return up to `limit` events before the place, and where the next slice begins, if there is one."""
    asked: dict[str, Any] = {
        "owner": users.number(tx, where.tenant, where.user), "project": where.project, "limit": limit,
        "at": place[0], "id": place[1], "since": float("-inf") if where.since is None else where.since,
        "until": float("inf") if where.until is None else where.until,
    }  # fmt: skip
    hidden = erasure.hidden(tx)
    asked["slice"] = _SLICE if hidden or where.project is not None else limit
    found = tx.execute(_EVENTS.format(hidden), asked).fetchall()
    last = tx.execute(_LAST, asked).fetchone()
    return [_event(row) for row in found], tuple(last) if last else None


def _event(row: tuple[Any, ...]) -> TimelineEvent:
    at, _, memory_id, number, type_, project, action, by, content, became = row
    event = Event(at, action, by, content)
    return TimelineEvent(
        f"{memory_id}:{number}", memory_id, type_, project, event, became if became != content else None
    )
