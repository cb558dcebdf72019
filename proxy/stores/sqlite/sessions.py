"""The SessionStore over SQLite: see ports.SessionStore for what every method guarantees."""

import sqlite3

from proxy.domain import Begun, Exchange, NewExchange, Outcome, Scope
from proxy.ports import Trigger
from proxy.stores.sqlite import owners, queue, rows
from proxy.stores.sqlite.database import Database
from proxy.stores.sqlite.instance import Instance

RETRY_S = 60.0  # a client's own retries come sooner
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
_PRUNE_EXCHANGES = """
    DELETE FROM exchanges WHERE seq IN (
        SELECT seq FROM exchanges WHERE extraction = 'done' AND state = 'done' AND at < :before LIMIT :limit)
"""
# With a session goes which responses were made in it.
_PRUNE_SESSIONS = """
    DELETE FROM sessions WHERE id IN (
        SELECT n.id FROM sessions n WHERE n.last_at < :before
        AND NOT EXISTS (SELECT 1 FROM exchanges e WHERE e.session = n.id)
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.session = n.id) LIMIT :limit)
"""
_PRUNE_AT_ONCE = 200  # rows of a transaction: other writers wait meanwhile


class SqliteSessions:
    """Exchanges of all processes that share the file. `instance` is None until the store is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.instance: Instance | None = None

    async def begin(self, exchange: NewExchange) -> Begun:
        def work(tx: sqlite3.Connection) -> Begun:
            assert self.instance is not None, "the database is open only after the instance lives"
            return _begin(tx, exchange, self.instance.id)

        return await self._database.write(work)

    async def complete(self, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
        return await self._database.write(lambda tx: _complete(tx, begun, outcome, trigger))

    async def abort(self, begun: Begun) -> None:
        await self._database.write(lambda tx: _abort(tx, begun))

    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        parameters = {
            "tenant": scope.tenant, "user": scope.user, "project": scope.project, "name": session_id,
            "limit": limit,
        }  # fmt: skip
        return await self._database.read(
            lambda tx: rows.exchanges_where(tx, scope, session_id, _LAST, parameters)
        )

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        def work(tx: sqlite3.Connection) -> str | None:
            row = tx.execute(
                _SESSION_OF,
                {"tenant": scope.tenant, "user": scope.user, "id": rows.storable(response_id)},
            ).fetchone()
            return str(row[0]) if row else None

        return await self._database.read(work)

    async def sweep(self, now: float, trigger: Trigger) -> int:
        def work(tx: sqlite3.Connection) -> int:
            assert self.instance is not None, "the database is open only after the instance lives"
            for name in queue.instances(tx, "exchanges", "open"):
                if self.instance.is_dead(name):
                    tx.execute(
                        "UPDATE exchanges SET state = 'done', whole = 0"
                        " WHERE state = 'open' AND instance = ?",
                        (name,),
                    )
            self.instance.clean()
            return sum(queue.offer(tx, found, trigger, now) for found in queue.pending(tx, _UNQUEUED, {}))

        return await self._database.write(work)

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        pruned = await self._in_portions(_PRUNE_EXCHANGES, before)
        await self._in_portions(_PRUNE_SESSIONS, before)
        return pruned

    async def _in_portions(self, deletion: str, before: float) -> int:
        """Repeat the deletion until it finds nothing more; returns how many rows."""
        parameters, total = {"before": before, "limit": _PRUNE_AT_ONCE}, 0
        while True:
            gone = await self._database.write(lambda tx: tx.execute(deletion, parameters).rowcount)
            total += gone
            if gone < _PRUNE_AT_ONCE:
                return total


def _begin(tx: sqlite3.Connection, new: NewExchange, instance: str) -> Begun:
    owner = owners.ensure(tx, new.scope)
    session, fresh = _session(tx, owner.id, new)
    key, row = _repeated(tx, session, new)
    if row is not None:
        seq, id_, generation, state = row
        if state == "open":
            tx.execute(
                "UPDATE exchanges SET holders = holders + 1, instance = ? WHERE seq = ?", (instance, seq)
            )
        return Begun(id_, generation)
    tx.execute(
        "INSERT INTO exchanges (id, key, session, generation, model, said, at, explicit, personal, instance)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (new.id, key, session, owner.stamp.generation, new.model, rows.storable(new.said), new.at,
         new.explicit, new.personal, instance),
    )  # fmt: skip
    if fresh:
        # Who opens a new conversation should be known in it.
        others = {"owner": owner.id, "session": session}
        for found in queue.pending(tx, "n.owner = :owner AND n.id <> :session", others):
            queue.enqueue(tx, found, upto=found.state.last_seq, lane=queue.ORDINARY_LANE, at=new.at)
    return Begun(new.id, owner.stamp.generation)


def _repeated(
    tx: sqlite3.Connection, session: int, new: NewExchange
) -> tuple[str, tuple[int, str, int, str] | None]:
    """Return the key to store the exchange under, and (seq, id, generation, state) of the one it repeats.

    A request that holds its history repeats whichever has the same key. One without says the same words
    anew, unless they are the last thing said and were said, or not wholly answered, just now: a retry.
    """
    columns = "seq, id, generation, state, key, whole, at"
    if not new.standalone:
        query = f"SELECT {columns} FROM exchanges WHERE session = ? AND key = ?"
        row = tx.execute(query, (session, new.key)).fetchone()
        return new.key, row and row[:4]
    query = f"SELECT {columns} FROM exchanges WHERE session = ? ORDER BY seq DESC LIMIT 1"
    row = tx.execute(query, (session,)).fetchone()
    if row is None:
        return new.key, None
    seq, *_, key, whole, at = row
    if key.partition(":")[0] == new.key and (not whole or new.at - at < RETRY_S):
        return key, row[:4]
    return f"{new.key}:{seq}", None


def _session(tx: sqlite3.Connection, owner: int, new: NewExchange) -> tuple[int, bool]:
    """Return the session's row, made if need be, and whether it was made."""
    row = tx.execute(
        "UPDATE sessions SET last_at = max(last_at, ?)"
        " WHERE owner = ? AND project IS ? AND name = ? RETURNING id",
        (new.at, owner, new.scope.project, new.session_id),
    ).fetchone()
    if row is not None:
        return int(row[0]), False
    cursor = tx.execute(
        "INSERT INTO sessions (owner, project, name, last_at) VALUES (?, ?, ?, ?)",
        (owner, new.scope.project, new.session_id, new.at),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid, True


def _complete(tx: sqlite3.Connection, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
    row = tx.execute(
        "SELECT e.seq, e.session, n.owner, e.at, e.state, e.whole, e.extraction, e.job FROM exchanges e"
        " JOIN sessions n ON n.id = e.session WHERE e.id = ? AND e.generation = ?",
        (begun.id, begun.generation),
    ).fetchone()
    if row is None:
        return False
    seq, session, owner, at, state, whole, extraction, job = row
    queue.wake(tx, owner)  # the request that was answered brought a credential, maybe a better one
    if outcome.response_id is not None:
        tx.execute(
            "INSERT INTO responses (id, owner, session) VALUES (?, ?, ?)"
            " ON CONFLICT (owner, id) DO UPDATE SET session = excluded.session",
            (outcome.response_id, owner, session),
        )
    # An answer that broke off gives way to a whole one, unless a job has read it.
    unread = extraction == "pending" and job is None
    if state == "done" and not (unread and outcome.whole and not whole):
        return True
    # An answer given with a memory in view that was forgotten meanwhile may repeat it.
    answer = "" if _any_forgotten(tx, owner, outcome.recalled) else rows.storable(outcome.answer)
    tx.execute(
        "UPDATE exchanges SET state = 'done', answer = ?, whole = ?, recalled = ? WHERE seq = ?",
        (answer, outcome.whole, rows.as_json(outcome.recalled), seq),
    )
    for found in queue.pending(tx, "e.session = :session", {"session": session}):
        queue.offer(tx, found, trigger, at)
    if outcome.recalled:
        rows.touch(tx, owner, outcome.recalled, at)
    return True


def _any_forgotten(tx: sqlite3.Connection, owner: int, ids: tuple[str, ...]) -> bool:
    if not ids:
        return False
    (left,) = tx.execute(
        "SELECT count(*) FROM memories WHERE owner = ? AND id IN (SELECT value FROM json_each(?))",
        (owner, rows.as_json(ids)),
    ).fetchone()
    return bool(left < len(set(ids)))


def _abort(tx: sqlite3.Connection, begun: Begun) -> None:
    """Remove the exchange once no request holds it, and the session if nothing else is in it."""
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
