"""The SessionStore over SQL: see ports.SessionStore for what every method guarantees."""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.errors import NotFound
from proxy.domain.ports import Trigger
from proxy.domain.session import ORDINARY, Begun, Exchange, NewExchange, NewJob, Outcome, SessionInfo
from proxy.storage.sql import jobs, notes, rows, users
from proxy.storage.sql.database import Connection, Database, Instance
from proxy.storage.sql.rows import FORGOTTEN

# ---------------------------------------------------------------- exchanges, inside the writer's transaction
# What an answer was given with in view: memories and documents.
_STILL_THERE = """
    SELECT (SELECT count(*) FROM memories m WHERE m.owner = :owner
            AND m.id IN (SELECT value FROM json_each(:ids)))
         + (SELECT count(*) FROM documents d WHERE d.owner = :owner AND d.doomed = 0
            AND d.id IN (SELECT value FROM json_each(:ids)))
"""
_NEWEST = """
    SELECT e.id, e.generation, e.whole
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND n.project IS :project AND n.name = :name AND {which}
    ORDER BY e.seq DESC LIMIT 1
"""
_OF_KEY = "(e.key = :key OR e.key > :key || ':' AND e.key < :key || ';')"  # said anew, it has a suffix: ":12"
_OF_RESPONSE = "e.id = (SELECT r.exchange FROM responses r WHERE r.owner = n.owner AND r.id = :response)"
_COLUMNS = "seq, id, generation, state, key, whole, at"
# What the user said after it in other sessions, in other words.
_SINCE = """
    SELECT EXISTS (SELECT 1 FROM sessions n CROSS JOIN exchanges x ON x.session = n.id
                   WHERE n.owner = (SELECT owner FROM sessions WHERE id = :session) AND n.id <> :session
                   AND x.seq > :seq AND x.said <> :said)
"""
_THESE = "(SELECT CAST(value AS INTEGER) FROM json_each(?))"
_OWNER = "SELECT n.owner FROM exchanges e JOIN sessions n ON n.id = e.session WHERE e.id = ?"
_OWNERS_OF_EXCHANGES = (
    f"SELECT n.owner FROM exchanges e JOIN sessions n ON n.id = e.session WHERE e.seq IN {_THESE}"
)
_OLD = "SELECT seq FROM exchanges WHERE extraction = 'done' AND state = 'done' AND at < ? LIMIT ?"


def begin(tx: Connection, new: NewExchange, instance: str) -> Begun:
    owner = users.ensure(tx, new.scope)
    session, fresh, retold = _session(tx, owner.id, new)
    key, row = _repeated(tx, session, new, retold=retold)
    if row is not None:
        seq, id_, generation, state = row
        if state == "open":
            tx.execute(
                "UPDATE exchanges SET holders = holders + 1, instance = ? WHERE seq = ?", (instance, seq)
            )
        return Begun(id_, generation)
    (number,) = tx.execute(
        "INSERT INTO exchanges (id, key, session, generation, model, said, at, explicit, personal, instance,"
        " timezone, dated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq",
        (new.id, key, session, owner.stamp.generation, new.model, rows.storable(new.said), new.at,
         new.explicit, new.personal, instance, users.timezone(tx, owner.id, new), new.said_at),
    ).fetchone()  # fmt: skip
    notes.anchor(tx, session, number, new)
    if fresh:
        # Who opens a new conversation should be known in it.
        others = {"owner": owner.id, "session": session}
        for found in jobs.pending_sessions(tx, "n.owner = :owner AND n.id <> :session", others):
            wanted = NewJob(found.state.session_id, found.state.last_seq, ORDINARY)
            jobs.enqueue(tx, found, wanted, at=new.at)
    return Begun(new.id, owner.stamp.generation)


