"""Carry out forgets. A small one is found and erased in one commit.

A large one would block Redis for everybody, so it is done in portions. Where everything of a user is
forgotten, one step hides it by moving the user to a new home; the old one is then cleared (clearing.py).
Where a project or a type is forgotten, conditions hide it while its order stands: first the exchanges are
erased, then the memories some at a time, each with all that depends on them. Each of these portions raises
the generation: nobody who has seen a part writes it down afterwards.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from proxy import telemetry
from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.storage.redis import clearing, erasing, orders, purging, receipts
from proxy.storage.redis.doomed import count_all, find, find_said
from proxy.storage.redis.indexing import Indexing
from proxy.storage.redis.layout import MemoryRow, storable
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.target import Target
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.told import Verdicts

AT_ONCE = 2000  # memories, tables or responses: who has more is forgotten in portions
PORTION = 400
_SETTLE_EVERY = 25  # portions: the index is asked about all that it has still to let go of


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the first commit has erased, and the order for the rest; None: that was all."""

    gone: Forgotten
    order: str | None = None


class Forgetting:
    """All forgets of one process. Their points leave the index before the answer; where the index is away,
    they are hidden all the same, and leave it as soon as it is back (Indexing.catch_up)."""

    def __init__(self, units: Units, indexing: Indexing) -> None:
        self._units, self._redis, self._indexing = units, units.redis, indexing
        self._holders: list[Callable[[Scope], None]] = []

    async def forget(self, where: MemoryFilter, memory_id: str | None, by: str) -> Forgotten:
        """Erase, durable on return, what the filter or the one memory covers."""
        scope = await self._scope(where, memory_id)
        if scope is None:
            return Forgotten()
        work = partial(_begin, where=where, memory_id=memory_id, by=by, verdicts=Verdicts())
        begun = await self._units.write(scope, work)
        self._let_go(scope)
        if begun.order is not None:
            return await self._carry_out(scope, begun.order)
        if begun.gone.receipt is not None:
            await self._indexing.settle(scope)
        return begun.gone

    async def forget_document(self, scope: Scope, document_id: str, by: str, now: float) -> Forgotten:
        """Erase, durable on return, a document and what may repeat it. None there: nothing, no receipt."""
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, project=scope.project, now=now)
        work = partial(_forget_document, where=where, document_id=document_id, by=by)
        gone = await self._units.write(scope, work)
        self._let_go(scope)
        return gone

    def also_let_go(self, holder: Callable[[Scope], None]) -> None:
        """Have the holder told of whom something was forgotten here."""
        self._holders.append(holder)

    def _let_go(self, scope: Scope) -> None:
        for holder in self._holders:
            holder(scope)

    async def count(self, where: MemoryFilter, memory_id: str | None) -> Forgotten:
        """Return what a forget would erase now."""
        scope = await self._scope(where, memory_id)
        if scope is None:
            return Forgotten()
        work = partial(_count, where=where, memory_id=memory_id, verdicts=Verdicts())
        return await self._units.read(scope, work)

    async def resume(self) -> int:
        """Carry out the orders whose process died, or whose caller gave up; return how many. Then what the
        append-only file still tells of forgotten things goes too; a Redis that is full says no to that."""
        now, done = time.time(), 0
        found = await orders.abandoned(self._redis, now)
        scopes = await self._units.scopes(uid for uid, _ in found)
        for uid, token in found:
            taken = partial(orders.take_over, redis=self._redis, token=token, now=now)
            if uid in scopes and await self._units.write(scopes[uid], taken) is not None:
                telemetry.log.info("store.forget.resumed")
                await self._carry_out(scopes[uid], token)
                done += 1
        await purging.purge_if_due(self._redis)
        return done

    async def _carry_out(self, scope: Scope, token: str) -> Forgotten:
        """Erase what the order covers, portion by portion, and close it; return what went in all."""
        order = await self._units.glance(scope, partial(orders.find, token=token))
        if order is not None:
            left = orders.home_left(order)
            if left is None:
                await self._erase_covered(scope, token)
            else:
                await clearing.clear(self._units, scope, token, left)
        gone = await self._units.write(scope, partial(_finish, token=token))
        await self._indexing.settle(scope)
        return gone

    async def _erase_covered(self, scope: Scope, token: str) -> None:
        """Erase the memories that the order covers, the oldest first."""
        ids = await self._units.glance(scope, _in_order)
        for number, start in enumerate(range(0, len(ids), PORTION), 1):
            portion = frozenset(ids[start : start + PORTION])
            await self._units.write(scope, partial(_erase_portion, token=token, only=portion))
            if number % _SETTLE_EVERY == 0:
                await self._indexing.settle(scope)

    async def _scope(self, where: MemoryFilter, memory_id: str | None) -> Scope | None:
        """Return whose it is."""
        if where.user is not None:
            return Scope(where.tenant, where.user)
        if memory_id is None:
            raise ValueError("a forget needs a user or a memory's id")
        redis = self._redis
        holder = await redis.call("HGET", redis.key(f"ids:{storable(where.tenant)}"), storable(memory_id))
        return None if holder is None else (await self._units.scopes((holder.decode(),))).get(holder.decode())


