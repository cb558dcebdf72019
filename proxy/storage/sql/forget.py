"""Carry out forgets: a small one in one transaction, a large one in portions.

A user with little to forget is served by one transaction. For a user with much, one short transaction raises
the generation and hides what the forget covers; then it is erased in portions, between which others write.
Any process that opens the database finishes what a crash interrupted."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from itertools import groupby

from proxy import telemetry
from proxy.domain.changes import Change, Edit
from proxy.domain.core import (
    ForgetCounts,
    MemoryFilter,
    Receipt,
    Scope,
)
from proxy.domain.errors import Conflict
from proxy.storage.sql import derivation, erasure, rows
from proxy.storage.sql.changes import STORING
from proxy.storage.sql.database import Connection, Database, Store, column, purges, value
from proxy.storage.sql.erasure import PendingForget, Portion, add_counts, erase, erase_all
from proxy.storage.sql.forget_plan import MATCH, ForgetTarget, plan_forget
from proxy.storage.sql.mentions import Verdicts

_MOST_AT_ONCE = 500  # rows of memories, exchanges or responses: a user with more is erased in portions
_MUCH = """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM memories WHERE owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM sessions n JOIN exchanges x ON x.session = n.id
                                  WHERE n.owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM stored_responses
                                  WHERE owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM conversations c JOIN conversation_items i
                                  ON i.conversation = c.seq WHERE c.owner = :owner LIMIT :most) few) >= :most
        OR (SELECT coalesce(sum(passages), 0) FROM documents WHERE owner = :owner) >= :most"""
# CROSS JOIN: in this order, and not all users of the tenant first.
_HOLDERS = """
    SELECT m.owner FROM memories m CROSS JOIN scopes s ON s.id = m.owner
    WHERE m.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
    AND (:project IS NULL OR m.project = :project)"""
# Answers that came after the forget began, and were given with what it covers in view.
_LATE = """
    SELECT x.seq FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE n.owner = :owner AND x.seq <= :exchanges AND x.answer <> '' AND x.recalled <> '[]'
    AND EXISTS (SELECT 1 FROM json_each(x.recalled) shown
                WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = shown.value AND m.owner = :owner)
                AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = shown.value AND d.owner = :owner))"""


class Forgetting(Store):
    """All forgets of one process."""

    def __init__(self, database: Database, drop_caches: Callable[[int], None]) -> None:
        super().__init__(database)
        self.on_forget = [drop_caches]  # each is called with an owner after a forget
        self._running: set[int] = set()

    async def forget(self, where: MemoryFilter, memory_id: str | None, by: str) -> ForgetCounts:
        """Erase, durable on return, what the filter or the one memory covers."""
        verdicts = await self._judged(where, memory_id)
        total, large, touched = await self._begin(where, memory_id, by, verdicts)
        for owner in touched:
            self.drop_caches(owner)
        for forget in large:
            total = add_counts(total, await self._carry_out(forget, verdicts))
        return total

    async def _judged(self, where: MemoryFilter, memory_id: str | None) -> Verdicts:
        """Find out which texts mention the memory while the writer and the readers serve others."""
        verdicts = Verdicts(put_off=memory_id is not None)
        if verdicts.put_off:
            await self._database.read(lambda tx: _count(tx, where, memory_id, verdicts))
            await asyncio.to_thread(verdicts.settle)
        return verdicts

    async def forget_document(self, scope: Scope, document_id: str, by: str, now: float) -> ForgetCounts:
        """Erase, durable on return, a document and what may repeat it. None there: nothing, no receipt."""
        erased, owner = await self._forget_document(scope, document_id, by, now)
        if owner is not None:
            self.drop_caches(owner)
        return erased

    @purges
    def _forget_document(
        self, tx: Connection, scope: Scope, document_id: str, by: str, now: float
    ) -> tuple[ForgetCounts, int | None]:
        if (owner := rows.lock_owner(tx, scope)) is None:
            return ForgetCounts(), None
        plan = plan_forget(tx, ForgetTarget(owner=owner.id, document_id=rows.storable(document_id)))
        if not plan.rows["documents"]:
            return ForgetCounts(), None
        rows.raise_generation(tx, owner.id)
        erased = erase_all(tx, owner.id, plan)
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, now=now)
        _, receipt = erasure.issue_receipt(tx, owner.id, where, memory_id=document_id, by=by, counts=erased)
        return replace(erased, receipt=receipt), owner.id

    def drop_caches(self, owner: int) -> None:
        for drop in self.on_forget:
            drop(owner)

    async def count(self, where: MemoryFilter, memory_id: str | None) -> ForgetCounts:
        verdicts = await self._judged(where, memory_id)
        return await self._database.read(lambda tx: _count(tx, where, memory_id, verdicts))

    async def resume(self) -> int:
        """Carry out the forgets of dead processes, and of callers here that gave up; return how many. What a
        crash or a reader left of erased pages in the write-ahead log is purged too."""
        await self._database.purge_if_due()
        left = await self._database.read(self._interrupted)
        for forget in left:
            telemetry.log.info("store.forget.resumed")
            await self._carry_out(forget)
        return len(left)

    def _interrupted(self, tx: Connection) -> list[PendingForget]:
        """Return the forgets that no process is carrying out."""
        return [
            forget
            for forget in erasure.pending_forgets(tx)
            if (forget.instance == self._living.id and forget.receipt not in self._running)
            or self._living.is_dead(tx, forget.instance)
        ]

    @purges
    def _begin(
        self, tx: Connection, where: MemoryFilter, memory_id: str | None, by: str, verdicts: Verdicts
    ) -> tuple[ForgetCounts, list[PendingForget], set[int]]:
        """Erase what is small; return its counts, the large forgets that are begun, and all owners."""
        total, large, touched = ForgetCounts(), list[PendingForget](), set[int]()
        if memory_id is not None:
            rows.lock_owners(tx, _HOLDERS, _holder(where, memory_id))
        for target in _targets(tx, where, memory_id, make=True):
            touched.add(target.owner)
            rows.raise_generation(tx, target.owner)
            if target.is_everything:
                tx.execute("UPDATE scopes SET timezone = NULL WHERE id = ?", (target.owner,))
                tx.execute("DELETE FROM evolution WHERE owner = ?", (target.owner,))
            much = value(tx, _MUCH, {"owner": target.owner, "most": _MOST_AT_ONCE + 1})
            if much and target.text is None:  # a text is content: a pending forget must not store it
                large.append(erasure.start_forget(tx, target, where, by=by, instance=self._living.id))
                continue
            erased = erase_all(tx, target.owner, plan_forget(tx, target, verdicts))
            _, receipt = erasure.issue_receipt(
                tx, target.owner, where, memory_id=memory_id, by=by, counts=erased
            )
            total = add_counts(total, replace(erased, receipt=receipt))
        return total, large, touched

    async def _carry_out(self, forget: PendingForget, verdicts: Verdicts | None = None) -> ForgetCounts:
        """Erase what the forget covers, portion by portion, and finish it; return what it erased in all."""
        owner = forget.target.owner

        def erase_portion(tx: Connection, portion: Portion) -> None:
            rows.lock_owners(tx, "?", (owner,))
            erasure.add_to_receipt(tx, forget.receipt, erase(tx, owner, portion))

        def finish(tx: Connection, late: tuple[int, ...]) -> ForgetCounts:
            rows.lock_owners(tx, "?", (owner,))
            erase(tx, owner, (("answers", late),))
            return erasure.finish_forget(tx, forget)

        self._running.add(forget.receipt)
        try:
            # Again, until nothing is found: others may have added to what hangs together.
            while portions := await self._database.read(
                lambda tx: list(erasure.portions(plan_forget(tx, forget.target, verdicts)))
            ):
                for portion in portions:
                    await self._database.write(partial(erase_portion, portion=portion))
                    await self._database.checkpoint()
            late: tuple[int, ...] = ()
            if not forget.target.is_everything:
                late = await self._database.read(lambda tx: column(tx, _LATE, forget.target.parameters()))
            return await self._database.write(partial(finish, late=late), purge=True)
        finally:
            self._running.discard(forget.receipt)
            self.drop_caches(owner)


def _targets(tx: Connection, where: MemoryFilter, memory_id: str | None, *, make: bool) -> list[ForgetTarget]:
    """Return the filter's owner, or those of the memory, as targets. `make`: a user never seen gets a
    generation too, since a writer may be about to store what was to be forgotten."""
    if memory_id is not None:
        found = tx.execute(_HOLDERS, _holder(where, memory_id)).fetchall()
        return [ForgetTarget.of(owner, where, memory_id) for (owner,) in found]
    if where.user is None:
        raise ValueError("a forget needs a user or a memory's id")
    scope = Scope(where.tenant, where.user)
    owner = rows.ensure_owner(tx, scope) if make else rows.find_owner(tx, scope)
    return [ForgetTarget.of(owner.id, where, None)] if owner else []


def _holder(where: MemoryFilter, memory_id: str) -> dict[str, str | None]:
    id_ = rows.storable(memory_id)
    return {"id": id_, "tenant": where.tenant, "user": where.user, "project": where.project}


def _count(tx: Connection, where: MemoryFilter, memory_id: str | None, verdicts: Verdicts) -> ForgetCounts:
    targets = _targets(tx, where, memory_id, make=False)
    counts = (plan_forget(tx, target, verdicts).counts for target in targets)
    return reduce(add_counts, counts, ForgetCounts())


# ---------------------------------------------------------------- collisions
# Memories that are being forgotten, and have the id or the words of one that is stored now. By an index each.
# What superseded a memory is forgotten with it: the recursion walks from `w` upwards.
_COLLIDING = """
    SELECT w.seq FROM memories w
    WHERE {} AND w.seq <= :memories AND EXISTS (
        WITH RECURSIVE line (seq, id, project, type, superseded_by) AS (
            SELECT w.seq, w.id, w.project, w.type, w.superseded_by
            UNION
            SELECT n.seq, n.id, n.project, n.type, n.superseded_by
            FROM line JOIN memories n ON n.id = line.superseded_by AND n.owner = :owner
        )
        SELECT 1 FROM line m WHERE {match})"""
_SAME_ID = _COLLIDING.format("w.id = :new_id AND w.owner = :owner", match=MATCH)
_SAME_WORDS = _COLLIDING.format(
    "w.owner = :owner AND coalesce(w.project, '') = :new_project AND w.type = :new_type"
    " AND w.digest = :new_digest AND w.superseded_by IS NULL AND w.archived = 0",
    match=MATCH,
)


def unblock_insert(tx: Connection, owner: int, changes: Sequence[Change]) -> None:
    """Erase at once, before their portion's turn, memories that are being forgotten and would keep out what
    the changes are about to store.

    Raises Conflict for an Edit that would turn a memory from before a forget into one that it covers."""
    new = [change.memory for change in changes if isinstance(change, STORING)]
    if not new or not tx.execute("SELECT 1 FROM forgets WHERE owner = ?", (owner,)).fetchone():
        return
    for forget in erasure.pending_forgets(tx):
        if forget.target.owner != owner:
            continue
        target, seqs = forget.target, list[int]()
        for memory in new:
            project, type_, digest = rows.place_of(memory)
            same = {"new_project": project or "", "new_type": type_, "new_digest": digest}
            asked = target.parameters() | same | {"new_id": rows.storable(memory.id)}
            for query in (_SAME_ID, _SAME_WORDS):
                seqs += column(tx, query, asked)
        if seqs:
            these = plan_forget(tx, replace(target, only=tuple(seqs)))
            erasure.add_to_receipt(tx, forget.receipt, erase_all(tx, owner, these))
        if not target.is_of_many:
            continue
        for edited in (change.memory for change in changes if isinstance(change, Edit)):
            query = "SELECT seq FROM memories WHERE id = ? AND owner = ?"
            seq = value(tx, query, (rows.storable(edited.id), owner))
            of_project = target.project in (None, edited.scope.project)
            of_type = target.types is None or edited.type in target.types
            if seq is not None and seq <= target.bounds["memories"] and of_project and of_type:
                raise Conflict("what the memory would become is being forgotten")


# ---------------------------------------------------------------- expiry
# Only memories expire: exchanges have a retention of their own, and so have stored responses.
_GRACE_S = 86_400.0  # so long an expired memory is shown in lists of the past
_EXPIRED_AT_ONCE = 100
_EXPIRED = """
    SELECT m.owner, m.seq FROM memories m JOIN scopes s ON s.id = m.owner
    WHERE m.expires_at IS NOT NULL AND m.expires_at <= :before AND s.user IS NOT NULL
    ORDER BY m.owner, m.seq"""
# Asked again where it is erased: its owner may have given it more time.
_WITH_OLDER = f"""
    WITH RECURSIVE expired (seq, id) AS (
        SELECT m.seq, m.id FROM memories m WHERE m.seq IN {rows.seqs_in(":seqs")} AND m.expires_at <= :before
        UNION
        SELECT older.seq, older.id
        FROM expired JOIN memories older ON older.superseded_by = expired.id AND +older.owner = :owner
    )
    SELECT seq FROM expired"""


async def expire(database: Database, now: float) -> int:
    """Erase memories that expired more than a day before `now`, with what they superseded; return how many.
    A receipt for each user."""
    before = now - _GRACE_S
    found = await database.read(lambda tx: tx.execute(_EXPIRED, {"before": before}).fetchall())
    total = 0
    for owner, of_owner in groupby(found, key=lambda row: row[0]):
        seqs, receipt = [seq for _, seq in of_owner], 0
        for start in range(0, len(seqs), _EXPIRED_AT_ONCE):
            these = rows.as_json(seqs[start : start + _EXPIRED_AT_ONCE])
            part = {"owner": owner, "before": before, "seqs": these}
            work = partial(_expire, owner=owner, part=part, now=now, receipt=receipt)
            erased, receipt = await database.write(work, purge=start + _EXPIRED_AT_ONCE >= len(seqs))
            total += erased
    return total


def _expire(
    tx: Connection, *, owner: int, part: dict[str, object], now: float, receipt: int
) -> tuple[int, int]:
    """Erase one portion; return how many memories it had, and the receipt's number, 0 for none yet."""
    rows.lock_owners(tx, "?", (owner,))
    if not (expired := column(tx, _WITH_OLDER, part)):
        return 0, receipt
    ids = column(tx, f"SELECT id FROM memories WHERE seq IN {rows.seqs_in('?')}", (rows.as_json(expired),))
    made_of_it = tuple(seq for seq, _ in derivation.derived_from(tx, owner, ids) if seq not in set(expired))
    erased = erase(tx, owner, (("derived", made_of_it), ("memories", expired)))
    if receipt:
        erasure.add_to_receipt(tx, receipt, erased)
        return erased.memories, receipt
    tenant, user = tx.execute("SELECT tenant, user FROM scopes WHERE id = ?", (owner,)).fetchone()
    where = MemoryFilter(tenant=tenant, user=user, now=now)
    receipt, _ = erasure.issue_receipt(tx, owner, where, memory_id=None, by="retention", counts=erased)
    return erased.memories, receipt


