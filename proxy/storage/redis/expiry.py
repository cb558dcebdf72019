"""Erase expired memories, with what they superseded and every row that depends on theirs.

What was said stays as long as its own retention says, and so do stored responses: nobody asked to forget.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.storage.redis import purging, receipts
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.doomed import with_older
from proxy.storage.redis.erasing import erase_memories
from proxy.storage.redis.indexing import Indexing
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.unit import Unit, Units

GRACE_S = 86_400.0  # an expired memory is shown in lists of the past for so long
_BY = "retention"
_AT_ONCE = 100  # memories of a user in one commit
_LISTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _Portion:
    """What one commit has erased of one user."""

    count: int
    receipt: str | None


async def expire(units: Units, indexing: Indexing, now: float) -> int:
    """Erase what expired more than a day before `now`; return how many. A receipt for each user."""
    before, total = now - GRACE_S, 0
    receipts_of: dict[str, str | None] = {}
    while due := await _due(units.redis, before):
        scopes = await units.scopes(due)
        for uid, ids in due.items():
            if uid not in scopes:  # what was restored without its owner
                await _unlist(units.redis, uid, ids)
                continue
            portion = await _expire_of(units, scopes[uid], ids, now, receipts_of.get(uid))
            receipts_of[uid] = portion.receipt
            total += portion.count
            if portion.count:
                await indexing.settle(scopes[uid])
    return total


async def _due(redis: Redis, before: float) -> dict[str, list[str]]:
    """Return some of the memories that expired by then, by user."""
    found: dict[str, list[str]] = {}
    listed = ("ZRANGEBYSCORE", redis.key("expiring"), "-inf", before, "LIMIT", 0, _LISTED_AT_ONCE)
    for member in await redis.call(*listed):
        uid, _, memory_id = member.decode().partition(" ")
        found.setdefault(uid, []).append(memory_id)
    return found


async def _expire_of(
    units: Units, scope: Scope, ids: Sequence[str], now: float, receipt: str | None
) -> _Portion:
    count = 0
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        work = partial(_expire, redis=units.redis, ids=some, now=now, receipt=receipt)
        portion = await units.write(scope, work)
        count, receipt = count + portion.count, portion.receipt
    return _Portion(count, receipt)


async def _expire(
    unit: Unit, *, redis: Redis, ids: Sequence[str], now: float, receipt: str | None
) -> _Portion:
    """Erase one portion, as far as it has expired: its owner may have given it more time."""
    rows: dict[str, MemoryRow] = await unit.table("memories").many(ids)
    over = []
    for memory_id in ids:
        expires_at = rows[memory_id]["expires_at"] if memory_id in rows else None
        if expires_at is not None and expires_at <= now - GRACE_S:
            over.append(memory_id)
        else:
            unit.share("ZREM", redis.key("expiring"), f"{unit.uid} {memory_id}")
            if expires_at is not None:
                unit.share("ZADD", redis.key("expiring"), expires_at, f"{unit.uid} {memory_id}")
    doomed = await with_older(unit, over)
    if not doomed:
        return _Portion(0, receipt)
    unit.frees = True
    await erase_memories(unit, doomed)
    purging.ask(unit)
    gone = Forgotten(memories=len(doomed))
    if receipt is None:
        where = MemoryFilter(tenant=unit.scope.tenant, user=unit.scope.user, now=now)
        receipt = receipts.issue(unit, where, memory_id=None, by=_BY, counts=gone)
    else:
        await receipts.add(unit, receipt, gone)
    return _Portion(len(doomed), receipt)


async def _unlist(redis: Redis, uid: str, ids: Iterable[str]) -> None:
    await redis.call("ZREM", redis.key("expiring"), *(f"{uid} {memory_id}" for memory_id in ids))
