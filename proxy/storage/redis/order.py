"""The order in which a user's memories came: their ids by seq, in rows of some seqs each.

A hash has no order. Rows of a range of seqs give any stretch of the list by a few names, and a new memory
rewrites one small row.
"""

from collections.abc import AsyncIterator, Sequence

from proxy.domain.core import Scope
from proxy.storage.redis import orders
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.unit import Unit, Units

_SPAN = 256  # seqs of a row
_ROWS = 16  # read at a time, at most
_MOST = 1000  # memories read at a time


def name_of(seq: int) -> str:
    """Return the name of the row that holds the seq."""
    return str(seq // _SPAN)


async def add(unit: Unit, seq: int, memory_id: str) -> None:
    table, name = unit.table("order"), name_of(seq)
    table.put(name, {**(await table.get(name) or {}), str(seq): memory_id})


async def remove(unit: Unit, seq: int) -> None:
    table, name = unit.table("order"), name_of(seq)
    left = {at: id_ for at, id_ in (await table.get(name) or {}).items() if at != str(seq)}
    if left:
        table.put(name, left)
    else:
        table.drop(name)


async def walk(
    units: Units, scope: Scope, *, edge: int | None = None, oldest_first: bool = False, first: int = 1000
) -> AsyncIterator[dict[str, MemoryRow]]:
    """Yield the user's memories beyond the edge (None: from the end), in order, some at a time: about `first`
    and then more and more.

    Each portion is read when it is asked for: what is written meanwhile may be seen or not."""
    size = first
    async for ids in _stretches(units, scope, edge=edge, oldest_first=oldest_first):
        while ids:
            yield await _rows(units, scope, ids[:size])
            ids, size = ids[size:], min(2 * size, _MOST)


async def _stretches(
    units: Units, scope: Scope, *, edge: int | None, oldest_first: bool
) -> AsyncIterator[list[str]]:
    """Yield ids beyond the edge in order, those of a few rows at a time."""

    async def last(unit: Unit) -> int:
        return unit.number("last")

    end = await units.glance(scope, last)
    if oldest_first:
        names = range(0 if edge is None else edge // _SPAN, end // _SPAN + 1)
    else:
        names = range((end if edge is None else edge) // _SPAN, -1, -1)
    start, count = 0, 1
    while start < len(names):
        found = await _read(units, scope, [str(name) for name in names[start : start + count]])
        beyond = [
            each for each in found if edge is None or (each[0] > edge if oldest_first else each[0] < edge)
        ]
        yield [memory_id for _, memory_id in sorted(beyond, reverse=not oldest_first)]
        start, count = start + count, min(2 * count, _ROWS)


async def _read(units: Units, scope: Scope, names: Sequence[str]) -> list[tuple[int, str]]:
    async def read(unit: Unit) -> list[tuple[int, str]]:
        rows = (await unit.table("order").many(names)).values()
        return [(int(seq), memory_id) for row in rows for seq, memory_id in row.items()]

    return await units.glance(scope, read)


async def _rows(units: Units, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryRow]:
    async def read(unit: Unit) -> dict[str, MemoryRow]:
        return await orders.shown(unit, await unit.table("memories").many(ids))

    return await units.glance(scope, read)
