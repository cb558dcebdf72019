"""The SessionStore over SQL: see ports.SessionStore for what every method guarantees."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from proxy.domain.core import Begun, Exchange, NewExchange, NewJob, Outcome, Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import SessionInfo
from proxy.domain.ports import Trigger
from proxy.storage.sql import exchanges, owners, queue, rows
from proxy.storage.sql.connection import Connection, Database, Instance

_MARKED = 64  # characters of a name in a cursor that also names the row
_OURS = """
    FROM sessions n JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR n.project = :project)
"""
_SESSIONS = f"""
    SELECT n.name, n.project, n.last_at, (SELECT count(*) FROM exchanges e WHERE e.session = n.id),
           (SELECT count(*) FROM exchanges e WHERE e.session = n.id AND e.extraction = 'pending'),
           iif((SELECT count(*) FROM sessions other WHERE other.owner = n.owner AND other.name = n.name) > 1,
               substr(n.name, 1, {_MARKED}) || '@' || n.id, n.name)
    {_OURS} AND (:last_at IS NULL OR (n.last_at, n.id) < (:last_at, :last_id))
    ORDER BY n.last_at DESC, n.id DESC LIMIT :limit
"""
_UNQUEUED = """
    NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.session = e.session AND jobs.state IN ('queued', 'waiting'))
"""
_LAST = """
    e.seq IN (SELECT x.seq FROM exchanges x
              JOIN sessions n ON n.id = x.session JOIN scopes s ON s.id = n.owner
              WHERE s.tenant = :tenant AND s.user = :user AND n.project IS :project AND n.name = :name
              AND x.state = 'done' ORDER BY x.seq DESC LIMIT :limit) ORDER BY e.seq
"""
# A response that we keep has its session also where nothing of it was written down, or not yet.
_SESSION_OF = """
    SELECT n.name FROM responses r JOIN sessions n ON n.id = r.session JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id
    UNION ALL
    SELECT r.session FROM stored_responses r JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id AND r.session <> ''
    LIMIT 1
"""
_IS_OLD = """
    n.last_at < :before AND NOT EXISTS (SELECT 1 FROM exchanges e WHERE e.session = n.id)
    AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.session = n.id)
"""
_SLICE = 10_000  # sessions that one read looks at: other readers wait meanwhile
_BEYOND_ALL = 2**63 - 1
_SLICE_END = f"SELECT id FROM sessions WHERE id > :edge ORDER BY id LIMIT 1 OFFSET {_SLICE - 1}"
_OLD_SESSIONS = f"SELECT n.id FROM sessions n WHERE n.id > :edge AND n.id <= :end AND {_IS_OLD}"
# With a session goes which responses were made in it.
_PRUNE_SESSIONS = f"""
    DELETE FROM sessions AS n
    WHERE n.id IN (SELECT CAST(value AS INTEGER) FROM json_each(:ids)) AND {_IS_OLD}