# ---------------------------------------------------------------- after a restore
# A receipt names what was forgotten, not what that had been made of. So, for the users in the receipts,
# nothing is extracted that had not been read yet: what was forgotten may be in it.
RECEIPTS = f"""
    {erasure.RECEIPT} FROM receipts r JOIN scopes s ON s.id = r.owner
    WHERE s.user IS NOT NULL ORDER BY r.seq"""
_OF_USER = (
    "JOIN sessions n ON n.id = x.session JOIN scopes s ON s.id = n.owner"
    " WHERE s.tenant = :tenant AND s.user = :user"
)
_UNREAD = f"SELECT x.seq FROM exchanges x {_OF_USER} AND x.extraction <> 'done'"
_JOBS = f"SELECT x.id FROM jobs x {_OF_USER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What was erased; `unknown` receipts name something absent: a memory younger than the backup."""

    receipts: int = 0
    erased: ForgetCounts = field(default_factory=ForgetCounts)
    unknown: int = 0


def receipts_in(tx: Connection) -> tuple[Receipt, ...]:
    """Return all receipts, the oldest first."""
    return tuple(erasure.receipt_of(row) for row in rows.records(tx, RECEIPTS))


def to_lines(receipts: Iterable[Receipt]) -> Iterator[str]:
    for receipt in receipts:
        counts = {**erasure.counts_as_dict(receipt.counts), "receipt": receipt.counts.receipt}
        yield json.dumps({**asdict(receipt), "counts": counts}) + "\n"


