"""Erasing: the memories that a filter covers and everything else that holds their text.

What is not known to be free of it goes too: an exchange that is erased, or whose answer was given with a
forgotten memory in view, takes with it the stored responses of its session (later ones replay or repeat
earlier ones), the responses that continue those, and the items of their conversations.

Every removal is a DELETE in one transaction; secure_delete overwrites the rows, and the caller empties the
write-ahead log afterwards.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain import Forgotten, MemoryFilter, Scope
from proxy.stores.sqlite import owners, rows

# What superseded a forgotten memory stays; what a forgotten memory superseded goes with it.
_WITH_OLDER = """
    WITH RECURSIVE doomed (seq, id, owner) AS (
        SELECT m.seq, m.id, m.owner FROM memories m JOIN scopes s ON s.id = m.owner WHERE {condition}
        UNION
        SELECT older.seq, older.id, older.owner
        FROM memories older JOIN doomed ON older.superseded_by = doomed.id AND older.owner = doomed.owner
    )
    SELECT seq, owner FROM doomed
"""
_OF_THE_OWNERS = "(SELECT id FROM sessions WHERE owner IN (SELECT value FROM json_each(:owners)))"
_OURS = "(SELECT id FROM sessions WHERE owner = :owner AND (:project IS NULL OR project = :project))"
# Who continued a response was shown all of it.
_WITH_LATER = """
    WITH RECURSIVE doomed (seq, owner, id) AS (
        SELECT r.seq, r.owner, r.id FROM stored_responses r WHERE {condition}
        UNION
        SELECT later.seq, later.owner, later.id
        FROM stored_responses later
        JOIN doomed ON later.previous_id = doomed.id AND later.owner = doomed.owner
    )
    SELECT seq FROM doomed
"""
_SHOWN_A_DOOMED_MEMORY = """
    recalled <> '[]' AND EXISTS (
        SELECT 1 FROM json_each(recalled) shown JOIN memories m ON m.id = shown.value
        WHERE m.seq IN (SELECT value FROM json_each(:seqs)))
"""
_SESSIONS = """
    SELECT json_extract(value, '$[0]') AS owner, json_extract(value, '$[1]') AS project,
           json_extract(value, '$[2]') AS name
    FROM json_each(:sessions)
"""

Session = tuple[int, str | None, str]
"""Owner, project and name: a session may still have responses when retention has removed its row."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was removed, and whose it was."""

    counts: Forgotten
    owners: frozenset[int]


def forget(tx: sqlite3.Connection, where: MemoryFilter, memory_id: str | None) -> Erased:
    """Erase what the filter covers, or one memory of it. Without an id, a user is required."""
    if memory_id is None and where.user is None:
        raise ValueError("a forget needs a user or a memory's id")
    condition, parameters = rows.conditions(where, inactive=True)
    if memory_id is not None:
        condition, parameters = condition + " AND m.id = :id", {**parameters, "id": memory_id}
    doomed = tx.execute(_WITH_OLDER.format(condition=condition), parameters).fetchall()
    touched = {owner for _, owner in doomed}
    counts = [Forgotten()]
    if memory_id is None and where.user is not None:
        # Even where nothing is found: a writer may be on its way with what was to be forgotten.
        owner = owners.ensure(tx, Scope(where.tenant, where.user)).id
        touched.add(owner)
        whole = where.type is None and where.text is None
        counts.append((_erase_all_said if whole else _erase_unread)(tx, owner, where.project))
    counts.append(_erase_memories(tx, [seq for seq, _ in doomed], touched))
    for owner in touched:
        owners.raise_generation(tx, owner)
    return Erased(_sum(counts), frozenset(touched))


def _sum(counts: Iterable[Forgotten]) -> Forgotten:
    parts = list(counts)
    return Forgotten(
        memories=sum(c.memories for c in parts),
        exchanges=sum(c.exchanges for c in parts),
        sessions=sum(c.sessions for c in parts),
        jobs=sum(c.jobs for c in parts),
        responses=sum(c.responses for c in parts),
    )


# ---------------------------------------------------------------- memories
def _erase_memories(tx: sqlite3.Connection, seqs: list[int], touched: set[int]) -> Forgotten:
    """Erase memories, with what cascades (vectors, events, evidence), and the exchanges behind them."""
    parameters: dict[str, Any] = {"seqs": rows.as_json(seqs), "owners": rows.as_json(touched)}
    sources = [
        row[0]
        for row in tx.execute(
            "SELECT DISTINCT exchange_id FROM evidence WHERE memory IN (SELECT value FROM json_each(:seqs))",
            parameters,
        )
    ]
    parameters["sources"] = rows.as_json(sources)
    told: list[Session] = tx.execute(
        "SELECT DISTINCT m.owner, m.project, e.session_id FROM evidence e JOIN memories m ON m.seq = e.memory"
        " WHERE e.memory IN (SELECT value FROM json_each(:seqs))",
        parameters,
    ).fetchall()
    # Answers given with them in view may repeat them. What the user said in those exchanges stays.
    blanked = tx.execute(
        f"UPDATE exchanges SET answer = '' WHERE session IN {_OF_THE_OWNERS}"
        f" AND {_SHOWN_A_DOOMED_MEMORY} RETURNING session",
        parameters,
    ).fetchall()
    shown = f"r.owner IN (SELECT value FROM json_each(:owners)) AND {_SHOWN_A_DOOMED_MEMORY}"
    responses = _erase_responses(tx, shown, parameters)
    memories = tx.execute(
        "DELETE FROM memories WHERE seq IN (SELECT value FROM json_each(:seqs))", parameters
    ).rowcount
    # Other memories may quote the same exchange: they stay, their quotes go.
    tx.execute(
        "UPDATE evidence SET span = '' WHERE exchange_id IN (SELECT value FROM json_each(:sources))"
        " AND memory IN (SELECT seq FROM memories WHERE owner IN (SELECT value FROM json_each(:owners)))",
        parameters,
    )
    erased = tx.execute(
        "DELETE FROM exchanges WHERE id IN (SELECT value FROM json_each(:sources))"
        f" AND session IN {_OF_THE_OWNERS} RETURNING session",
        parameters,
    ).fetchall()
    responses += _erase_kept_of(tx, [*told, *_sessions(tx, (*blanked, *erased))])
    return Forgotten(memories=memories, exchanges=len(erased), responses=responses)