"""
_OWNERS = "SELECT owner FROM sessions WHERE id IN (SELECT CAST(value AS INTEGER) FROM json_each(:{}))"
_AT_ONCE = 200  # rows of a transaction: other writers wait meanwhile


class SqlSessions:
    """Exchanges of all processes that share the file. `instance` is None until the store is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.instance: Instance | None = None

    async def begin(self, exchange: NewExchange) -> Begun:
        def work(tx: Connection) -> Begun:
            return exchanges.begin(tx, exchange, self._living.id)

        return await self._database.write(work)

    async def resume(
        self, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> Begun | None:
        return await self._database.read(lambda tx: exchanges.resume(tx, scope, session_id, key, response_id))

    async def complete(self, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
        return await self._database.write(lambda tx: exchanges.complete(tx, begun, outcome, trigger))

    async def abort(self, begun: Begun) -> None:
        await self._database.write(lambda tx: exchanges.abort(tx, begun))

    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        parameters = {
            "tenant": scope.tenant, "user": scope.user, "project": scope.project, "name": session_id,
            "limit": limit,
        }  # fmt: skip
        return await self._database.read(
            lambda tx: rows.exchanges_where(tx, scope, session_id, _LAST, parameters)
        )

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        def work(tx: Connection) -> str | None:
            row = tx.execute(
                _SESSION_OF,
                {"tenant": scope.tenant, "user": scope.user, "id": rows.storable(response_id)},
            ).fetchone()
            return str(row[0]) if row else None

        return await self._database.read(work)

    async def timezone(self, scope: Scope) -> str | None:
        def work(tx: Connection) -> str | None:
            query = "SELECT timezone FROM scopes WHERE tenant = ? AND user = ?"
            row = tx.execute(query, (scope.tenant, scope.user)).fetchone()
            known: str | None = row[0] if row else None
            return known

        return await self._database.read(work)

    async def sweep(self, now: float, trigger: Trigger) -> int:
        # Asked every few seconds, of all that waits: reading first spares other writers the time.
        if await self._database.read(lambda tx: exchanges.any_abandoned(tx, self._living)):
            await self._database.write(lambda tx: exchanges.close_abandoned(tx, self._living))
        await asyncio.to_thread(self._living.clean)
        due = await self._database.read(lambda tx: queue.due(tx, _UNQUEUED, trigger))
        made = 0
        for start in range(0, len(due), _AT_ONCE):
            portion = dict(due[start : start + _AT_ONCE])
            made += await self._database.write(partial(_queue, wanted=portion, now=now))
        return made

    async def end(self, scope: Scope, session_id: str, at: float) -> int:
        def work(tx: Connection) -> int:
            exchanges.close_abandoned(tx, self._living)
            owners.lock(tx, scope)
            return queue.end(tx, scope, rows.storable(session_id), at)

        return await self._database.write(work)

    async def sessions(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[SessionInfo]:
        def work(tx: Connection) -> Sequence[SessionInfo]:
            ours = {"tenant": scope.tenant, "user": scope.user, "project": scope.project}
            last_at, last_id = _cursor(tx, ours, after)
            page = {**ours, "last_at": last_at, "last_id": last_id, "limit": limit}
            return [
                SessionInfo(
                    id=name, scope=Scope(scope.tenant, scope.user, project), last_at=at, exchanges=count,
                    pending=pending, cursor=cursor,
                )
                for name, project, at, count, pending, cursor in tx.execute(_SESSIONS, page)
            ]  # fmt: skip

        return await self._database.read(work)

    @property
    def _living(self) -> Instance:
        assert self.instance is not None, "the database is open only after the instance lives"
        return self.instance

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        pruned, gone = 0, _AT_ONCE
        while gone == _AT_ONCE:
            gone = await self._database.write(lambda tx: exchanges.prune(tx, before, _AT_ONCE))
            pruned += gone
        await self._prune_sessions(before)
        return pruned

    async def _prune_sessions(self, before: float) -> None:
        """Look at all sessions, a slice at a time, and delete those that are old and empty."""
        edge: int | None = 0
        while edge is not None:
            old, edge = await self._database.read(partial(_old, before=before, edge=edge))
            for start in range(0, len(old), _AT_ONCE):
                these = {"ids": rows.as_json(old[start : start + _AT_ONCE]), "before": before}
                await self._database.write(partial(_prune, these=these))


def _queue(tx: Connection, *, wanted: Mapping[int, NewJob], now: float) -> int:
    """Queue the jobs of those of the sessions (by row) that still have something pending; return how many."""
    condition = f"e.session IN (SELECT CAST(value AS INTEGER) FROM json_each(:sessions)) AND {_UNQUEUED}"
    these = {"sessions": rows.as_json(wanted)}
    owners.lock_all(tx, _OWNERS.format("sessions"), these)
    found = queue.pending(tx, condition, these)
    for one in found:
        queue.enqueue(tx, one, wanted[one.session], at=now)
    return len(found)


def _old(tx: Connection, *, before: float, edge: int) -> tuple[list[int], int | None]:
    """Return the old and empty sessions of the slice beyond the edge, and where it ends, if there is more."""
    row = tx.execute(_SLICE_END, {"edge": edge}).fetchone()
    asked = {"before": before, "edge": edge, "end": row[0] if row else _BEYOND_ALL}
    old = [session for (session,) in tx.execute(_OLD_SESSIONS, asked)]
    return old, row[0] if row else None


def _prune(tx: Connection, *, these: Mapping[str, Any]) -> None:
    owners.lock_all(tx, _OWNERS.format("ids"), these)
    tx.execute(_PRUNE_SESSIONS, these)


def _cursor(tx: Connection, ours: dict[str, Any], after: str | None) -> tuple[float | None, int]:
    """Return when the session `after` was last used, and its row. A bare name that several projects'
    sessions have means the one furthest down the list, so that paging comes to an end."""
    if after is None:
        return None, 0
    start, _, number = rows.storable(after).rpartition("@")
    named = {
        **ours, "name": rows.storable(after), "start": start,
        "row": int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else None,
    }  # fmt: skip
    row: tuple[float, int] | None = tx.execute(
        f"SELECT n.last_at, n.id {_OURS}"
        f" AND (n.name = :name OR n.id = :row AND substr(n.name, 1, {_MARKED}) = :start)"
        " ORDER BY n.name = :name, n.last_at, n.id LIMIT 1",
        named,
    ).fetchone()
    if row is None:
        raise NotFound("No session has this id.", param="after")
    return row