def from_lines(lines: Iterable[str]) -> Iterator[Receipt]:
    """Yield the receipts of lines that `to_lines` made. Raises ValueError, with its number, for another."""
    for number, line in enumerate(lines, 1):
        try:
            written = json.loads(line)
            counts = dict(written["counts"])
            yield Receipt(**{**written, "counts": erasure.counts_from_dict(counts, counts.get("receipt"))})
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"line {number} is not a receipt") from None


def repeat(tx: Connection, receipt: Receipt, so_far: Repeated) -> Repeated:
    """Forget what the receipt names, and store it; return the sum. Nothing for a receipt that is there."""
    if tx.execute("SELECT 1 FROM receipts WHERE id = ?", (receipt.id,)).fetchone():
        return so_far
    erased, was_there = repeat_one(tx, receipt)
    erasure.store_receipt(tx, rows.ensure_owner(tx, Scope(receipt.tenant, receipt.user)).id, receipt)
    total, unknown = add_counts(so_far.erased, erased), so_far.unknown + (not was_there)
    return Repeated(receipts=so_far.receipts + 1, erased=total, unknown=unknown)


def repeat_one(tx: Connection, receipt: Receipt) -> tuple[ForgetCounts, bool]:
    """Forget what the receipt names; return what it erased, and whether what it names was there."""
    scope = Scope(receipt.tenant, receipt.user)
    owner = rows.find_owner(tx, scope)
    if owner is None:
        return ForgetCounts(), True
    where = MemoryFilter(
        tenant=receipt.tenant, user=receipt.user, project=receipt.project, type=receipt.type,
        include_inactive=True,
    )  # fmt: skip
    rows.raise_generation(tx, owner.id)
    erased = erase_all(tx, owner.id, plan_forget(tx, ForgetTarget.of(owner.id, where, receipt.memory_id)))
    if receipt.memory_id is not None and not erased.memories:
        document = ForgetTarget(owner=owner.id, document_id=receipt.memory_id)
        erased = add_counts(erased, erase_all(tx, owner.id, plan_forget(tx, document)))
    was_there = receipt.memory_id is None or erased != ForgetCounts()
    ours = {"tenant": scope.tenant, "user": scope.user}
    unread = (("jobs", column(tx, _JOBS, ours)), ("exchanges", column(tx, _UNREAD, ours)))
    return add_counts(erased, erase(tx, owner.id, unread)), was_there
