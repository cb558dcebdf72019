"""Erase expired memories, with what they superseded and every row that depends on theirs.

What was said stays as long as its own retention says, and so do stored responses: nobody asked to forget.
"""

from functools import partial
from itertools import groupby

from proxy.domain.core import Forgotten, MemoryFilter
from proxy.storage.sql import owners, receipts, rows
from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.forgetting.erase import erase

GRACE_S = 86_400.0  # an expired memory is shown in lists of the past for so long
_BY = "retention"
_AT_ONCE = 100
_EXPIRED = """
    SELECT m.owner, m.seq FROM memories m JOIN scopes s ON s.id = m.owner
    WHERE m.expires_at IS NOT NULL AND m.expires_at <= :before AND s.user IS NOT NULL
    ORDER BY m.owner, m.seq
"""
# Asked again where it is erased: its owner may have given it more time.
_WITH_OLDER = """
    WITH RECURSIVE doomed (seq, id) AS (
        SELECT m.seq, m.id FROM memories m
        WHERE m.seq IN (SELECT CAST(value AS INTEGER) FROM json_each(:seqs)) AND m.expires_at <= :before
        UNION
        SELECT older.seq, older.id
        FROM doomed JOIN memories older ON older.superseded_by = doomed.id AND +older.owner = :owner
    )
    SELECT seq FROM doomed
"""


async def expire(database: Database, now: float) -> int:
    """Erase what expired more than a day before `now`; return how many. A receipt for each user."""
    before = now - GRACE_S
    found = await database.read(lambda tx: tx.execute(_EXPIRED, {"before": before}).fetchall())
    total = 0
    for owner, of_owner in groupby(found, key=lambda row: row[0]):
        seqs, receipt = [seq for _, seq in of_owner], 0
        for start in range(0, len(seqs), _AT_ONCE):
            part = {"owner": owner, "before": before, "seqs": rows.as_json(seqs[start : start + _AT_ONCE])}
            work = partial(_expire, part=part, now=now, receipt=receipt)
            erased, receipt = await database.write(work, purge=start + _AT_ONCE >= len(seqs))
            total += erased
    return total


def _expire(tx: Connection, *, part: dict[str, object], now: float, receipt: int) -> tuple[int, int]:
    """Erase one portion; return how many memories went, and the receipt's number, 0 for none yet."""
    owners.lock_id(tx, int(str(part["owner"])))
    doomed = tuple(seq for (seq,) in tx.execute(_WITH_OLDER, part))
    if not doomed:
        return 0, receipt
    owner = int(str(part["owner"]))
    erased = erase(tx, owner, (("memories", doomed),))
    if receipt:
        receipts.add(tx, receipt, erased)
    else:
        receipt = _issue(tx, owner, now, erased)
    return erased.memories, receipt


def _issue(tx: Connection, owner: int, now: float, erased: Forgotten) -> int:
    tenant, user = tx.execute("SELECT tenant, user FROM scopes WHERE id = ?", (owner,)).fetchone()
    where = MemoryFilter(tenant=tenant, user=user, now=now)
    return receipts.issue(tx, owner, where, memory_id=None, by=_BY, counts=erased).seq
