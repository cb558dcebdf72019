"""Erase rows in portions, record it in receipts, and hide what a large forget still has to erase.

A receipt proves what was forgotten, without any of it: see ports.Receipts. A large forget is a row of
`forgets`. What it covers is hidden at once, from every query: all of a user by a new row of `scopes` that
takes the name from the old one, so that no query by tenant and user finds what belongs to the old one;
anything less by a condition, while the forget is pending."""

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from proxy.domain.core import ForgetCounts, MemoryFilter, Receipt
from proxy.domain.errors import NotFound
from proxy.storage.sql import rows, users
from proxy.storage.sql.database import Connection, Store, legible, reads, value
from proxy.storage.sql.derivation import release_sources
from proxy.storage.sql.forget_plan import Bounds, ForgetPlan, ForgetTarget, Seqs, bounds_now
from proxy.storage.sql.rows import FORGOTTEN

# ---------------------------------------------------------------- receipts
# A forget that has not finished proves nothing yet.
_LIST = """
    SELECT r.id, s.tenant, s.user, r.project, r.type, r.memory_id, r.by, r.at, r.counts
    FROM scopes s JOIN receipts r ON r.owner = s.id
    WHERE s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
    AND r.seq < :before AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.receipt = r.seq)
    ORDER BY r.seq DESC LIMIT :limit"""
_CURSOR = """
    SELECT r.seq FROM receipts r JOIN scopes s ON s.id = r.owner
    WHERE r.id = :after AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"""
_NEWEST = 2**63 - 1
_NAMES = frozenset(each.name for each in fields(ForgetCounts)) - {"receipt"}