async def _begin(
    unit: Unit, *, where: MemoryFilter, memory_id: str | None, by: str, verdicts: Verdicts
) -> _Begun:
    target = Target.of(where, memory_id)
    if not await _is_there(unit, target):
        return _Begun(Forgotten())
    _raise_generation(unit)
    is_much = target.is_of_many and await _is_much(unit)
    if target.is_everything and is_much:
        left = erasing.leave_all(unit, at=time.time())
        return _Begun(Forgotten(), orders.place_clearing(unit, where, by=by, left=left))
    if target.is_everything:
        counts = await count_all(unit)
        await erasing.erase_all(unit, at=time.time())
    # A text is content: an order must not keep it.
    elif target.text is None and is_much:
        said = await find_said(unit, target)
        await erasing.erase(unit, said)
        token = orders.place(unit, where, by=by, counts=said.counts)
        await _announce_jobs(unit)
        return _Begun(said.counts, token)
    else:
        doomed = await find(unit, target, verdicts)
        counts = doomed.counts
        await erasing.erase(unit, doomed)
    purging.ask(unit)
    receipt = receipts.issue(unit, where, memory_id=memory_id, by=by, counts=counts)
    return _Begun(replace(counts, receipt=receipt))


async def _forget_document(unit: Unit, *, where: MemoryFilter, document_id: str, by: str) -> Forgotten:
    doomed = await find(unit, Target(document_id=storable(document_id)))
    if not doomed.documents:
        return Forgotten()
    _raise_generation(unit)
    await erasing.erase(unit, doomed)
    purging.ask(unit)
    receipt = receipts.issue(unit, where, memory_id=document_id, by=by, counts=doomed.counts)
    return replace(doomed.counts, receipt=receipt)


async def _erase_portion(unit: Unit, *, token: str, only: frozenset[str]) -> None:
    """Erase those of the memories that the order covers, as far as they are still there."""
    order = (await orders.standing(unit)).get(token)
    if order is None:
        return
    doomed = await find(unit, replace(orders.target_of(unit.scope, order), only=only))
    if doomed.memories:
        _raise_generation(unit)
        await erasing.erase(unit, doomed)
        await orders.add(unit, token, doomed.counts)
    else:
        await orders.still_at_it(unit, token)


async def _finish(unit: Unit, *, token: str) -> Forgotten:
    unit.frees = True
    gone = await orders.finish(unit, token)
    purging.ask(unit)
    await _announce_jobs(unit)
    return gone


async def _is_much(unit: Unit) -> bool:
    """True of a user of whom one commit would erase too much."""
    asked = ("SCARD", unit.key("tables")), ("HLEN", unit.key("stored"))
    return any(int(each) > AT_ONCE for each in (unit.number("memories"), *await unit.redis.pipeline(asked)))


async def _announce_jobs(unit: Unit) -> None:
    """While an order stands, no job of the user is due."""
    jobs = await Queue.of(unit)
    jobs.announce_all()
    await jobs.settle()


async def _in_order(unit: Unit) -> list[str]:
    """Return all memories, the oldest first."""
    spans: dict[str, dict[str, str]] = await unit.table("order").all()
    return [spans[name][seq] for name in sorted(spans, key=int) for seq in sorted(spans[name], key=int)]


def _raise_generation(unit: Unit) -> None:
    """Say that something was forgotten: whoever began before must not write."""
    unit.frees = True
    for name in ("generation", "version"):
        unit.set_number(name, unit.number(name) + 1)


async def _count(unit: Unit, *, where: MemoryFilter, memory_id: str | None, verdicts: Verdicts) -> Forgotten:
    target = Target.of(where, memory_id)
    if not await _is_there(unit, target):
        return Forgotten()
    return await count_all(unit) if target.is_everything else (await find(unit, target, verdicts)).counts


async def _is_there(unit: Unit, target: Target) -> bool:
    """A user is always there: also one never seen has a generation, since a writer may be on its way with
    what was to be forgotten. Of a memory that is not, there is nothing to forget."""
    if target.memory_id is None:
        return True
    row: MemoryRow | None = await unit.table("memories").get(target.memory_id)
    return row is not None and target.is_about(row["project"])
