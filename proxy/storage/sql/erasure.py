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
from proxy.storage.sql import rows
from proxy.storage.sql.database import BEYOND_ALL, Connection, Store, legible, reads, value
from proxy.storage.sql.derivation import release_sources
from proxy.storage.sql.forget_plan import BOUNDED, KINDS, UNBOUNDED, ForgetPlan, ForgetTarget, Seqs

# ---------------------------------------------------------------- receipts
RECEIPT = "SELECT r.id, s.tenant, s.user, r.project, r.type, r.memory_id, r.by, r.at, r.counts"
# A forget that has not finished proves nothing yet.
_LIST = f"""
    {RECEIPT} FROM scopes s JOIN receipts r ON r.owner = s.id
    WHERE s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
    AND r.seq < :before AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.receipt = r.seq)
    ORDER BY r.seq DESC LIMIT :limit"""
_CURSOR = """
    SELECT r.seq FROM receipts r JOIN scopes s ON s.id = r.owner
    WHERE r.id = :after AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"""
_NAMES = frozenset(each.name for each in fields(ForgetCounts)) - {"receipt"}


class SqlReceipts(Store):
    """Receipts of all processes that share the file."""

    @reads
    def list(
        self, tx: Connection, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """As the port says. Raises NotFound for an `after` that is none of them."""
        wanted = {"tenant": tenant, "user": user, "limit": limit, "after": after, "before": BEYOND_ALL}
        if after is not None:
            wanted["before"] = rows.place_after(tx, _CURSOR, wanted, "no receipt has this id")
        return [receipt_of(row) for row in rows.records(tx, _LIST, wanted)]


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
    return int(rows.insert(
        tx, "receipts", "RETURNING seq", id=r.id, owner=owner, project=r.project, type=r.type,
        memory_id=r.memory_id, by=r.by, at=r.at, counts=counts,
    ))  # fmt: skip


def add_to_receipt(tx: Connection, seq: int, more: ForgetCounts) -> None:
    total = counts_as_dict(add_counts(receipt_counts(tx, seq), more))
    tx.execute("UPDATE receipts SET counts = ? WHERE seq = ?", (json.dumps(total), seq))


def receipt_counts(tx: Connection, seq: int) -> ForgetCounts:
    """Return what the receipt says was erased, with its id."""
    id_, text = tx.execute("SELECT id, counts FROM receipts WHERE seq = ?", (seq,)).fetchone()
    with legible():
        return counts_from_dict(json.loads(text), id_)


def receipt_of(row: dict[str, Any]) -> Receipt:
    with legible():
        return Receipt(counts=counts_from_dict(json.loads(row.pop("counts")), row["id"]), **row)


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
"""Names of KINDS, and numbers of rows."""

_LOSE_QUOTES = f"""
    UPDATE memories SET changed = :version
    WHERE seq IN (SELECT memory FROM evidence WHERE id IN {rows.seqs_in(":seqs")})"""
_FULL = 1.0
_WEIGHT = 1 / 100  # what one row takes of a portion, which is to hold the writer up for about 5 ms


def portions(plan: ForgetPlan) -> Iterator[Portion]:
    """Yield all of it, in order, in parts that hold up other writers only shortly."""
    portion: list[tuple[str, Seqs]] = []
    room = _FULL
    for table, seqs in plan.tables():
        weight = _WEIGHT if (own := KINDS[table].weight) is None else own
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
        if table == "quotes":  # memories are cached with them
            tx.execute(_LOSE_QUOTES, these | {"version": rows.raise_version(tx, owner)})
        if table == "derived" and seqs:
            release_sources(tx, owner, these["seqs"], rows.raise_version(tx, owner))
        cursor = tx.execute(KINDS[table].erase, these)
        count = sum(whole for (whole,) in cursor.fetchall()) if cursor.description else cursor.rowcount
        if counted_as := KINDS[table].counted_as:
            counted[counted_as] += count
    return ForgetCounts(**counted)


def erase_all(tx: Connection, owner: int, plan: ForgetPlan) -> ForgetCounts:
    return erase(tx, owner, tuple(plan.tables()))


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
        # The user gets a new row, without anything and one generation on, that takes the name.
        columns = "tenant, user, generation, version, served"
        row = tx.execute(f"SELECT {columns} FROM scopes WHERE id = ?", (target.owner,)).fetchone()
        tx.execute("UPDATE scopes SET tenant = NULL, user = NULL WHERE id = ?", (target.owner,))
        named = int(value(tx, f"INSERT INTO scopes ({columns}) VALUES (?, ?, ?, ?, ?) RETURNING id", row))
        tx.execute("UPDATE receipts SET owner = ? WHERE owner = ?", (named, target.owner))
    else:
        # The last row of each table: all of them count upwards and never use a number twice.
        last = "SELECT coalesce(max(seq), 0) FROM"
        bounds = {name: value(tx, f"{last} {table}") for name, table in BOUNDED.items()}
        target = replace(target, bounds=bounds)
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
    rows.insert(
        tx, "forgets", receipt=receipt, owner=target.owner, project=target.project, type=target.type,
        types=types, memory_id=target.memory_id, bounds=json.dumps(target.bounds), instance=instance,
    )  # fmt: skip
    return PendingForget(receipt, target, instance)


def pending_forgets(tx: Connection) -> list[PendingForget]:
    """Return the forgets that are not carried out yet, the oldest first."""
    query = "SELECT receipt, instance, bounds, owner, project, type, memory_id FROM forgets ORDER BY receipt"
    with legible():
        return [
            PendingForget(row.pop("receipt"), instance=row.pop("instance"),
                          target=ForgetTarget(bounds=UNBOUNDED | json.loads(row.pop("bounds")), **row))
            for row in rows.records(tx, query)
        ]  # fmt: skip


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
