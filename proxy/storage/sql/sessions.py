"""The SessionStore over SQL: see session.SessionStore for what every method guarantees."""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.errors import NotFound
from proxy.domain.session import (
    LATEST,
    MOST_ANCHORS,
    ORDINARY,
    Exchange,
    NewExchange,
    NewJob,
    Outcome,
    SessionInfo,
    SessionState,
    StoredExchange,
    Trigger,
    rest_of,
)
from proxy.storage.sql import rows
from proxy.storage.sql.database import BEYOND_ALL, Connection, Instance, Store, column, reads, value, writes
from proxy.storage.sql.rows import FORGOTTEN

# ---------------------------------------------------------------- work: exchanges to extract, jobs for them
# Exchanges that are answered, not extracted, and not in the hands of a running job.
_STATES = """
    SELECT e.session, max(n.owner) AS owner, max(n.ended) AS ended, max(s.tenant) AS tenant,
           max(s.user) AS user, max(n.project) AS project, max(n.name) AS session_id,
           max(n.last_at) AS last_at, max(e.seq) AS last_seq, count(*) AS pending,
           max(e.explicit) AS explicit, max(e.personal) AS personal, max(e.at_work) AS at_work
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    WHERE e.extraction = 'pending' AND e.state = 'done' AND {condition}
      AND e.seq > coalesce(
          (SELECT max(upto) FROM jobs WHERE jobs.session = e.session AND jobs.state = 'running'), 0)
    GROUP BY e.session"""
_NAMED = """
    FROM sessions n JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND n.name = :name
      AND (:project IS NULL OR n.project = :project)"""
_BEING_ANSWERED = f"FROM exchanges WHERE state = 'open' AND session IN (SELECT n.id {_NAMED})"
WAKE = "UPDATE jobs SET state = 'queued', due_at = 0 WHERE state = 'waiting'"


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session with work in it."""

    session: int
    owner: int
    ended: bool  # by its client: nothing more will come
    state: SessionState

    def wanted(self, trigger: Trigger) -> NewJob | None:
        """Return the job that the trigger asks for, or that the session's end calls for."""
        return trigger(self.state) or (rest_of(self.state) if self.ended else None)


def pending_sessions(tx: Connection, condition: str, parameters: dict[str, Any]) -> list[PendingSession]:
    """Return the sessions that hold exchanges to extract, selected by constant SQL over `e` and `n`."""
    found = []
    for row in rows.records(tx, _STATES.format(condition=condition), parameters):
        session, owner, ended = row.pop("session"), row.pop("owner"), bool(row.pop("ended"))
        row |= {name: bool(row[name]) for name in ("explicit", "personal", "at_work")}
        found.append(PendingSession(session, owner, ended, SessionState(scope=rows.scope_in(row), **row)))
    return found


def enqueue(tx: Connection, session: int, owner: int, wanted: NewJob, *, at: float) -> None:
    """Queue a job for the session, or widen the one that is queued or waits."""
    tx.execute(
        "INSERT INTO jobs (session, owner, upto, lane, state, created_at, closing)"
        " VALUES (?, ?, ?, ?, 'queued', ?, ?)"
        " ON CONFLICT (session) WHERE state IN ('queued', 'waiting')"
        " DO UPDATE SET upto = max(jobs.upto, excluded.upto), lane = min(jobs.lane, excluded.lane),"
        " closing = max(jobs.closing, excluded.closing)",
        (session, owner, wanted.upto, wanted.lane, at, wanted.closing),
    )


def wake(tx: Connection, owner: int) -> bool:
    """Make the user's jobs due that wait for a credential; return whether there were any."""
    return tx.execute(f"{WAKE} AND owner = ?", (owner,)).rowcount > 0


def dead_instances(tx: Connection, table: str, state: str, living: Instance) -> list[str]:
    """Return the processes named in `jobs` or `exchanges` rows of a state (both constant) that have died."""
    # Not as a parameter: by it no partial index would be found, and all that was ever said be read.
    names = column(tx, f"SELECT DISTINCT instance FROM {table} WHERE state = '{state}'")
    return [name for name in names if living.is_dead(tx, name)]


