"""Carry out forgets: a small one in one transaction, a large one by an order and in portions."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce

from proxy import telemetry
from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.storage.sql import owners, receipts, rows
from proxy.storage.sql.connection import Connection, Database, Instance
from proxy.storage.sql.forgetting import pending
from proxy.storage.sql.forgetting.affected import find
from proxy.storage.sql.forgetting.erase import Portion, erase, erase_all, portions
from proxy.storage.sql.forgetting.mentioning_exchanges import Verdicts
from proxy.storage.sql.forgetting.pending import Order
from proxy.storage.sql.forgetting.target import Target, aimed
from proxy.storage.sql.receipts import plus

_AT_ONCE = 500  # rows of memories, exchanges or responses: who has more is forgotten in portions
_MUCH = """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM memories WHERE owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM sessions n JOIN exchanges x ON x.session = n.id
                                  WHERE n.owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM stored_responses
                                  WHERE owner = :owner LIMIT :most) few) >= :most
        OR (SELECT count(*) FROM (SELECT 1 FROM conversations c JOIN conversation_items i
                                  ON i.conversation = c.seq WHERE c.owner = :owner LIMIT :most) few) >= :most
        OR (SELECT coalesce(sum(passages), 0) FROM documents WHERE owner = :owner) >= :most
"""
# CROSS JOIN: in this order, and not all users of the tenant first.
_HOLDERS = """
    SELECT m.owner FROM memories m CROSS JOIN scopes s ON s.id = m.owner
    WHERE m.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)
    AND (:project IS NULL OR m.project = :project)
"""
# Answers that came after the order was placed, and were given with what it covers in view.
_LATE = """
    SELECT x.seq FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE n.owner = :owner AND x.seq <= :exchanges AND x.answer <> '' AND x.recalled <> '[]'
    AND EXISTS (SELECT 1 FROM json_each(x.recalled) shown
                WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = shown.value AND m.owner = :owner)
                AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = shown.value AND d.owner = :owner))
"""


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first transaction has erased, and what it has left to be done."""

    gone: Forgotten
    orders: tuple[Order, ...]
    owners: frozenset[int]


