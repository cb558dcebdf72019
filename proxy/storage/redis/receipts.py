"""Receipts: proofs of what was forgotten, without any of it. See ports.Receipts.

They are rows of their user, who keeps them when all else is forgotten, and listed by tenant in the order of
their commits.
"""

from collections.abc import AsyncIterator, Sequence

import orjson

from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.domain.errors import NotFound
from proxy.domain.oversight import Receipt
from proxy.storage.forgotten import counts_of, new_receipt_id, numbers, plus
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.layout import ReceiptRow, storable
from proxy.storage.redis.unit import Unit, Units, key_of

_AT_ONCE = 500


class RedisReceipts:
    """Receipts of all replicas."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def list(
        self, tenant: str, user: str | None, *, limit: int, after: str | None = None
    ) -> Sequence[Receipt]:
        """As the port says. Raises NotFound for an `after` that is none of them."""
        if user is not None:
            return await self._of_user(Scope(tenant, user), limit, after)
        return await self._of_tenant(tenant, limit, after)

    async def _of_user(self, scope: Scope, limit: int, after: str | None) -> Sequence[Receipt]:
        async def work(unit: Unit) -> Sequence[Receipt]:
            rows: dict[str, ReceiptRow] = await unit.table("receipts").all()
            ids = sorted(rows, key=lambda each: rows[each]["seq"], reverse=True)
            if after is not None:
                if storable(after) not in rows:
                    raise NotFound("no receipt has this id", param="after")
                ids = ids[ids.index(storable(after)) + 1 :]
            return [_receipt(scope, id_, rows[id_]) for id_ in ids[:limit]]

        return await self._units.glance(scope, work)

    async def _of_tenant(self, tenant: str, limit: int, after: str | None) -> Sequence[Receipt]:
        wanted: list[tuple[str, str]] = []
        awaited = after is not None
        async for user, id_ in self._newest_first(tenant):
            if len(wanted) == limit:
                break
            if not awaited:
                wanted.append((user, id_))
            awaited = awaited and id_ != after
        if awaited:
            raise NotFound("no receipt has this id", param="after")
        redis = self._units.redis
        rows = await redis.pipeline([("HGET", key_of(redis, user, "receipts"), id_) for user, id_ in wanted])
        owners = await self._units.scopes(user for user, _ in wanted)
        return [
            _receipt(owners[user], id_, orjson.loads(row))
            for (user, id_), row in zip(wanted, rows, strict=True)
        ]

    async def _newest_first(self, tenant: str) -> AsyncIterator[tuple[str, str]]:
        """Yield (uid, receipt id) of the whole tenant."""
        redis, key = self._units.redis, _all(self._units.redis, tenant)
        end = int(await redis.call("LLEN", key))  # what comes in meanwhile comes behind it
        while end > 0:
            start = max(0, end - _AT_ONCE)
            for entry in reversed(await redis.call("LRANGE", key, start, end - 1)):
                user, _, id_ = entry.decode().partition(" ")
                yield user, id_
            end = start


def issue(
    unit: Unit,
    where: MemoryFilter,
    *,
    memory_id: str | None,
    by: str,
    counts: Forgotten,
    receipt_id: str | None = None,
) -> str:
    """Write the receipt of a forget of the filter, or of one memory of it; return its id."""
    id_ = receipt_id or new_receipt_id()
    row: ReceiptRow = {
        "seq": unit.next(),
        "project": None if where.project is None else storable(where.project),
        "type": where.type,
        "memory_id": None if memory_id is None else storable(memory_id),
        "by": storable(by),
        "at": where.now,
        "counts": numbers(counts),
    }
    unit.table("receipts").put(id_, row)
    unit.share("RPUSH", _all(unit.redis, unit.scope.tenant), f"{unit.uid} {id_}")
    return id_


async def counts(unit: Unit, receipt_id: str) -> Forgotten:
    """Return what the receipt says was erased, with its id."""
    row: ReceiptRow = await unit.table("receipts").get(receipt_id)
    return counts_of(row["counts"], receipt_id)


async def add(unit: Unit, receipt_id: str, more: Forgotten) -> None:
    """Count what was erased besides on the same receipt."""
    row: ReceiptRow = await unit.table("receipts").get(receipt_id)
    total = plus(await counts(unit, receipt_id), more)
    unit.table("receipts").put(receipt_id, {**row, "counts": numbers(total)})


def _all(redis: Redis, tenant: str) -> str:
    return redis.key("receipts:" + storable(tenant))


def _receipt(scope: Scope, id_: str, row: ReceiptRow) -> Receipt:
    counts = counts_of(row["counts"], id_)
    return Receipt(
        id=id_, tenant=scope.tenant, user=scope.user, project=row["project"], type=row["type"],
        memory_id=row["memory_id"], by=row["by"], at=row["at"], counts=counts,
    )  # fmt: skip
