"""Repeat in a database that was restored from a backup what was forgotten since, by receipts that were saved.

A receipt names what was forgotten, not what that had been made of. So, for the users in the receipts,
nothing is extracted that had not been read yet: what was forgotten may be in it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.domain.oversight import Receipt
from proxy.storage.sql import owners
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting.affected import find
from proxy.storage.sql.forgetting.erase import erase, erase_all
from proxy.storage.sql.forgetting.target import Target, aimed
from proxy.storage.sql.receipts import counts_of, keep, numbers, plus, receipt_of

RECEIPTS = """
    SELECT r.id, s.tenant, s.user, r.project, r.type, r.memory_id, r.by, r.at, r.counts
    FROM receipts r JOIN scopes s ON s.id = r.owner WHERE s.user IS NOT NULL ORDER BY r.seq
"""
_OF_USER = (
    "JOIN sessions n ON n.id = x.session JOIN scopes s ON s.id = n.owner"
    " WHERE s.tenant = :tenant AND s.user = :user"
)
_UNREAD = f"SELECT x.seq FROM exchanges x {_OF_USER} AND x.extraction <> 'done'"
_JOBS = f"SELECT x.id FROM jobs x {_OF_USER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What was erased, and how many receipts name what is not there: a memory younger than the backup."""

    receipts: int = 0
    erased: Forgotten = field(default_factory=Forgotten)
    unknown: int = 0


def receipts_in(tx: Connection) -> tuple[Receipt, ...]:
    """Return all receipts, the oldest first."""
    return tuple(receipt_of(row) for row in tx.execute(RECEIPTS))


def to_lines(receipts: Iterable[Receipt]) -> Iterator[str]:
    """Yield each receipt as a line of JSON."""
    for receipt in receipts:
        counts = {**numbers(receipt.counts), "receipt": receipt.counts.receipt}
        yield json.dumps({**asdict(receipt), "counts": counts}) + "\n"


def from_lines(lines: Iterable[str]) -> Iterator[Receipt]:
    """Yield the receipts of lines that `to_lines` made. Raises ValueError, with its number, for another."""
    for number, line in enumerate(lines, 1):
        try:
            written = json.loads(line)
            counts = dict(written["counts"])
            yield Receipt(**{**written, "counts": counts_of(counts, counts.get("receipt"))})
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"line {number} is no receipt") from None


def repeat(tx: Connection, receipt: Receipt, so_far: Repeated) -> Repeated:
    """Forget what the receipt names, and store it; return the sum. Nothing for a receipt that is there."""
    if tx.execute("SELECT 1 FROM receipts WHERE id = ?", (receipt.id,)).fetchone():
        return so_far
    erased, was_there = carry_out(tx, receipt)
    keep(tx, owners.ensure(tx, Scope(receipt.tenant, receipt.user)).id, receipt)
    return Repeated(
        receipts=so_far.receipts + 1,
        erased=plus(so_far.erased, erased),
        unknown=so_far.unknown + (not was_there),
    )


def carry_out(tx: Connection, receipt: Receipt) -> tuple[Forgotten, bool]:
    """Forget what the receipt names; return what went, and whether what it names was there."""
    scope = Scope(receipt.tenant, receipt.user)
    owner = owners.find(tx, scope)
    if owner is None:
        return Forgotten(), True
    where = MemoryFilter(
        tenant=receipt.tenant, user=receipt.user, project=receipt.project, type=receipt.type,
        include_inactive=True,
    )  # fmt: skip
    owners.raise_generation(tx, owner.id)
    erased = erase_all(tx, owner.id, find(tx, aimed(owner.id, where, receipt.memory_id)))
    if receipt.memory_id is not None and not erased.memories:
        document = Target(owner=owner.id, document_id=receipt.memory_id)
        erased = plus(erased, erase_all(tx, owner.id, find(tx, document)))
    was_there = receipt.memory_id is None or erased != Forgotten()
    ours = {"tenant": scope.tenant, "user": scope.user}
    unread = tuple(seq for (seq,) in tx.execute(_UNREAD, ours))
    jobs = tuple(seq for (seq,) in tx.execute(_JOBS, ours))
    return plus(erased, erase(tx, owner.id, (("jobs", jobs), ("exchanges", unread)))), was_there