def _repeated(
    tx: Connection, session: int, new: NewExchange, *, retold: bool
) -> tuple[str, tuple[int, str, int, str] | None]:
    """Return the key to store the exchange under, and (seq, id, generation, state) of the one it repeats.

    A request that holds its history repeats whichever has the same key. One without says the same words
    anew, unless they are the last thing said and that is a retry (see stores/retry). But
    where a session's requests hold their history (`retold`), one without is its beginning, sent again: in a
    session without a name, which another conversation may share, only for a while.
    """
    if retold or not new.standalone:
        opens = new.standalone and new.unnamed
        which = _OF_KEY if opens else "e.key = :key"
        query = f"SELECT {_COLUMNS} FROM exchanges e WHERE session = :session AND {which} ORDER BY seq DESC"
        row = tx.execute(query, {"session": session, "key": new.key}).fetchone()
        if row is None or not opens:
            return new.key, row and row[:4]
        same = is_opening(new, at=row[-1])
    else:
        query = f"SELECT {_COLUMNS} FROM exchanges WHERE session = ? ORDER BY seq DESC LIMIT 1"
        row = tx.execute(query, (session,)).fetchone()
        if row is None:
            return new.key, None
        same = is_retry(new, key=row[4], whole=row[5], at=row[-1])
    seq, _, _, state, key, _, _ = row
    if same and (state == "open" or not _said_elsewhere(tx, session, new, seq)):
        return key, row[:4]
    return said_anew(new.key, seq), None


def _said_elsewhere(tx: Connection, session: int, new: NewExchange, seq: int) -> bool:
    ours = {"session": session, "seq": seq, "said": rows.storable(new.said)}
    (found,) = tx.execute(_SINCE, ours).fetchone()
    return bool(found)


def _session(tx: Connection, owner: int, new: NewExchange) -> tuple[int, bool, bool]:
    """Return the session's row, made if need be, whether it was made, and whether its requests have held
    their history so far."""
    row = tx.execute(
        "UPDATE sessions SET last_at = max(last_at, ?), ended = 0, stateful = max(stateful, ?),"
        " retold = max(retold, ?) WHERE owner = ? AND project IS ? AND name = ? RETURNING id, retold",
        (new.at, new.stateful, not new.standalone, owner, new.scope.project, new.session_id),
    ).fetchone()
    if row is not None:
        return int(row[0]), False, bool(row[1])
    (made,) = tx.execute(
        "INSERT INTO sessions (owner, project, name, last_at, stateful, retold) VALUES (?, ?, ?, ?, ?, ?)"
        " RETURNING id",
        (owner, new.scope.project, new.session_id, new.at, new.stateful, not new.standalone),
    ).fetchone()
    return made, True, not new.standalone


def resume(
    tx: Connection, scope: Scope, session_id: str, key: str | None, response_id: str | None
) -> Begun | None:
    which = _OF_KEY if key is not None else "TRUE" if response_id is None else _OF_RESPONSE
    meant = {"tenant": scope.tenant, "user": scope.user, "project": scope.project, "name": session_id}
    row = tx.execute(_NEWEST.format(which=which), meant | {"key": key, "response": response_id}).fetchone()
    return Begun(row[0], row[1]) if row is not None and not row[2] else None


def any_abandoned(tx: Connection, living: Instance) -> bool:
    """Return whether exchanges died with their process."""
    return any(living.is_dead(tx, name) for name in jobs.instances(tx, "exchanges", "open"))


def close_abandoned(tx: Connection, living: Instance) -> None:
    """Complete, as broken off, the exchanges that died with their process."""
    for name in jobs.instances(tx, "exchanges", "open"):
        if living.is_dead(tx, name):
            tx.execute(
                "UPDATE exchanges SET state = 'done', whole = 0 WHERE state = 'open' AND instance = ?",
                (name,),
            )


