"""The NoteStore over SQL: see the port NoteStore for what every method guarantees.

Anchors are a log, resolved when they are read: an exchange that is taken back, or forgotten, takes with it
what it said, and what held before holds again. Lines are the exchanges' beginnings, not rows of their own."""

import json
from collections.abc import Sequence

from proxy.domain.core import Scope, Stamp
from proxy.domain.session import (
    BATCH,
    EVERY,
    MOST_ANCHORS,
    MOST_LINE_CHARS,
    NO_NOTES,
    OTHER,
    Anchor,
    CoveredState,
    Episode,
    Exchange,
    Job,
    NewJob,
    RecentTurn,
    SessionNotes,
    State,
    UncoveredExchanges,
)
from proxy.storage.sql import jobs, rows
from proxy.storage.sql.database import Connection, Store, column, legible, reads, value, writes
from proxy.storage.sql.sessions import enqueue

_BLANKS = "\t\n\r "
_AT_ONCE = 100  # sessions that one `close` looks at
_SESSION = """
    SELECT n.id, n.stateful FROM sessions n JOIN scopes s ON s.id = n.owner
    WHERE s.tenant = ? AND s.user = ? AND n.project IS ? AND n.name = ?
    AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = s.id)"""
_LOG = "SELECT slot, content, holds, at FROM anchors WHERE session = :session"
_SAID_BY = """
    AND exchange <= (SELECT max(seq) FROM exchanges
                     WHERE session = :session AND state = 'done'
                     AND trim(answer, :blanks) = trim(:after, :blanks))"""
_LINES = f"""
    SELECT substr(said, 1, {MOST_LINE_CHARS + 1}), substr(answer, 1, {MOST_LINE_CHARS + 1}), at, seq
    FROM exchanges WHERE session = ? AND state = 'done' ORDER BY seq DESC LIMIT ?"""
_EARLIER = "SELECT 1 FROM exchanges WHERE session = ? AND state = 'done' AND seq < ? LIMIT 1"
# Up to the first that is still being answered: a state leaves no gap.
_UNREAD = """
    e.session = :session AND e.state = 'done' AND e.seq > :upto AND e.seq < coalesce(
        (SELECT min(seq) FROM exchanges WHERE session = :session AND state = 'open'), e.seq + 1)
    ORDER BY e.seq LIMIT :limit"""
_TO_EXTRACT = """
    SELECT 1 FROM exchanges WHERE session = ? AND extraction = 'pending' AND state = 'done' AND seq <= ?
    AND job IS NOT ? LIMIT 1"""
_WHOLE = """
    e.seq IN (SELECT seq FROM exchanges WHERE session = :session AND state = 'done' AND seq <= :upto
              ORDER BY seq DESC LIMIT :limit) ORDER BY e.seq"""
_KEEP_STATE = """
    INSERT INTO states (session, upto, content, at) VALUES (?, ?, ?, ?)
    ON CONFLICT (session) DO UPDATE SET upto = excluded.upto, content = excluded.content, at = excluded.at
    WHERE states.upto < excluded.upto"""
_SUMMARY = """
    SELECT m.id FROM exchanges x JOIN evidence e ON e.exchange_id = x.id JOIN memories m ON m.seq = e.memory
    JOIN sessions n ON n.id = x.session
    WHERE x.session = ? AND m.owner = n.owner AND m.source = 'summary'
    AND m.superseded_by IS NULL AND m.archived = 0 ORDER BY m.seq DESC LIMIT 1"""
_ENDED = """
    SELECT n.id, n.owner, n.name, count(x.seq), max(x.seq) FROM (
        SELECT * FROM sessions n WHERE n.unsummarised > 0
        AND (n.ended = 1 OR n.last_at <= :idle_since
             OR (n.last_at <= :left_since
                 AND EXISTS (SELECT 1 FROM sessions o WHERE o.owner = n.owner AND o.id > n.id)))
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.session = n.id AND j.closing = 1)
        AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = n.owner)
        LIMIT :limit) n
    LEFT JOIN exchanges x ON x.session = n.id AND x.state = 'done' GROUP BY n.id, n.owner, n.name"""


