"""Receipts: proofs of what was forgotten, without any of it. See ports.Receipts."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from proxy.domain.core import Forgotten, MemoryFilter
from proxy.domain.errors import NotFound
from proxy.domain.oversight import Receipt
from proxy.storage.damage import legible
from proxy.storage.sql.connection import Connection, Database

# One whose forget is still under way proves nothing yet.
_LIST = """
    SELECT r.id, s.tenant, s.user, r.project, r.type, r.memory_id, r.by, r.at, r.counts
    FROM scopes s JOIN receipts r ON r.owner = s.id
    WHERE s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
    AND r.seq < :before AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.receipt = r.seq)
    ORDER BY r.seq DESC LIMIT :limit
"""
_CURSOR = """
    SELECT r.seq FROM receipts r JOIN scopes s ON s.id = r.owner
    WHERE r.id = :after AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
"""
_NEWEST = 2**63 - 1
_NAMES = frozenset(each.name for each in fields(Forgotten)) - {"receipt"}


@dataclass(frozen=True, slots=True)
class Issued:
    """A receipt's number here, and its public id."""

    seq: int
    id: str


class SqlReceipts:
    """Receipts of all processes that share the file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """As the port says. Raises NotFound for an `after` that is none of them."""
        wanted = {"tenant": tenant, "user": user, "limit": limit, "after": after, "before": _NEWEST}

        def work(tx: Connection) -> Sequence[Receipt]:
            if after is not None:
                row = tx.execute(_CURSOR, wanted).fetchone()
                if row is None:
                    raise NotFound("no receipt has this id", param="after")
                wanted["before"] = row[0]
            return [receipt_of(row) for row in tx.execute(_LIST, wanted)]

        return await self._database.read(work)


def issue(
    tx: Connection,
    owner: int,
    where: MemoryFilter,
    *,
    memory_id: str | None,
    by: str,
    counts: Forgotten,
) -> Issued:
    """Write the receipt of a forget of the filter, or of one memory of it."""
    receipt_id = new_receipt_id()
    (seq,) = tx.execute(
        "INSERT INTO receipts (id, owner, project, type, memory_id, by, at, counts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq",
        (receipt_id, owner, where.project, where.type, memory_id, by, where.now, _as_json(counts)),
    ).fetchone()
    return Issued(seq, receipt_id)


def add(tx: Connection, seq: int, more: Forgotten) -> None:
    """Count what a portion has erased."""
    total = plus(counts(tx, seq), more)
    tx.execute("UPDATE receipts SET counts = ? WHERE seq = ?", (_as_json(total), seq))


def counts(tx: Connection, seq: int) -> Forgotten:
    """Return what the receipt says was erased, with its id."""
    id_, text = tx.execute("SELECT id, counts FROM receipts WHERE seq = ?", (seq,)).fetchone()
    return _from_json(text, id_)


def keep(tx: Connection, owner: int, receipt: Receipt) -> None:
    """Write down a receipt that another database has issued, as it is."""
    tx.execute(
        "INSERT INTO receipts (id, owner, project, type, memory_id, by, at, counts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (receipt.id, owner, receipt.project, receipt.type, receipt.memory_id, receipt.by, receipt.at,
         _as_json(receipt.counts)),
    )  # fmt: skip


def _as_json(counts: Forgotten) -> str:
    return json.dumps(numbers(counts))


def _from_json(text: str, receipt_id: str) -> Forgotten:
    with legible():
        return counts_of(json.loads(text), receipt_id)


def receipt_of(row: tuple[Any, ...]) -> Receipt:
    """Return a row: id, tenant, user, project, type, memory_id, by, at, counts."""
    id_, tenant, user, project, type_, memory_id, by, at, text = row
    return Receipt(
        id=id_, tenant=tenant, user=user, project=project, type=type_, memory_id=memory_id, by=by, at=at,
        counts=_from_json(text, id_),
    )  # fmt: skip


# ---------------------------------------------------------------- counts
def new_receipt_id() -> str:
    """Return an id that no receipt has."""
    return f"rcpt_{secrets.token_hex(12)}"


def plus(one: Forgotten, other: Forgotten) -> Forgotten:
    """Return the sum; the receipt is the first that there is."""
    first, second = asdict(one), asdict(other)
    added = {name: first[name] + second[name] for name in _NAMES}
    return Forgotten(**added, receipt=one.receipt or other.receipt)


def numbers(counts: Forgotten) -> dict[str, int]:
    """Return the counts alone, as they are written down: without zeros, of which an older version might not
    know the names."""
    return {name: count for name, count in asdict(counts).items() if name in _NAMES and count}


def counts_of(row: Mapping[str, int], receipt: str | None = None) -> Forgotten:
    """Return the counts of `numbers` that this version knows. Raises TypeError, ValueError for
    anything else."""
    return Forgotten(**{name: count for name, count in dict(row).items() if name in _NAMES}, receipt=receipt)
