"""Rows of `exchanges` and of the sessions they are in: how one begins, ends, or is taken back. Runs inside
the writer's transaction."""

import json
from collections.abc import Collection

from proxy.domain.core import Begun, NewExchange, NewJob, Outcome, Scope
from proxy.domain.lanes import ORDINARY
from proxy.domain.ports import Trigger
from proxy.storage.sql import notes, owners, queue, rows
from proxy.storage.sql.connection import Connection, Instance
from proxy.storage.sql.rows import FORGOTTEN

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
_OWNERS = f"SELECT n.owner FROM exchanges e JOIN sessions n ON n.id = e.session WHERE e.seq IN {_THESE}"
_OLD = "SELECT seq FROM exchanges WHERE extraction = 'done' AND state = 'done' AND at < ? LIMIT ?"


def begin(tx: Connection, new: NewExchange, instance: str) -> Begun:
    owner = owners.ensure(tx, new.scope)
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
         new.explicit, new.personal, instance, owners.timezone(tx, owner.id, new), new.said_at),
    ).fetchone()  # fmt: skip
    notes.anchor(tx, session, number, new)
    if fresh:
        # Who opens a new conversation should be known in it.
        others = {"owner": owner.id, "session": session}
        for found in queue.pending(tx, "n.owner = :owner AND n.id <> :session", others):
            wanted = NewJob(found.state.session_id, found.state.last_seq, ORDINARY)
            queue.enqueue(tx, found, wanted, at=new.at)
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
    return any(living.is_dead(tx, name) for name in queue.instances(tx, "exchanges", "open"))


def close_abandoned(tx: Connection, living: Instance) -> None:
    """Complete, as broken off, the exchanges that died with their process."""
    for name in queue.instances(tx, "exchanges", "open"):
        if living.is_dead(tx, name):
            tx.execute(
                "UPDATE exchanges SET state = 'done', whole = 0 WHERE state = 'open' AND instance = ?",
                (name,),
            )


def complete(tx: Connection, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
    owners.lock_all(tx, _OWNER, (begun.id,))
    row = tx.execute(
        "SELECT e.seq, e.session, n.owner, e.at, e.state, e.whole, e.recalled,"
        " e.extraction, e.job FROM exchanges e"
        " JOIN sessions n ON n.id = e.session WHERE e.id = ? AND e.generation = ?",
        (begun.id, begun.generation),
    ).fetchone()
    if row is None:
        return False
    seq, session, owner, at, state, whole, before, extraction, job = row
    queue.wake(tx, owner)  # the request that was answered brought a credential, maybe a better one
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
    for found in queue.pending(tx, "e.session = :session", {"session": session}):
        queue.offer(tx, found, trigger, at)
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
    owners.lock_all(tx, _OWNER, (begun.id,))
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
    owners.lock_all(tx, _OWNERS, these)
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