class SqlNotes(Store):
    """Notes of all processes that share the file."""

    async def notes(
        self, scope: Scope, session_id: str, *, after: str | None = None, lines: int = 0
    ) -> SessionNotes:
        def work(tx: Connection) -> SessionNotes:
            session, _ = _find(tx, scope, session_id)
            if session is None:
                return NO_NOTES
            said_by = "" if after is None else _SAID_BY
            ours = {"session": session, "after": rows.storable(after or ""), "blanks": _BLANKS}
            held: dict[tuple[str, str], Anchor] = {}  # after all that the log says
            for slot, content, holds, at in tx.execute(f"{_LOG} {said_by} ORDER BY seq", ours):
                if slot == EVERY:
                    held.clear()
                    continue
                key = (slot, content if slot == OTHER else "")
                held.pop(key, None)
                if holds:
                    held[key] = Anchor(slot, content, at)
            anchors = tuple(held.values())[-MOST_ANCHORS:]
            found = tx.execute(_LINES, (session, lines)).fetchall()[::-1] if lines else []
            turns = tuple(RecentTurn(said, answered, at) for said, answered, at, _ in found)
            if not found or not tx.execute(_EARLIER, (session, found[0][3])).fetchone():
                return SessionNotes(anchors, turns)
            state, _, state_at = _state(tx, session)
            return SessionNotes(anchors, turns, state, state_at)

        return await self._database.begin_read(work)

    @reads
    def standing(self, tx: Connection, scope: Scope, session_id: str) -> CoveredState | None:
        session, _ = _find(tx, scope, session_id)
        if session is None or (state := _state(tx, session)[0]) is None:
            return None
        marks = column(tx, "SELECT mark FROM marks WHERE session = ?", (session,))
        return CoveredState(state, frozenset(marks))

    @reads
    def unread(
        self, tx: Connection, scope: Scope, session_id: str, *, limit: int
    ) -> UncoveredExchanges | None:
        owner, (session, stateful) = rows.find_owner(tx, scope), _find(tx, scope, session_id)
        if owner is None or session is None or not stateful:
            return None
        state, upto, _ = _state(tx, session)
        ours = {"session": session, "upto": upto, "limit": limit}
        found = tuple(rows.exchanges_where(tx, scope, session_id, _UNREAD, ours))
        query = f"SELECT seq, key FROM exchanges WHERE seq IN {rows.seqs_in('?')}"
        keys: dict[int, str] = dict(tx.execute(query, (rows.as_json(e.seq for e in found),)))
        return UncoveredExchanges(state, found, tuple(keys[e.seq] for e in found), owner.stamp)

    @writes
    def keep_state(
        self, tx: Connection, scope: Scope, session_id: str, state: State, upto: Exchange,
        marks: Sequence[str], *, expect: Stamp,
    ) -> bool:  # fmt: skip
        owner, (session, _) = rows.lock_owner(tx, scope), _find(tx, scope, session_id)
        if owner is None or session is None or owner.stamp.generation != expect.generation:
            return False
        row = (session, upto.seq, json.dumps(state, ensure_ascii=False), upto.at)
        if not tx.execute(_KEEP_STATE, row).rowcount:
            return False
        new = "INSERT INTO marks (session, mark) VALUES (?, ?) ON CONFLICT DO NOTHING"
        tx.executemany(new, [(session, mark) for mark in marks])
        return True

    @reads
    def episode(self, tx: Connection, job: Job, *, limit: int) -> Episode | None:
        session = jobs.leased_session(tx, job)
        if session is None or tx.execute(_TO_EXTRACT, (session, job.upto, int(job.id))).fetchone():
            return None
        ours = {"session": session, "upto": job.upto, "limit": limit}
        whole = rows.exchanges_where(tx, job.scope, job.session_id, _WHOLE, ours)
        return Episode(rows.without_tainted(tx, whole), value(tx, _SUMMARY, (session,)))

    async def close(self, *, idle_since: float, left_since: float, now: float) -> int:
        since = {"idle_since": idle_since, "left_since": left_since, "limit": _AT_ONCE}

        def work(tx: Connection) -> int:
            rows.lock_owners(tx, f"SELECT owner FROM ({_ENDED}) ended", since)
            queued = 0
            for session, owner, name, exchanges, last in tx.execute(_ENDED, since).fetchall():
                if exchanges < 2:  # it needs no summary
                    tx.execute("UPDATE sessions SET unsummarised = 0 WHERE id = ?", (session,))
                else:
                    enqueue(tx, session, owner, NewJob(name, last, BATCH, closing=True), at=now)
                    queued += 1
            return queued

        # Asked every few seconds and seldom fruitful: reading first spares the write, and its fsync.
        if not await self._database.read(lambda tx: tx.execute(_ENDED, since).fetchone()):
            return 0
        return await self._database.write(work)


def _find(tx: Connection, scope: Scope, name: str) -> tuple[int | None, bool]:
    """Return the session's row, and whether its state is wanted."""
    named = (scope.tenant, scope.user, scope.project, rows.storable(name))
    row = tx.execute(_SESSION, named).fetchone()
    return (row[0], bool(row[1])) if row else (None, False)


def _state(tx: Connection, session: int) -> tuple[State | None, int, float]:
    """Return the state, the last exchange that it covers, and when that was."""
    query = "SELECT content, upto, at FROM states WHERE session = ?"
    row: tuple[str, int, float] | None = tx.execute(query, (session,)).fetchone()
    with legible():
        return (json.loads(row[0]), row[1], row[2]) if row else (None, 0, 0.0)