def complete(tx: Connection, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
    users.lock_all(tx, _OWNER, (begun.id,))
    row = tx.execute(
        "SELECT e.seq, e.session, n.owner, e.at, e.state, e.whole, e.recalled,"
        " e.extraction, e.job FROM exchanges e"
        " JOIN sessions n ON n.id = e.session WHERE e.id = ? AND e.generation = ?",
        (begun.id, begun.generation),
    ).fetchone()
    if row is None:
        return False
    seq, session, owner, at, state, whole, before, extraction, job = row
    jobs.wake(tx, owner)  # the request that was answered brought a credential, maybe a better one
    if outcome.response_id is not None:
        tx.execute(
            "INSERT INTO responses (id, owner, session, exchange) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (owner, id) DO UPDATE SET session = excluded.session, exchange = excluded.exchange",
            (outcome.response_id, owner, session, begun.id),
        )
    # An answer that broke off gives way to a whole one, unless a job has read it.
    unread = extraction == "pending" and job is None
    stands = state == "done" and not (unread and outcome.whole and not whole)
    if stands and outcome.whole:
        return True
    # An answer given with a memory in view that was forgotten meanwhile may repeat it; so may its beginning.
    recalled = tuple(dict.fromkeys((*json.loads(before), *outcome.recalled)))
    if repeats := any_forgotten(tx, owner, recalled):
        recalled = tuple(dict.fromkeys((*recalled, FORGOTTEN)))
    if stands:  # a step that comes late tells what else was in view
        tx.execute(
            "UPDATE exchanges SET recalled = ?, answer = iif(? = 1, '', answer) WHERE seq = ?",
            (rows.as_json(recalled), repeats, seq),
        )
        return True
    answer = "" if repeats else rows.storable(outcome.answer)
    tx.execute(
        "UPDATE exchanges SET state = 'done', answer = ?, whole = ?, recalled = ?, at_work = ? WHERE seq = ?",
        (answer, outcome.whole, rows.as_json(recalled), outcome.calls, seq),
    )
    if state == "open":
        tx.execute("UPDATE sessions SET unsummarised = unsummarised + 1 WHERE id = ?", (session,))
    for found in jobs.pending_sessions(tx, "e.session = :session", {"session": session}):
        jobs.offer(tx, found, trigger, at)
    if outcome.recalled:
        rows.touch(tx, owner, outcome.recalled, at)
    return True


def any_forgotten(tx: Connection, owner: int, ids: Collection[str]) -> bool:
    """Return whether one of what was shown is not there any more."""
    if not ids:
        return False
    (left,) = tx.execute(_STILL_THERE, {"owner": owner, "ids": rows.as_json(ids)}).fetchone()
    return bool(left < len(set(ids)))


def abort(tx: Connection, begun: Begun) -> None:
    """Remove the exchange once no request holds it, and the session if nothing else is in it."""
    users.lock_all(tx, _OWNER, (begun.id,))
    row = tx.execute(
        "UPDATE exchanges SET holders = holders - 1 WHERE id = ? AND generation = ? AND state = 'open'"
        " RETURNING seq, session, holders",
        (begun.id, begun.generation),
    ).fetchone()
    if row is None or row[2] > 0:
        return
    tx.execute("DELETE FROM exchanges WHERE seq = ?", (row[0],))
    tx.execute(
        "DELETE FROM sessions WHERE id = :id AND NOT EXISTS (SELECT 1 FROM exchanges WHERE session = :id)"
        " AND NOT EXISTS (SELECT 1 FROM responses WHERE session = :id)",
        {"id": row[1]},
    )


def prune(tx: Connection, before: float, limit: int) -> int:
    """Remove up to `limit` exchanges from before `before` that are extracted; return how many. What was
    made of them for their session stays: the schema's triggers tell this from a forget by the mark."""
    old = [seq for (seq,) in tx.execute(_OLD, (before, limit))]
    these = (rows.as_json(old),)
    users.lock_all(tx, _OWNERS_OF_EXCHANGES, these)
    tx.execute(f"UPDATE exchanges SET extraction = 'old' WHERE seq IN {_THESE}", these)
    tx.execute(f"DELETE FROM exchanges WHERE seq IN {_THESE}", these)
    return len(old)


# ---------------------------------------------------------------- retries
# A client sends the same words again soon. A person who has said something else since says them again on
# purpose. In doubt they count as said again: read twice, a fact is stored once; not read, it is lost.
WITHIN_S = 60.0  # a client's own retries come sooner
UNFINISHED_WITHIN_S = 3600.0  # a person's, of what was never wholly answered
OPENING_WITHIN_S = 3600.0


def is_retry(new: NewExchange, *, key: str, whole: bool, at: float) -> bool:
    """True if the exchange repeats the session's last one: `key`, `whole` and `at` as that was stored, and
    unless something else was said in between.

    The key may have a suffix, which tells it from the same words said before."""
    within_s = WITHIN_S if whole else UNFINISHED_WITHIN_S
    return key.partition(":")[0] == new.key and abs(new.at - at) < within_s


def is_opening(new: NewExchange, *, at: float) -> bool:
    """True if the first words of a conversation that brings its history are its beginning, sent again: `at`
    as that was stored, and unless something else was said elsewhere in between.

    Who names a session would name another conversation otherwise, and may send a whole transcript again."""
    return abs(new.at - at) < OPENING_WITHIN_S


def said_anew(key: str, seq: int) -> str:
    """Return the key of a later exchange that repeats the one with this number."""
    return f"{key}:{seq}"


# ---------------------------------------------------------------- the store
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
_OWNERS_OF_SESSIONS = (
    "SELECT owner FROM sessions WHERE id IN (SELECT CAST(value AS INTEGER) FROM json_each(:{}))"
)
_AT_ONCE = 200  # rows of a transaction: other writers wait meanwhile


class SqlSessions:
    """Exchanges of all processes that share the file. `instance` is None until the store is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.instance: Instance | None = None

    async def begin(self, exchange: NewExchange) -> Begun:
        def work(tx: Connection) -> Begun:
            return begin(tx, exchange, self._living.id)

        return await self._database.write(work)

    async def resume(
        self, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> Begun | None:
        return await self._database.read(lambda tx: resume(tx, scope, session_id, key, response_id))

    async def complete(self, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
        return await self._database.write(lambda tx: complete(tx, begun, outcome, trigger))

    async def abort(self, begun: Begun) -> None:
        await self._database.write(lambda tx: abort(tx, begun))

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
        if await self._database.read(lambda tx: any_abandoned(tx, self._living)):
            await self._database.write(lambda tx: close_abandoned(tx, self._living))
        await asyncio.to_thread(self._living.clean)
        due = await self._database.read(lambda tx: jobs.due(tx, _UNQUEUED, trigger))
        made = 0
        for start in range(0, len(due), _AT_ONCE):
            portion = dict(due[start : start + _AT_ONCE])
            made += await self._database.write(partial(_queue, wanted=portion, now=now))
        return made

    async def end(self, scope: Scope, session_id: str, at: float) -> int:
        def work(tx: Connection) -> int:
            close_abandoned(tx, self._living)
            users.lock(tx, scope)
            return jobs.end(tx, scope, rows.storable(session_id), at)

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
            gone = await self._database.write(lambda tx: prune(tx, before, _AT_ONCE))
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
    users.lock_all(tx, _OWNERS_OF_SESSIONS.format("sessions"), these)
    found = jobs.pending_sessions(tx, condition, these)
    for one in found:
        jobs.enqueue(tx, one, wanted[one.session], at=now)
    return len(found)


def _old(tx: Connection, *, before: float, edge: int) -> tuple[list[int], int | None]:
    """Return the old and empty sessions of the slice beyond the edge, and where it ends, if there is more."""
    row = tx.execute(_SLICE_END, {"edge": edge}).fetchone()
    asked = {"before": before, "edge": edge, "end": row[0] if row else _BEYOND_ALL}
    old = [session for (session,) in tx.execute(_OLD_SESSIONS, asked)]
    return old, row[0] if row else None


def _prune(tx: Connection, *, these: Mapping[str, Any]) -> None:
    users.lock_all(tx, _OWNERS_OF_SESSIONS.format("ids"), these)
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