# ---------------------------------------------------------------- what was said
def _erase_unread(tx: sqlite3.Connection, owner: int, project: str | None) -> Forgotten:
    """Erase what was said and not extracted yet: nobody knows whether it holds what is to be forgotten."""
    parameters = {"owner": owner, "project": project}
    jobs = tx.execute(f"DELETE FROM jobs WHERE session IN {_OURS}", parameters).rowcount
    erased = tx.execute(
        f"DELETE FROM exchanges WHERE extraction <> 'done' AND session IN {_OURS} RETURNING session",
        parameters,
    ).fetchall()
    responses = _erase_kept_of(tx, _sessions(tx, erased))
    return Forgotten(exchanges=len(erased), jobs=jobs, responses=responses)


def _erase_all_said(tx: sqlite3.Connection, owner: int, project: str | None) -> Forgotten:
    """Erase the user's (or one project's) sessions with exchanges and jobs, responses and conversations."""
    parameters = {"owner": owner, "project": project}
    jobs = tx.execute(f"DELETE FROM jobs WHERE session IN {_OURS}", parameters).rowcount
    exchanges = tx.execute(f"DELETE FROM exchanges WHERE session IN {_OURS}", parameters).rowcount
    sessions = tx.execute(f"DELETE FROM sessions WHERE id IN {_OURS}", parameters).rowcount
    theirs = "owner = :owner AND (:project IS NULL OR project = :project)"
    responses = _erase_responses(tx, theirs, parameters)
    tx.execute(f"DELETE FROM conversations WHERE {theirs}", parameters)
    tx.execute(
        "DELETE FROM conversation_items WHERE project = :project"
        " AND conversation IN (SELECT seq FROM conversations WHERE owner = :owner)",
        parameters,
    )
    return Forgotten(exchanges=exchanges, sessions=sessions, jobs=jobs, responses=responses)


# ---------------------------------------------------------------- what is kept of it
def _sessions(tx: sqlite3.Connection, found: Iterable[tuple[int]]) -> list[Session]:
    """Return the sessions of these rows."""
    return tx.execute(
        "SELECT owner, project, name FROM sessions WHERE id IN (SELECT value FROM json_each(?))",
        (rows.as_json({session for (session,) in found}),),
    ).fetchall()


def _erase_kept_of(tx: sqlite3.Connection, sessions: Sequence[Session]) -> int:
    """Erase the responses and the conversation items of the sessions. Returns how many responses."""
    parameters = {"sessions": rows.as_json(set(sessions))}
    tx.execute(
        f"DELETE FROM conversation_items WHERE seq IN (SELECT i.seq FROM ({_SESSIONS}) n"
        " JOIN conversations c ON c.owner = n.owner"
        " JOIN conversation_items i ON i.conversation = c.seq AND i.session = n.name"
        " WHERE i.project IS n.project)",
        parameters,
    )
    theirs = (
        f"r.seq IN (SELECT x.seq FROM ({_SESSIONS}) n"
        " JOIN stored_responses x ON x.owner = n.owner AND x.session = n.name WHERE x.project IS n.project)"
    )
    return _erase_responses(tx, theirs, parameters)


def _erase_responses(tx: sqlite3.Connection, condition: str, parameters: dict[str, Any]) -> int:
    """Erase the responses that the condition over `r` selects, those that continue them, and what the
    conversations of all these hold. Returns how many responses."""
    doomed = [row[0] for row in tx.execute(_WITH_LATER.format(condition=condition), parameters)]
    ours = {"doomed": rows.as_json(doomed)}
    tx.execute(
        "DELETE FROM conversation_items WHERE conversation IN ("
        " SELECT c.seq FROM stored_responses r JOIN conversations c"
        " ON c.owner = r.owner AND c.id = r.conversation_id"
        " WHERE r.seq IN (SELECT value FROM json_each(:doomed)))",
        ours,
    )
    erased = tx.execute(
        "DELETE FROM stored_responses WHERE seq IN (SELECT value FROM json_each(:doomed))"
        " RETURNING response IS NOT NULL",
        ours,
    ).fetchall()
    return sum(kept for (kept,) in erased)