class SqlReceipts(Store):
    """Receipts of all processes that share the file."""

    @reads
    def list(
        self, tx: Connection, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """As the port says. Raises NotFound for an `after` that is none of them."""
        wanted = {"tenant": tenant, "user": user, "limit": limit, "after": after, "before": _NEWEST}
        if after is not None:
            wanted["before"] = value(tx, _CURSOR, wanted)
            if wanted["before"] is None:
                raise NotFound("no receipt has this id", param="after")
        return [receipt_of(row) for row in tx.execute(_LIST, wanted)]


def issue_receipt(
    tx: Connection, owner: int, where: MemoryFilter, *, memory_id: str | None, by: str, counts: ForgetCounts
) -> tuple[int, str]:
    """Write the receipt of a forget of the filter, or of one memory of it; return its number and id."""
    receipt = Receipt(
        id=f"rcpt_{secrets.token_hex(12)}", tenant=where.tenant, user=where.user or "", project=where.project,
        type=where.type, memory_id=memory_id, by=by, at=where.now, counts=counts,
    )  # fmt: skip
    return store_receipt(tx, owner, receipt), receipt.id


def store_receipt(tx: Connection, owner: int, receipt: Receipt) -> int:
    """Write the receipt, issued here or by another database; return its number."""
    r, counts = receipt, json.dumps(counts_as_dict(receipt.counts))
    stored = """
        INSERT INTO receipts (id, owner, project, type, memory_id, by, at, counts)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq"""
    return int(value(tx, stored, (r.id, owner, r.project, r.type, r.memory_id, r.by, r.at, counts)))


def add_to_receipt(tx: Connection, seq: int, more: ForgetCounts) -> None:
    """Count what a portion has erased."""
    total = counts_as_dict(add_counts(receipt_counts(tx, seq), more))
    tx.execute("UPDATE receipts SET counts = ? WHERE seq = ?", (json.dumps(total), seq))


def receipt_counts(tx: Connection, seq: int) -> ForgetCounts:
    """Return what the receipt says was erased, with its id."""
    id_, text = tx.execute("SELECT id, counts FROM receipts WHERE seq = ?", (seq,)).fetchone()
    with legible():
        return counts_from_dict(json.loads(text), id_)


def receipt_of(row: tuple[Any, ...]) -> Receipt:
    """Return a row: id, tenant, user, project, type, memory_id, by, at, counts."""
    id_, tenant, user, project, type_, memory_id, by, at, text = row
    with legible():
        counts = counts_from_dict(json.loads(text), id_)
    return Receipt(
        id=id_, tenant=tenant, user=user, project=project, type=type_, memory_id=memory_id, by=by, at=at,
        counts=counts,
    )  # fmt: skip


# ---------------------------------------------------------------- counts
def add_counts(one: ForgetCounts, other: ForgetCounts) -> ForgetCounts:
    """Return the sum; the receipt is the first that there is."""
    first, second = asdict(one), asdict(other)
    added = {name: first[name] + second[name] for name in _NAMES}
    return ForgetCounts(**added, receipt=one.receipt or other.receipt)


def counts_as_dict(counts: ForgetCounts) -> dict[str, int]:
    """Return the counts as they are stored: without zeros, since an older version may not know the names."""
    return {name: count for name, count in asdict(counts).items() if name in _NAMES and count}


def counts_from_dict(row: Mapping[str, int], receipt: str | None = None) -> ForgetCounts:
    """Return those counts that this version knows. Raises TypeError, ValueError for anything else."""
    known = {name: count for name, count in dict(row).items() if name in _NAMES}
    return ForgetCounts(**known, receipt=receipt)


# ---------------------------------------------------------------- rows
Portion = tuple[tuple[str, Seqs], ...]
"""Tables, by their names in ForgetPlan, and numbers of rows."""

_FULL = 1.0
# What one row takes of a portion: a portion is to hold the writer up for about 5 ms.
_WEIGHTS = {
    "linked_responses": 1 / 25,  # large
    "responses": 1 / 25,
    "derived": 0.0,  # together: what they superseded inherits what supersedes the last of them
    "older": 0.0,  # together: the way to them is lost with the first of those that superseded them
}
_WEIGHT = 1 / 100
_THESE = rows.seqs_in(":seqs")
# With those that continue one of them since it was found.
_RESPONSES = f"""
        DELETE FROM stored_responses WHERE seq IN (
            WITH RECURSIVE erased (seq, owner, id) AS (
                SELECT seq, owner, id FROM stored_responses WHERE seq IN {_THESE}
                UNION
                SELECT later.seq, later.owner, later.id FROM erased JOIN stored_responses later
                ON later.previous_id = erased.id AND later.owner = erased.owner)
            SELECT seq FROM erased)
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
    "derived": f"DELETE FROM memories WHERE seq IN {_THESE}",
    "older": f"DELETE FROM memories WHERE seq IN {_THESE}",
    "memories": f"DELETE FROM memories WHERE seq IN {_THESE}",
    "sessions": f"""
        DELETE FROM sessions WHERE id IN {_THESE}
        AND NOT EXISTS (SELECT 1 FROM exchanges x WHERE x.session = sessions.id)""",
    "passages": f"DELETE FROM passages WHERE seq IN {_THESE}",
    "documents": f"DELETE FROM documents WHERE seq IN {_THESE}",
}
# Of the others the name is that of the count.
_COUNTED_AS = {
    "derived": "memories",
    "older": "memories",
    "linked_responses": "responses",
    "held": "quarantined",
}
_NOT_COUNTED = {"linked_items", "items", "answers", "quotes", "passages"}


def portions(plan: ForgetPlan) -> Iterator[Portion]:
    """Yield all of it, in order, in parts that hold up other writers only shortly."""
    portion: list[tuple[str, Seqs]] = []
    room = _FULL
    for table, seqs in plan.tables():
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


def erase(tx: Connection, owner: int, portion: Portion) -> ForgetCounts:
    """Erase those of the rows that are still there; return how many there were."""
    counted: dict[str, Any] = defaultdict(int)
    for table, seqs in portion:
        these = {"seqs": rows.as_json(seqs)}
        if table == "quotes":
            _mark_changed(tx, owner, these)
        if table == "derived" and seqs:
            release_sources(tx, owner, these["seqs"], users.raise_version(tx, owner))
        cursor = tx.execute(_DELETE[table], these)
        count = sum(whole for (whole,) in cursor.fetchall()) if cursor.description else cursor.rowcount
        if table not in _NOT_COUNTED:
            counted[_COUNTED_AS.get(table, table)] += count
    return ForgetCounts(**counted)


def erase_all(tx: Connection, owner: int, plan: ForgetPlan) -> ForgetCounts:
    """Erase all of it in this transaction."""
    return erase(tx, owner, tuple(plan.tables()))


def _mark_changed(tx: Connection, owner: int, quotes: dict[str, str]) -> None:
    """Mark the memories that lose a quote as changed, since they are cached with it."""
    of_quotes = f"SELECT memory FROM evidence WHERE id IN {_THESE}"
    marked = f"UPDATE memories SET changed = :version WHERE seq IN ({of_quotes})"
    tx.execute(marked, quotes | {"version": users.raise_version(tx, owner)})


# ---------------------------------------------------------------- large forgets
# A memory is hidden with what superseded it, and with what it was made from, as it will be erased with it:
# recursion from `m` down to its sources, and from each of them upwards.
_HIDDEN = """NOT EXISTS (
    WITH RECURSIVE made (seq, id, owner, project, type, superseded_by, sources) AS (
        SELECT m.seq, m.id, m.owner, m.project, m.type, m.superseded_by, m.sources
        UNION
        SELECT n.seq, n.id, n.owner, n.project, n.type, n.superseded_by, n.sources
        FROM made CROSS JOIN json_each(made.sources) source
        JOIN memories n ON n.id = source.value AND n.owner = made.owner
    ), line (seq, id, owner, project, type, superseded_by) AS (
        SELECT seq, id, owner, project, type, superseded_by FROM made
        UNION
        SELECT n.seq, n.id, n.owner, n.project, n.type, n.superseded_by
        FROM line JOIN memories n ON n.id = line.superseded_by AND n.owner = line.owner
    )
    SELECT 1 FROM line JOIN forgets f ON f.owner = line.owner
    WHERE line.seq <= CAST(json_extract(f.bounds, '$.memories') AS INTEGER)
    AND m.seq <= CAST(json_extract(f.bounds, '$.memories') AS INTEGER)
    AND (f.memory_id IS NULL OR f.memory_id = line.id)
    AND (f.project IS NULL OR f.project = line.project)
    AND (f.types IS NULL OR line.type IN (SELECT value FROM json_each(f.types))))"""
_OF_TARGET = "owner = :owner AND (:project IS NULL OR project = :project)"
_SESSIONS = f"SELECT id FROM sessions WHERE {_OF_TARGET}"
# Answers that are under way will not find these; the same request may be made again. They are erased with
# their portion: until then they show which responses belong to them.
_DETACH = f"""
    UPDATE exchanges SET generation = -1, key = 'forgotten:' || seq WHERE seq IN (
        SELECT seq FROM exchanges WHERE state = 'open' AND session IN ({_SESSIONS}))"""


@dataclass(frozen=True, slots=True)
class PendingForget:
    """A large forget that is under way. `receipt`: its number."""

    receipt: int
    target: ForgetTarget
    instance: str  # the process that carries it out


def hidden(tx: Connection) -> str:
    """Return a condition over `m` that leaves out what is being forgotten, "" where nothing is."""
    return f" AND {_HIDDEN}" if tx.execute("SELECT 1 FROM forgets LIMIT 1").fetchone() else ""


def start_forget(
    tx: Connection, target: ForgetTarget, where: MemoryFilter, *, by: str, instance: str
) -> PendingForget:
    """Hide the target, and invalidate what others are writing about it."""
    named = target.owner
    if target.is_everything:
        named = _take_name(tx, target.owner)
    else:
        target = replace(target, bounds=bounds_now(tx))
        tx.execute("UPDATE scopes SET portioned = generation WHERE id = ?", (target.owner,))
    erased = ForgetCounts()
    ours = {"owner": target.owner, "project": target.project}
    if target.memory_id is None:
        deleted = tx.execute(f"DELETE FROM jobs WHERE session IN ({_SESSIONS})", ours)
        erased = ForgetCounts(jobs=deleted.rowcount)
        tx.execute(_DETACH, ours)
    if target.is_scope:  # small, and all of it older: what a session writes from now on survives
        for table in ("anchors", "states", "marks"):
            tx.execute(f"DELETE FROM {table} WHERE session IN ({_SESSIONS})", ours)
        tx.execute(f"UPDATE documents SET doomed = 1 WHERE {_OF_TARGET} AND doomed = 0", ours)
    receipt, _ = issue_receipt(tx, named, where, memory_id=target.memory_id, by=by, counts=erased)
    types = None if target.types is None else json.dumps(sorted(target.types))
    tx.execute(
        "INSERT INTO forgets (receipt, owner, project, type, types, memory_id, bounds, instance)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (receipt, target.owner, target.project, target.type, types, target.memory_id,
         json.dumps(asdict(target.bounds)), instance),
    )  # fmt: skip
    return PendingForget(receipt, target, instance)


def pending_forgets(tx: Connection) -> list[PendingForget]:
    """Return the forgets that are not carried out yet, the oldest first."""
    query = "SELECT receipt, instance, bounds, owner, project, type, memory_id FROM forgets ORDER BY receipt"
    pending = []
    with legible():
        for receipt, instance, bounds, owner, project, type_, memory_id in tx.execute(query).fetchall():
            target = ForgetTarget(owner=owner, project=project, type=type_, memory_id=memory_id)
            target = replace(target, bounds=Bounds(**json.loads(bounds)))
            pending.append(PendingForget(receipt, target, instance))
    return pending


def finish_forget(tx: Connection, forget: PendingForget) -> ForgetCounts:
    """Finish the forget; return what it has erased in all. A user's row without a name is deleted
    with the last one, and so is what only users with a name need."""
    tx.execute("DELETE FROM forgets WHERE receipt = ?", (forget.receipt,))
    nameless = """
        SELECT id FROM scopes WHERE id = :id AND user IS NULL
        AND NOT EXISTS (SELECT 1 FROM forgets WHERE owner = :id)"""
    tx.execute(f"DELETE FROM evicted WHERE owner IN ({nameless})", {"id": forget.target.owner})
    tx.execute(f"DELETE FROM scopes WHERE id IN ({nameless})", {"id": forget.target.owner})
    return receipt_counts(tx, forget.receipt)


def _take_name(tx: Connection, owner: int) -> int:
    """Give the user a new row, without anything, and one generation on; return its number."""
    columns = "tenant, user, generation, version, served"
    row = tx.execute(f"SELECT {columns} FROM scopes WHERE id = ?", (owner,)).fetchone()
    tx.execute("UPDATE scopes SET tenant = NULL, user = NULL WHERE id = ?", (owner,))
    fresh = int(value(tx, f"INSERT INTO scopes ({columns}) VALUES (?, ?, ?, ?, ?) RETURNING id", row))
    tx.execute("UPDATE receipts SET owner = ? WHERE owner = ?", (fresh, owner))
    return fresh
