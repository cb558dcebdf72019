"""Erasing: the memories that a filter covers and everything else that holds their text.

Every removal is a DELETE in one transaction; secure_delete overwrites the rows, and the caller empties the
write-ahead log afterwards.
"""

import sqlite3
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
    counts = Forgotten()
    if memory_id is None and where.user is not None:
        # Even where nothing is found: a writer may be on its way with what was to be forgotten.
        owner = owners.ensure(tx, Scope(where.tenant, where.user)).id
        touched.add(owner)
        if where.type is None and where.text is None:
            counts = _erase_sessions(tx, owner, where.project)
        else:
            counts = _erase_unread(tx, owner, where.project)
    memories, exchanges = _erase_memories(tx, [seq for seq, _ in doomed], touched)
    for owner in touched:
        owners.raise_generation(tx, owner)
    counts = Forgotten(memories, counts.exchanges + exchanges, counts.sessions, counts.jobs)
    return Erased(counts, frozenset(touched))


def _erase_memories(tx: sqlite3.Connection, seqs: list[int], touched: set[int]) -> tuple[int, int]:
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
    # Answers given with them in view may repeat them. What the user said in those exchanges stays.
    tx.execute(
        "UPDATE exchanges SET answer = '' WHERE recalled <> '[]' AND session IN"
        " (SELECT id FROM sessions WHERE owner IN (SELECT value FROM json_each(:owners)))"
        " AND EXISTS (SELECT 1 FROM json_each(recalled) r JOIN memories m ON m.id = r.value"
        "             WHERE m.seq IN (SELECT value FROM json_each(:seqs)))",
        parameters,
    )
    memories = tx.execute(
        "DELETE FROM memories WHERE seq IN (SELECT value FROM json_each(:seqs))", parameters
    ).rowcount
    # Other memories may quote the same exchange: they stay, their quotes go.
    tx.execute(
        "UPDATE evidence SET span = '' WHERE exchange_id IN (SELECT value FROM json_each(:sources))"
        " AND memory IN (SELECT seq FROM memories WHERE owner IN (SELECT value FROM json_each(:owners)))",
        parameters,
    )
    exchanges = tx.execute(
        "DELETE FROM exchanges WHERE id IN (SELECT value FROM json_each(:sources)) AND session IN"
        " (SELECT id FROM sessions WHERE owner IN (SELECT value FROM json_each(:owners)))",
        parameters,
    ).rowcount
    return memories, exchanges


def _erase_unread(tx: sqlite3.Connection, owner: int, project: str | None) -> Forgotten:
    """Erase what was said and not extracted yet: nobody knows whether it holds what is to be forgotten."""
    parameters = {"owner": owner, "project": project}
    ours = "SELECT id FROM sessions WHERE owner = :owner AND (:project IS NULL OR project = :project)"
    jobs = tx.execute(f"DELETE FROM jobs WHERE session IN ({ours})", parameters).rowcount
    exchanges = tx.execute(
        f"DELETE FROM exchanges WHERE extraction <> 'done' AND session IN ({ours})", parameters
    ).rowcount
    return Forgotten(exchanges=exchanges, jobs=jobs)


def _erase_sessions(tx: sqlite3.Connection, owner: int, project: str | None) -> Forgotten:
    """Erase the user's (or one project's) sessions with their exchanges, jobs and responses."""
    parameters = {"owner": owner, "project": project}
    ours = "SELECT id FROM sessions WHERE owner = :owner AND (:project IS NULL OR project = :project)"
    jobs = tx.execute(f"DELETE FROM jobs WHERE session IN ({ours})", parameters).rowcount
    exchanges = tx.execute(f"DELETE FROM exchanges WHERE session IN ({ours})", parameters).rowcount
    sessions = tx.execute(f"DELETE FROM sessions WHERE id IN ({ours})", parameters).rowcount
    return Forgotten(exchanges=exchanges, sessions=sessions, jobs=jobs)
