"""Orders: large forgets under way. What one covers is hidden at once, from every query.

All of a user is hidden by taking the row of `scopes` away from its name: a new row takes its place, and
no query by tenant and user finds the old one's memories, sessions, responses any more. Anything less is
hidden by a condition, while its order stands.
"""

import json
from dataclasses import asdict, dataclass, replace

from proxy.domain.core import Forgotten, MemoryFilter
from proxy.storage.damage import legible
from proxy.storage.sql import receipts
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting.target import Bounds, Target, bounds_now

# A memory is hidden with what superseded it, as it will be erased with it: the walk goes from `m` upwards.
_HIDDEN = """NOT EXISTS (
    WITH RECURSIVE line (seq, id, owner, project, type, superseded_by) AS (
        SELECT m.seq, m.id, m.owner, m.project, m.type, m.superseded_by
        UNION
        SELECT n.seq, n.id, n.owner, n.project, n.type, n.superseded_by
        FROM line JOIN memories n ON n.id = line.superseded_by AND n.owner = line.owner
    )
    SELECT 1 FROM line JOIN forgets f ON f.owner = line.owner
    WHERE line.seq <= CAST(json_extract(f.bounds, '$.memories') AS INTEGER)
    AND m.seq <= CAST(json_extract(f.bounds, '$.memories') AS INTEGER)
    AND (f.memory_id IS NULL OR f.memory_id = line.id)
    AND (f.project IS NULL OR f.project = line.project)
    AND (f.types IS NULL OR line.type IN (SELECT value FROM json_each(f.types))))
"""
# The answers of these are on their way, and will not find them; the same request may be made anew. They are
# erased with their portion, since they tell whose responses are to go, too.
_OPEN = """
    UPDATE exchanges SET generation = -1, key = 'forgotten:' || seq WHERE seq IN (
        SELECT x.seq FROM exchanges x JOIN sessions n ON n.id = x.session
        WHERE x.state = 'open' AND n.owner = :owner AND (:project IS NULL OR n.project = :project))
"""
_JOBS = """
    DELETE FROM jobs WHERE session IN (
        SELECT id FROM sessions WHERE owner = :owner AND (:project IS NULL OR project = :project))
"""
_NOTES = """
    DELETE FROM {} WHERE session IN (
        SELECT id FROM sessions WHERE owner = :owner AND (:project IS NULL OR project = :project))
"""

_DOCUMENTS = """
    UPDATE documents SET doomed = 1
    WHERE owner = :owner AND doomed = 0 AND (:project IS NULL OR project = :project)
"""


@dataclass(frozen=True, slots=True)
class Order:
    """One forget that is under way."""

    receipt: int
    target: Target
    instance: str  # the process that is at it


def hidden(tx: Connection) -> str:
    """Return a condition over `m` that leaves out what is being forgotten, "" where nothing is."""
    return f" AND {_HIDDEN}" if tx.execute("SELECT 1 FROM forgets LIMIT 1").fetchone() else ""


def place(
    tx: Connection, target: Target, where: MemoryFilter, *, by: str, instance: str
) -> tuple[Order, str]:
    """Hide the target and stop whoever is writing about it; return the order and its receipt's id."""
    named = target.owner
    if target.is_everything:
        named = _take_name(tx, target.owner)
    else:
        target = replace(target, bounds=bounds_now(tx))
        tx.execute("UPDATE scopes SET portioned = generation WHERE id = ?", (target.owner,))
    gone = Forgotten()
    if target.memory_id is None:
        ours = {"owner": target.owner, "project": target.project}
        gone = Forgotten(jobs=tx.execute(_JOBS, ours).rowcount)
        tx.execute(_OPEN, ours)
    if target.is_scope:  # small, and all of it from before: a session that goes on is left without
        for table in ("anchors", "states", "marks"):
            tx.execute(_NOTES.format(table), {"owner": target.owner, "project": target.project})
        tx.execute(_DOCUMENTS, {"owner": target.owner, "project": target.project})
    issued = receipts.issue(tx, named, where, memory_id=target.memory_id, by=by, counts=gone)
    tx.execute(
        "INSERT INTO forgets (receipt, owner, project, type, types, memory_id, bounds, instance)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (issued.seq, target.owner, target.project, target.type,
         None if target.types is None else json.dumps(sorted(target.types)), target.memory_id,
         json.dumps(asdict(target.bounds)), instance),
    )  # fmt: skip
    return Order(issued.seq, target, instance), issued.id


def standing(tx: Connection) -> list[Order]:
    """Return the orders that are not carried out yet, the oldest first."""
    found = tx.execute(
        "SELECT receipt, owner, project, type, memory_id, bounds, instance FROM forgets ORDER BY receipt"
    ).fetchall()
    with legible():
        return [
            Order(
                receipt,
                Target(owner=owner, project=project, type=type_, memory_id=memory_id,
                       bounds=Bounds(**json.loads(bounds))),
                instance,
            )
            for receipt, owner, project, type_, memory_id, bounds, instance in found
        ]  # fmt: skip


def finish(tx: Connection, order: Order) -> Forgotten:
    """Close the order; return what it has erased in all."""
    tx.execute("DELETE FROM forgets WHERE receipt = ?", (order.receipt,))
    bury(tx, order.target.owner)
    return receipts.counts(tx, order.receipt)


def bury(tx: Connection, owner: int) -> None:
    """Remove a row of `scopes` that has lost its name, with what is kept for living users only."""
    nameless = (
        "SELECT id FROM scopes WHERE id = :id AND user IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM forgets WHERE owner = :id)"
    )
    tx.execute(f"DELETE FROM evicted WHERE owner IN ({nameless})", {"id": owner})
    tx.execute(f"DELETE FROM scopes WHERE id IN ({nameless})", {"id": owner})


def _take_name(tx: Connection, owner: int) -> int:
    """Give the user a new row, without anything, and one generation on; return its number."""
    tenant, user, generation, version, served = tx.execute(
        "SELECT tenant, user, generation, version, served FROM scopes WHERE id = ?", (owner,)
    ).fetchone()
    tx.execute("UPDATE scopes SET tenant = NULL, user = NULL WHERE id = ?", (owner,))
    (fresh,) = tx.execute(
        "INSERT INTO scopes (tenant, user, generation, version, served) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (tenant, user, generation, version, served),
    ).fetchone()
    tx.execute("UPDATE receipts SET owner = ? WHERE owner = ?", (fresh, owner))
    return int(fresh)