# ---------------------------------------------------------------- exchanges, inside the writer's transaction
# What an answer was given with in view: memories and documents.
_STILL_THERE = """
    SELECT (SELECT count(*) FROM memories m WHERE m.owner = :owner
            AND m.id IN (SELECT value FROM json_each(:ids)))
         + (SELECT count(*) FROM documents d WHERE d.owner = :owner AND d.doomed = 0
            AND d.id IN (SELECT value FROM json_each(:ids)))"""
_NEWEST = """
    SELECT e.id, e.generation, e.whole
    FROM exchanges e JOIN sessions n ON n.id = e.session JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND n.project IS :project AND n.name = :name AND {which}
    ORDER BY e.seq DESC LIMIT 1"""
_OF_KEY = "(e.key = :key OR e.key > :key || ':' AND e.key < :key || ';')"  # repeated: ":12"
_OF_RESPONSE = "e.id = (SELECT r.exchange FROM responses r WHERE r.owner = n.owner AND r.id = :response)"
_BEGUN = """
    SELECT e.seq, e.session, n.owner, e.at, e.state, e.whole, e.recalled, e.extraction, e.job
    FROM exchanges e JOIN sessions n ON n.id = e.session WHERE e.id = ? AND e.generation = ?"""
_ANSWERED_AS = """
    INSERT INTO responses (id, owner, session, exchange) VALUES (?, ?, ?, ?)
    ON CONFLICT (owner, id) DO UPDATE SET session = excluded.session, exchange = excluded.exchange"""
_COLUMNS = "seq, id, generation, state, key, whole, at"
_RETRY_WITHIN_S = 60.0  # a client's own retries come sooner
_UNFINISHED_WITHIN_S = 3600.0  # a person's, of what was never wholly answered
_OPENING_WITHIN_S = 3600.0
# What the user said after it in other sessions, in other words.
_SINCE = """
    SELECT EXISTS (SELECT 1 FROM sessions n CROSS JOIN exchanges x ON x.session = n.id
                   WHERE n.owner = (SELECT owner FROM sessions WHERE id = :session) AND n.id <> :session
                   AND x.seq > :seq AND x.said <> :said)"""
_THESE = rows.seqs_in("?")
_OWNERS = "SELECT n.owner FROM exchanges e JOIN sessions n ON n.id = e.session WHERE"
_OLD = "SELECT seq FROM exchanges WHERE extraction = 'done' AND state = 'done' AND at < ? LIMIT ?"


def _repeated(
    tx: Connection, session: int, new: NewExchange, *, retold: bool
) -> tuple[str, tuple[int, str, int, str] | None]:
    """Return the key to store the exchange under, and (seq, id, generation, state) of the one it repeats.

    A request that holds its history repeats whichever has the same key. One without says the same words
    again, unless they are the last thing said and that is a retry: soon, and without other words in between.
    But where a session's requests hold their history (`retold`), one without is its beginning, sent again:
    in a session without a name, which another conversation may share, only for a while. In doubt the words
    count as said again: a fact that is read twice is stored once, one that is not read is lost."""
    if retold or not new.standalone:
        opens = new.standalone and new.unnamed
        which = _OF_KEY if opens else "e.key = :key"
        query = f"SELECT {_COLUMNS} FROM exchanges e WHERE session = :session AND {which} ORDER BY seq DESC"
        row = tx.execute(query, {"session": session, "key": new.key}).fetchone()
        if row is None or not opens:
            return new.key, row and row[:4]
        # A client that names its sessions would have named another conversation.
        same = abs(new.at - row[-1]) < _OPENING_WITHIN_S
    else:
        query = f"SELECT {_COLUMNS} FROM exchanges WHERE session = ? ORDER BY seq DESC LIMIT 1"
        row = tx.execute(query, (session,)).fetchone()
        if row is None:
            return new.key, None
        within_s = _RETRY_WITHIN_S if row[5] else _UNFINISHED_WITHIN_S
        same = row[4].partition(":")[0] == new.key and abs(new.at - row[-1]) < within_s
    seq, _, _, state, key, _, _ = row
    ours = {"session": session, "seq": seq, "said": rows.storable(new.said)}
    if same and (state == "open" or not value(tx, _SINCE, ours)):
        return key, row[:4]
    return f"{new.key}:{seq}", None


