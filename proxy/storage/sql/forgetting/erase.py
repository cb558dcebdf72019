"""Erase doomed rows, all at once or in portions. secure_delete overwrites each with zeros."""

from collections.abc import Iterator
from typing import Any

from proxy.domain.core import Forgotten
from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting.affected import Doomed, Seqs
from proxy.storage.sql.rows import FORGOTTEN

Portion = tuple[tuple[str, Seqs], ...]
"""Tables, by their names in Doomed, and numbers of rows."""

_FULL = 1.0
# What one row takes of a portion: a portion is to hold the writer up for about 5 ms.
_WEIGHTS = {
    "linked_responses": 1 / 25,  # large
    "responses": 1 / 25,
    "conversations": 1 / 100,
    "older": 0.0,  # together: the way to them is lost with the first of those that superseded them
}
_WEIGHT = 1 / 100
_THESE = "(SELECT CAST(value AS INTEGER) FROM json_each(:seqs))"
# Somebody may have continued one of them meanwhile.
_RESPONSES = f"""
        DELETE FROM stored_responses WHERE seq IN (
            WITH RECURSIVE doomed (seq, owner, id) AS (
                SELECT seq, owner, id FROM stored_responses WHERE seq IN {_THESE}
                UNION
                SELECT later.seq, later.owner, later.id FROM doomed JOIN stored_responses later
                ON later.previous_id = doomed.id AND later.owner = doomed.owner)
            SELECT seq FROM doomed)
        RETURNING response IS NOT NULL"""
_ITEMS = f"DELETE FROM conversation_items WHERE seq IN {_THESE}"
_DELETE = {
    "linked_items": _ITEMS,
    "linked_responses": _RESPONSES,
    "responses": _RESPONSES,
    "items": _ITEMS,
    "conversations": f"DELETE FROM conversations WHERE seq IN {_THESE}",
    "answers": f"""
        UPDATE exchanges SET answer = '', recalled = CASE
            WHEN recalled = '[]' THEN '["{FORGOTTEN}"]'
            WHEN EXISTS (SELECT 1 FROM json_each(recalled) shown WHERE shown.value = '{FORGOTTEN}')
            THEN recalled
            ELSE substr(recalled, 1, length(recalled) - 1) || ', "{FORGOTTEN}"]' END
        WHERE seq IN {_THESE}""",
    "quotes": f"UPDATE evidence SET span = '' WHERE id IN {_THESE}",
    "jobs": f"DELETE FROM jobs WHERE id IN {_THESE}",
    "exchanges": f"DELETE FROM exchanges WHERE seq IN {_THESE}",
    "held": f"DELETE FROM quarantine WHERE seq IN {_THESE}",
    # With what cascades: vectors, events, evidence.
    "older": f"DELETE FROM memories WHERE seq IN {_THESE}",
    "memories": f"DELETE FROM memories WHERE seq IN {_THESE}",
    "sessions": f"""
        DELETE FROM sessions WHERE id IN {_THESE}
        AND NOT EXISTS (SELECT 1 FROM exchanges x WHERE x.session = sessions.id)""",
    "passages": f"DELETE FROM passages WHERE seq IN {_THESE}",
    "documents": f"DELETE FROM documents WHERE seq IN {_THESE}",
}
_COUNTED_AS = {
    "memories": "memories",
    "older": "memories",
    "exchanges": "exchanges",
    "sessions": "sessions",
    "jobs": "jobs",
    "responses": "responses",
    "linked_responses": "responses",
    "held": "quarantined",
    "documents": "documents",
    "conversations": "conversations",
}


def portions(doomed: Doomed) -> Iterator[Portion]:
    """Yield all of it, in order, in parts that hold up other writers only shortly."""
    portion: list[tuple[str, Seqs]] = []
    room = _FULL
    for table, seqs in doomed.tables():
        weight = _WEIGHTS.get(table, _WEIGHT)
        start = 0
        while start < len(seqs):
            size = len(seqs) if not weight else max(1, int(room / weight))
            part = seqs[start : start + size]
            portion.append((table, part))
            start, room = start + size, room - weight * len(part)
            if room < weight or room < _WEIGHT:
                yield tuple(portion)
                portion, room = [], _FULL
    if portion:
        yield tuple(portion)


def erase(tx: Connection, owner: int, portion: Portion) -> Forgotten:
    """Erase the rows as far as they are still there; return how many there were."""
    counted: dict[str, Any] = {}
    for table, seqs in portion:
        these = {"seqs": rows.as_json(seqs)}
        if table == "quotes":
            _announce(tx, owner, these)
        cursor = tx.execute(_DELETE[table], these)
        gone = sum(kept for (kept,) in cursor.fetchall()) if cursor.description else cursor.rowcount
        if (name := _COUNTED_AS.get(table)) is not None:
            counted[name] = counted.get(name, 0) + gone
    return Forgotten(**counted)


def erase_all(tx: Connection, owner: int, doomed: Doomed) -> Forgotten:
    """Erase all of it in this transaction."""
    return erase(tx, owner, tuple(doomed.tables()))


def _announce(tx: Connection, owner: int, quotes: dict[str, str]) -> None:
    """Say that memories which stay read differently now: their quotes go, and are kept in memory."""
    (version,) = tx.execute(
        "UPDATE scopes SET version = version + 1 WHERE id = ? RETURNING version", (owner,)
    ).fetchone()
    tx.execute(
        "UPDATE memories SET changed = :version"
        f" WHERE seq IN (SELECT memory FROM evidence WHERE id IN {_THESE})",
        quotes | {"version": version},
    )
