"""Orders: large forgets under way, and what is left to do of each. Where only some of the memories are
forgotten, each portion is a forget of its own, with all that depends on them, so that a crash leaves
nothing half erased. Where everything is, what the user has left behind is cleared (clearing.py).

A process that works on an order holds it for a stated time; after that another process may take over. Two
that work on it at once do no harm.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

from proxy.domain.core import Forgotten, MemoryFilter, Scope
from proxy.storage.forgotten import counts_of, new_receipt_id, numbers, plus
from proxy.storage.redis import receipts
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.layout import ForgetRow, MemoryRow, storable
from proxy.storage.redis.target import Target
from proxy.storage.redis.unit import Unit

LEASE_S = 30.0
TABLE = "forgets"
_STANDING = "forgetting"  # the counter of a user's orders: to read it costs nothing
_AT_ONCE = 100


def place(unit: Unit, where: MemoryFilter, *, by: str, counts: Forgotten) -> str:
    """Write an order down, with what is erased already; return the id of the receipt that it will have."""
    unit.set_number(_STANDING, unit.number(_STANDING) + 1)
    return _placed(unit, where, by=by, left=None, counts=numbers(counts))


def place_clearing(unit: Unit, where: MemoryFilter, *, by: str, left: str) -> str:
    """Write down that a home is to be cleared that the user has left; return the receipt's id. It does not
    stand in the user's way: nothing of it can be seen."""
    return _placed(unit, where, by=by, left=left, counts={})


def _placed(unit: Unit, where: MemoryFilter, *, by: str, left: str | None, counts: dict[str, int]) -> str:
    token = new_receipt_id()
    row: ForgetRow = {
        "project": None if where.project is None else storable(where.project), "type": where.type,
        "by": storable(by), "at": where.now, "upto": unit.number("last"), "left": left, "until": 0.0,
        "counts": counts,
    }  # fmt: skip
    _keep(unit, token, row)
    return token


def are_standing(unit: Unit) -> bool:
    """True while something of the user is being forgotten. Costs nothing."""
    return unit.number(_STANDING) > 0


async def standing(unit: Unit) -> dict[str, ForgetRow]:
    """Return the user's orders to forget some of the memories, by their receipts' ids."""
    if not are_standing(unit):
        return {}
    rows: dict[str, ForgetRow] = await unit.table(TABLE).all()
    return {token: row for token, row in rows.items() if home_left(row) is None}


async def find(unit: Unit, token: str) -> ForgetRow | None:
    """Return an order that is not carried out yet."""
    row: ForgetRow | None = await unit.table(TABLE).get(token)
    return row


def home_left(row: ForgetRow) -> str | None:
    """Return the home that is to be cleared; None of an order to forget some of the memories."""
    return row.get("left")  # an order that an earlier release has placed does not say


async def shown(unit: Unit, rows: Mapping[str, MemoryRow]) -> dict[str, MemoryRow]:
    """Return those of the memories that are not being forgotten."""
    targets = [target_of(unit.scope, row) for row in (await standing(unit)).values()]
    if not targets:
        return dict(rows)
    line = await with_newer(unit, rows)
    return {
        id_: row for id_, row in rows.items() if not any(is_reached(target, id_, line) for target in targets)
    }


def is_reached(target: Target, memory_id: str, line: Mapping[str, MemoryRow]) -> bool:
    """True of a memory that a forget takes: one that it covers, or that leads to one by what superseded it.
    `line` holds all of these."""
    seen: set[str] = set()
    name: str | None = memory_id
    while name is not None and name not in seen and name in line and target.reaches(line[name]):
        if target.covers(line[name]):
            return True
        seen.add(name)
        name = line[name]["superseded_by"]
    return False


async def with_newer(unit: Unit, rows: Mapping[str, MemoryRow]) -> dict[str, MemoryRow]:
    """Return the memories with what superseded them, directly or through others."""
    line = dict(rows)
    front = list(rows.values())
    while front:
        ids = {row["superseded_by"] for row in front} - {None} - line.keys()
        found: dict[str, MemoryRow] = await unit.table("memories").many(sorted(map(str, ids)))
        line |= found
        front = list(found.values())
    return line


async def add(unit: Unit, token: str, more: Forgotten) -> None:
    """Count what was erased besides, if the order still stands; somebody is at it."""
    row = await find(unit, token)
    if row is not None:
        counts = plus(counts_of(row["counts"]), more)
        _keep(unit, token, {**row, "counts": numbers(counts)})


async def count(unit: Unit, token: str, counts: Forgotten) -> None:
    """Note what is in the home that is to be cleared, if the order still stands."""
    row = await find(unit, token)
    if row is not None:
        _keep(unit, token, {**row, "counts": numbers(counts)})


async def still_at_it(unit: Unit, token: str) -> None:
    """Keep others away from the order, if it still stands and the time is near when they would come."""
    row = await find(unit, token)
    if row is not None and row["until"] - time.time() < LEASE_S / 2:
        _keep(unit, token, row)


async def finish(unit: Unit, token: str) -> Forgotten:
    """Close the order with its receipt, unless another process has done so; return what went in all."""
    row = await find(unit, token)
    if row is None:
        return await receipts.counts(unit, token)
    unit.table(TABLE).drop(token)
    if home_left(row) is None:
        unit.set_number(_STANDING, unit.number(_STANDING) - 1)
    unit.share("ZREM", unit.redis.key(TABLE), f"{unit.uid} {token}")
    counts, where = counts_of(row["counts"]), where_of(unit.scope, row)
    receipts.issue(unit, where, memory_id=None, by=row["by"], counts=counts, receipt_id=token)
    return replace(counts, receipt=token)


async def take_over(unit: Unit, *, redis: Redis, token: str, now: float) -> ForgetRow | None:
    """Return the order if nobody is at it, and be at it."""
    row = await find(unit, token)
    if row is None:
        unit.share("ZREM", redis.key(TABLE), f"{unit.uid} {token}")
        return None
    if row["until"] > now:
        return None
    unit.frees = True
    _keep(unit, token, row)
    return row


async def abandoned(redis: Redis, now: float) -> list[tuple[str, str]]:
    """Return (uid, token) of some orders that nobody is at."""
    found = await redis.call("ZRANGEBYSCORE", redis.key(TABLE), "-inf", now, "LIMIT", 0, _AT_ONCE)
    split = (member.decode().partition(" ") for member in found)
    return [(uid, token) for uid, _, token in split]


def where_of(scope: Scope, row: ForgetRow) -> MemoryFilter:
    """Return what was asked to be forgotten."""
    return MemoryFilter(
        tenant=scope.tenant, user=scope.user, project=row["project"], type=row["type"], now=row["at"]
    )


def target_of(scope: Scope, row: ForgetRow) -> Target:
    return replace(Target.of(where_of(scope, row), None), upto=row["upto"])


def _keep(unit: Unit, token: str, row: ForgetRow) -> None:
    until = time.time() + LEASE_S
    unit.table(TABLE).put(token, {**row, "until": until})
    unit.share("ZADD", unit.redis.key(TABLE), until, f"{unit.uid} {token}")