def _session(tx: Connection, owner: int, new: NewExchange) -> tuple[int, bool, bool]:
    """Return the session's row, made if need be, whether it was made, and whether its requests have held
    their history so far."""
    name, now = (owner, new.scope.project, new.session_id), (new.at, new.stateful, not new.standalone)
    used = """
        UPDATE sessions SET last_at = max(last_at, ?), ended = 0, stateful = max(stateful, ?),
        retold = max(retold, ?) WHERE owner = ? AND project IS ? AND name = ? RETURNING id, retold"""
    if (row := tx.execute(used, (*now, *name)).fetchone()) is not None:
        return int(row[0]), False, bool(row[1])
    made = """
        INSERT INTO sessions (owner, project, name, last_at, stateful, retold) VALUES (?, ?, ?, ?, ?, ?)
        RETURNING id"""
    return int(value(tx, made, (*name, *now))), True, not new.standalone


def _close_abandoned(tx: Connection, living: Instance) -> None:
    """Complete, as broken off, the exchanges that died with their process."""
    broken_off = "UPDATE exchanges SET state = 'done', whole = 0 WHERE state = 'open' AND instance = ?"
    for name in dead_instances(tx, "exchanges", "open", living):
        tx.execute(broken_off, (name,))


_MOST_LOGGED = 4 * MOST_ANCHORS
_PREVIOUS = """
    SELECT slot, content FROM anchors WHERE holds = 1 AND session = :session AND exchange = (
        SELECT max(seq) FROM exchanges WHERE session = :session AND seq < :exchange)"""
_FORGET_OLDEST = f"""
    DELETE FROM anchors WHERE session = :session AND seq <= (
        SELECT seq FROM anchors WHERE session = :session ORDER BY seq DESC LIMIT 1 OFFSET {_MOST_LOGGED})"""


def _anchor(tx: Connection, session: int, exchange: int, new: NewExchange) -> None:
    if not new.anchors:
        return
    for said in new.anchors:
        entries = [(said.slot, rows.storable(said.text), bool(said.text))]
        if said.slot == LATEST:
            ours = {"session": session, "exchange": exchange}
            entries = [(slot, content, False) for slot, content in tx.execute(_PREVIOUS, ours)]
        tx.executemany(
            "INSERT INTO anchors (session, exchange, exchange_id, slot, content, holds, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(session, exchange, new.id, *entry, new.at) for entry in entries],
        )
    tx.execute(_FORGET_OLDEST, {"session": session})


def any_forgotten(tx: Connection, owner: int, ids: Collection[str]) -> bool:
    if not ids:
        return False
    return bool(value(tx, _STILL_THERE, {"owner": owner, "ids": rows.as_json(ids)}) < len(set(ids)))


# ---------------------------------------------------------------- the store
_MARKED = 64  # characters of a name in a cursor that also names the row
_OURS = """
    FROM sessions n JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR n.project = :project)"""
_SESSIONS = f"""
    SELECT n.name AS id, s.tenant, s.user, n.project, n.last_at,
           (SELECT count(*) FROM exchanges e WHERE e.session = n.id) AS exchanges,
           (SELECT count(*) FROM exchanges e WHERE e.session = n.id AND e.extraction = 'pending') AS pending,
           iif((SELECT count(*) FROM sessions other WHERE other.owner = n.owner AND other.name = n.name) > 1,
               substr(n.name, 1, {_MARKED}) || '@' || n.id, n.name) AS cursor
    {_OURS} AND (:last_at IS NULL OR (n.last_at, n.id) < (:last_at, :last_id))
    ORDER BY n.last_at DESC, n.id DESC LIMIT :limit"""
_UNQUEUED = """
    NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.session = e.session AND jobs.state IN ('queued', 'waiting'))"""