class Forgetting:
    """All forgets of one process. `instance` is None until the store is open."""

    def __init__(self, database: Database, let_go: Callable[[int], None]) -> None:
        self._database = database
        self._holders = [let_go]  # of what is kept in memory of an owner
        self._running: set[int] = set()
        self.instance: Instance | None = None

    async def forget(self, where: MemoryFilter, memory_id: str | None, by: str) -> Forgotten:
        """Erase, durable on return, what the filter or the one memory covers."""
        verdicts = await self._judged(where, memory_id)
        begun = await self._database.write(
            lambda tx: self._begin(tx, where, memory_id, by, verdicts), purge=True
        )
        for owner in begun.owners:
            self.let_go(owner)
        gone = begun.gone
        for order in begun.orders:
            gone = plus(gone, await self._carry_out(order, verdicts))
        return gone

    async def _judged(self, where: MemoryFilter, memory_id: str | None) -> Verdicts:
        """Find out which texts tell the memory while the writer and the readers serve others."""
        verdicts = Verdicts(put_off=memory_id is not None)
        if verdicts.put_off:
            await self._database.read(lambda tx: _count(tx, where, memory_id, verdicts))
            await asyncio.to_thread(verdicts.settle)
        return verdicts

    async def forget_document(self, scope: Scope, document_id: str, by: str, now: float) -> Forgotten:
        """Erase, durable on return, a document and what may repeat it. None there: nothing, no receipt."""

        def work(tx: Connection) -> tuple[Forgotten, int | None]:
            owner = owners.lock(tx, scope)
            if owner is None:
                return Forgotten(), None
            doomed = find(tx, Target(owner=owner.id, document_id=rows.storable(document_id)))
            if not doomed.documents:
                return Forgotten(), None
            owners.raise_generation(tx, owner.id)
            gone = erase_all(tx, owner.id, doomed)
            where = MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, now=now)
            issued = receipts.issue(tx, owner.id, where, memory_id=document_id, by=by, counts=gone)
            return replace(gone, receipt=issued.id), owner.id

        gone, owner = await self._database.write(work, purge=True)
        if owner is not None:
            self.let_go(owner)
        return gone

    def also_let_go(self, holder: Callable[[int], None]) -> None:
        """Have the holder told, too, of whom something was forgotten."""
        self._holders.append(holder)

    def let_go(self, owner: int) -> None:
        """Drop a user's caches after a forget."""
        for holder in self._holders:
            holder(owner)

    async def count(self, where: MemoryFilter, memory_id: str | None) -> Forgotten:
        """Return what a forget would erase now."""
        verdicts = await self._judged(where, memory_id)
        return await self._database.read(lambda tx: _count(tx, where, memory_id, verdicts))

    async def resume(self) -> int:
        """Carry out the orders whose process died, or whose caller here gave up; return how many. What a
        crash or a reader left of erased pages in the write-ahead log goes too."""
        await self._database.purge_if_due()
        left = await self._database.read(self._left_over)
        for order in left:
            telemetry.log.info("store.forget.resumed")
            await self._carry_out(order)
        return len(left)

    def _left_over(self, tx: Connection) -> list[Order]:
        """Return the orders that no process is carrying out."""
        living = self.instance
        assert living is not None, "the database is open only after the instance lives"
        return [
            order
            for order in pending.standing(tx)
            if (order.instance == living.id and order.receipt not in self._running)
            or living.is_dead(tx, order.instance)
        ]

    def _begin(
        self,
        tx: Connection,
        where: MemoryFilter,
        memory_id: str | None,
        by: str,
        verdicts: Verdicts,
    ) -> Begun:
        assert self.instance is not None, "the database is open only after the instance lives"
        gone, left, touched = Forgotten(), list[Order](), set[int]()
        if memory_id is not None:
            owners.lock_all(tx, _HOLDERS, _holder(where, memory_id))
        for target in _targets(tx, where, memory_id, make=True):
            touched.add(target.owner)
            owners.raise_generation(tx, target.owner)
            if target.is_everything:
                owners.forget_timezone(tx, target.owner)
            # A text is content: an order must not keep it.
            if target.text is None and _is_much(tx, target.owner):
                order, _ = pending.place(tx, target, where, by=by, instance=self.instance.id)
                left.append(order)
                continue
            erased = erase_all(tx, target.owner, find(tx, target, verdicts))
            issued = receipts.issue(tx, target.owner, where, memory_id=memory_id, by=by, counts=erased)
            gone = plus(gone, replace(erased, receipt=issued.id))
        return Begun(gone, tuple(left), frozenset(touched))

    async def _carry_out(self, order: Order, verdicts: Verdicts | None = None) -> Forgotten:
        """Erase what the order covers, portion by portion, and close it; return what went in all."""
        self._running.add(order.receipt)
        try:
            # Again, until nothing is found: somebody may have added to what hangs together.
            while doomed := await self._database.read(
                lambda tx: list(portions(find(tx, order.target, verdicts)))
            ):
                for portion in doomed:
                    await self._database.write(partial(_erase_portion, order=order, portion=portion))
                    await self._database.checkpoint()
            late = await self._database.read(lambda tx: _late(tx, order.target))
            return await self._database.write(partial(_finish, order=order, late=late), purge=True)
        finally:
            self._running.discard(order.receipt)
            self.let_go(order.target.owner)


def _targets(tx: Connection, where: MemoryFilter, memory_id: str | None, *, make: bool) -> list[Target]:
    """Return the filter's owner, or those of the memory, as targets. `make`: also a user never seen has
    a generation, since a writer may be on its way with what was to be forgotten."""
    if memory_id is not None:
        found = tx.execute(_HOLDERS, _holder(where, memory_id)).fetchall()
        return [aimed(owner, where, memory_id) for (owner,) in found]
    if where.user is None:
        raise ValueError("a forget needs a user or a memory's id")
    scope = Scope(where.tenant, where.user)
    owner = owners.ensure(tx, scope) if make else owners.find(tx, scope)
    return [aimed(owner.id, where, None)] if owner else []


def _holder(where: MemoryFilter, memory_id: str) -> dict[str, str | None]:
    return {
        "id": rows.storable(memory_id), "tenant": where.tenant, "user": where.user, "project": where.project
    }  # fmt: skip


def _is_much(tx: Connection, owner: int) -> bool:
    (much,) = tx.execute(_MUCH, {"owner": owner, "most": _AT_ONCE + 1}).fetchone()
    return bool(much)


def _count(tx: Connection, where: MemoryFilter, memory_id: str | None, verdicts: Verdicts) -> Forgotten:
    found = [find(tx, target, verdicts).counts for target in _targets(tx, where, memory_id, make=False)]
    return reduce(plus, found, Forgotten())


def _erase_portion(tx: Connection, *, order: Order, portion: Portion) -> None:
    owners.lock_id(tx, order.target.owner)
    receipts.add(tx, order.receipt, erase(tx, order.target.owner, portion))


def _late(tx: Connection, target: Target) -> tuple[int, ...]:
    if target.is_everything:
        return ()
    return tuple(seq for (seq,) in tx.execute(_LATE, target.parameters()))


def _finish(tx: Connection, *, order: Order, late: tuple[int, ...]) -> Forgotten:
    owners.lock_id(tx, order.target.owner)
    erase(tx, order.target.owner, (("answers", late),))
    return pending.finish(tx, order)