_LAST = """
    e.seq IN (SELECT x.seq FROM exchanges x
              JOIN sessions n ON n.id = x.session JOIN scopes s ON s.id = n.owner
              WHERE s.tenant = :tenant AND s.user = :user AND n.project IS :project AND n.name = :name
              AND x.state = 'done' ORDER BY x.seq DESC LIMIT :limit) ORDER BY e.seq"""
# Stored responses record their session even when no exchange was saved.
_SESSION_OF = """
    SELECT n.name FROM responses r JOIN sessions n ON n.id = r.session JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id
    UNION ALL
    SELECT r.session FROM stored_responses r JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id AND r.session <> ''
    LIMIT 1"""
_IS_OLD = """
    n.last_at < :before AND NOT EXISTS (SELECT 1 FROM exchanges e WHERE e.session = n.id)
    AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.session = n.id)"""
_SLICE = 10_000  # sessions that one read looks at: other readers wait for it
_SLICE_END = f"SELECT id FROM sessions WHERE id > :edge ORDER BY id LIMIT 1 OFFSET {_SLICE - 1}"
_OLD_SESSIONS = f"SELECT n.id FROM sessions n WHERE n.id > :edge AND n.id <= :end AND {_IS_OLD}"
# Which responses were made in a session is deleted with it.
_PRUNE_SESSIONS = f"""
    DELETE FROM sessions AS n
    WHERE n.id IN {rows.seqs_in(":ids")} AND {_IS_OLD}"""
_OWNERS_OF_SESSIONS = f"SELECT owner FROM sessions WHERE id IN {rows.seqs_in(':ids')}"
_AT_ONCE = 200  # rows of a transaction: other writers wait for it


class SqlSessions(Store):
    """Exchanges of all processes that share the database."""

    @writes
    def begin(self, tx: Connection, exchange: NewExchange) -> StoredExchange:
        new, instance = exchange, self._living.id
        owner = rows.ensure_owner(tx, new.scope)
        session, fresh, retold = _session(tx, owner.id, new)
        key, row = _repeated(tx, session, new, retold=retold)
        if row is not None:
            seq, id_, generation, state = row
            if state == "open":
                again = "UPDATE exchanges SET holders = holders + 1, instance = ? WHERE seq = ?"
                tx.execute(again, (instance, seq))
            return StoredExchange(id_, generation)
        zone = new.timezone  # one that the request names becomes the user's last known
        if zone is None:
            known = value(tx, "SELECT timezone FROM scopes WHERE id = ?", (owner.id,))
            zone = known or new.default_timezone
        else:
            named = {"owner": owner.id, "name": zone}
            last_known = "UPDATE scopes SET timezone = :name WHERE id = :owner AND timezone IS NOT :name"
            tx.execute(last_known, named)
        number = rows.insert(
            tx, "exchanges", "RETURNING seq", id=new.id, key=key, session=session, model=new.model,
            generation=owner.stamp.generation, said=rows.storable(new.said), at=new.at, explicit=new.explicit,
            personal=new.personal, instance=instance, timezone=zone,
            dated=new.said_at,
        )  # fmt: skip
        _anchor(tx, session, number, new)
        if fresh:
            # Who opens a new conversation should be known in it.
            others = {"owner": owner.id, "session": session}
            for found in pending_sessions(tx, "n.owner = :owner AND n.id <> :session", others):
                wanted = NewJob(found.state.session_id, found.state.last_seq, ORDINARY)
                enqueue(tx, found.session, found.owner, wanted, at=new.at)
        return StoredExchange(new.id, owner.stamp.generation)

    @reads
    def resume(
        self, tx: Connection, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> StoredExchange | None:
        which = _OF_KEY if key is not None else "TRUE" if response_id is None else _OF_RESPONSE
        meant = rows.named(scope, name=session_id, key=key, response=response_id)
        row = tx.execute(_NEWEST.format(which=which), meant).fetchone()
        return StoredExchange(row[0], row[1]) if row is not None and not row[2] else None

    @writes
    def complete(self, tx: Connection, begun: StoredExchange, outcome: Outcome, trigger: Trigger) -> bool:
        rows.lock_owners(tx, f"{_OWNERS} e.id = ?", (begun.id,))
        row = tx.execute(_BEGUN, (begun.id, begun.generation)).fetchone()
        if row is None:
            return False
        seq, session, owner, at, state, whole, before, extraction, job = row
        wake(tx, owner)  # the request that was answered brought a credential, maybe a better one
        if outcome.response_id is not None:
            tx.execute(_ANSWERED_AS, (outcome.response_id, owner, session, begun.id))
        # An answer that broke off gives way to a whole one, unless a job has read it.
        unread = extraction == "pending" and job is None
        is_final = state == "done" and not (unread and outcome.whole and not whole)
        if is_final and outcome.whole:
            return True
        # An answer, or its beginning, may repeat a memory that it was given and that was forgotten since.
        recalled = tuple(dict.fromkeys((*json.loads(before), *outcome.recalled)))
        if repeats := any_forgotten(tx, owner, recalled):
            recalled = tuple(dict.fromkeys((*recalled, FORGOTTEN)))
        if is_final:  # a step that comes late adds what else was in view
            late = "UPDATE exchanges SET recalled = ?, answer = iif(? = 1, '', answer) WHERE seq = ?"
            tx.execute(late, (rows.as_json(recalled), repeats, seq))
            return True
        answer = "" if repeats else rows.storable(outcome.answer)
        done = "state = 'done', answer = ?, whole = ?, recalled = ?, at_work = ?, judged = ?"
        # What an answer that broke off would have used is not known.
        judged = 0 if outcome.whole and not repeats and any(map(rows.is_memory, recalled)) else None
        changed = (answer, outcome.whole, rows.as_json(recalled), outcome.calls, judged, seq)
        tx.execute(f"UPDATE exchanges SET {done} WHERE seq = ?", changed)
        if state == "open":
            tx.execute("UPDATE sessions SET unsummarised = unsummarised + 1 WHERE id = ?", (session,))
        for found in pending_sessions(tx, "e.session = :session", {"session": session}):
            if wanted := found.wanted(trigger):
                enqueue(tx, found.session, found.owner, wanted, at=at)
        if outcome.recalled:
            rows.touch(tx, owner, outcome.recalled, at)
        return True

    @writes
    def abort(self, tx: Connection, begun: StoredExchange) -> None:
        """Remove the exchange once no request holds it, and the session if nothing else is in it."""
        rows.lock_owners(tx, f"{_OWNERS} e.id = ?", (begun.id,))
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

    @reads
    def recent(self, tx: Connection, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        asked = rows.named(scope, name=session_id, limit=limit)
        return rows.exchanges_where(tx, scope, session_id, _LAST, asked)

    @reads
    def session_of(self, tx: Connection, scope: Scope, response_id: str) -> str | None:
        name: str | None = value(tx, _SESSION_OF, rows.named(scope, id=rows.storable(response_id)))
        return name

    @reads
    def timezone(self, tx: Connection, scope: Scope) -> str | None:
        query = "SELECT timezone FROM scopes WHERE tenant = ? AND user = ?"
        known: str | None = value(tx, query, (scope.tenant, scope.user))
        return known

    async def sweep(self, now: float, trigger: Trigger) -> int:
        # Asked every few seconds, of all that waits: reading first spares other writers the time.
        if await self._database.read(lambda tx: dead_instances(tx, "exchanges", "open", self._living)):
            await self._database.write(lambda tx: _close_abandoned(tx, self._living))
        await asyncio.to_thread(self._living.clean)
        found = await self._database.read(lambda tx: pending_sessions(tx, _UNQUEUED, {}))
        due = [(each.session, wanted) for each in found if (wanted := each.wanted(trigger))]
        made = 0
        for portion in rows.in_portions(due, _AT_ONCE):
            made += await self._queue(dict(portion), now)
        return made

    @writes
    def _queue(self, tx: Connection, wanted: Mapping[int, NewJob], now: float) -> int:
        """Queue the jobs of the sessions (by row) that still have something pending; return how many."""
        these = {"ids": rows.as_json(wanted)}
        rows.lock_owners(tx, _OWNERS_OF_SESSIONS, these)
        found = pending_sessions(tx, f"e.session IN {rows.seqs_in(':ids')} AND {_UNQUEUED}", these)
        for one in found:
            enqueue(tx, one.session, one.owner, wanted[one.session], at=now)
        return len(found)

    @writes
    def end(self, tx: Connection, scope: Scope, session_id: str, at: float) -> int:
        """As the port says. A later exchange takes a session up again."""
        _close_abandoned(tx, self._living)
        rows.lock_owner(tx, scope)
        ours = rows.named(scope, name=rows.storable(session_id))
        tx.execute(f"UPDATE sessions SET ended = 1 WHERE id IN (SELECT n.id {_NAMED})", ours)
        count = int(value(tx, f"SELECT count(*) {_BEING_ANSWERED}", ours))
        for found in pending_sessions(tx, f"n.id IN (SELECT n.id {_NAMED})", ours):
            enqueue(tx, found.session, found.owner, rest_of(found.state, closing=True), at=at)
            tx.execute("UPDATE jobs SET due_at = 0 WHERE session = ? AND state = 'queued'", (found.session,))
            count += found.state.pending
        return count

    @reads
    def sessions(
        self, tx: Connection, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[SessionInfo]:
        last: tuple[float | None, int] = (None, 0)
        if after is not None:
            # A bare name that several projects' sessions have means the one furthest down the list, so that
            # paging comes to an end.
            start, _, number = rows.storable(after).rpartition("@")
            row_id = int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else None
            last = tx.execute(
                f"SELECT n.last_at, n.id {_OURS}"
                f" AND (n.name = :name OR n.id = :row AND substr(n.name, 1, {_MARKED}) = :start)"
                " ORDER BY n.name = :name, n.last_at, n.id LIMIT 1",
                rows.named(scope, name=rows.storable(after), start=start, row=row_id),
            ).fetchone()
            if last is None:
                raise NotFound("No session has this id.", param="after")
        page = rows.named(scope, last_at=last[0], last_id=last[1], limit=limit)
        return [SessionInfo(scope=rows.scope_in(row), **row) for row in rows.records(tx, _SESSIONS, page)]

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        pruned, last = 0, _AT_ONCE
        while last == _AT_ONCE:
            last = await self._prune_exchanges(before)
            pruned += last
        edge: int | None = 0
        while edge is not None:  # a slice at a time
            old, edge = await self._old(before, edge)
            for portion in rows.in_portions(old, _AT_ONCE):
                await self._prune_sessions({"ids": rows.as_json(portion), "before": before})
        return pruned

    @writes
    def _prune_exchanges(self, tx: Connection, before: float) -> int:
        """Delete some of the exchanges from before `before` that are extracted; return how many. What was
        made of them for their session stays: the mark shows the triggers that this is not a forget."""
        old = column(tx, _OLD, (before, _AT_ONCE))
        these = (rows.as_json(old),)
        rows.lock_owners(tx, f"{_OWNERS} e.seq IN {_THESE}", these)
        tx.execute(f"UPDATE exchanges SET extraction = 'old' WHERE seq IN {_THESE}", these)
        tx.execute(f"DELETE FROM exchanges WHERE seq IN {_THESE}", these)
        return len(old)

    @reads
    def _old(self, tx: Connection, before: float, edge: int) -> tuple[Sequence[int], int | None]:
        """Return the old and empty sessions of the slice beyond the edge, and where it ends, if not all."""
        end = value(tx, _SLICE_END, {"edge": edge})
        asked = {"before": before, "edge": edge, "end": BEYOND_ALL if end is None else end}
        return column(tx, _OLD_SESSIONS, asked), end

    @writes
    def _prune_sessions(self, tx: Connection, these: Mapping[str, Any]) -> None:
        rows.lock_owners(tx, _OWNERS_OF_SESSIONS, these)
        tx.execute(_PRUNE_SESSIONS, these)
