"""What tells a memory that is being forgotten, and nothing leads to it: no model has read it yet, or it was
said again where the memory was told or shown.

Of one memory that is named: with those of a kind, all goes that is not read yet.
"""

from collections.abc import AsyncIterator, Collection

from proxy.stores.redis import exchanges
from proxy.stores.redis.layout import ExchangeRow, MemoryRow, SessionRow, UnreadRow
from proxy.stores.redis.unit import Unit
from proxy.stores.told import Told

_AT_ONCE = 200  # exchanges: their texts may be long


async def told_besides(
    unit: Unit, memories: Collection[MemoryRow], seen: Collection[str]
) -> AsyncIterator[tuple[str, int, bool]]:
    """Yield the session and number of exchanges that tell one of the memories, and whether the user's words
    do, and not only the answer. `seen`: sessions that are looked through."""
    told = Told(
        (row["content"] for row in memories),
        (evidence["span"] for row in memories for evidence in row["evidence"]),
    )
    for sid, seqs in (await _may_tell(unit, seen)).items():
        for start in range(0, len(seqs), _AT_ONCE):
            some = map(str, seqs[start : start + _AT_ONCE])
            rows: dict[str, ExchangeRow] = await exchanges.table(unit, sid).many(some)
            for row in rows.values():
                in_words = told.is_in(row["said"], personal=row["explicit"] or row["personal"])
                if in_words or told.is_in(row["answer"], personal=False):
                    yield sid, row["seq"], in_words


async def _may_tell(unit: Unit, seen: Collection[str]) -> dict[str, list[int]]:
    await unit.fetch((unit.table("sessions"), None), (unit.table("unread"), None))
    sessions: dict[str, SessionRow] = await unit.table("sessions").all()
    unread: dict[str, list[UnreadRow]] = await unit.table("unread").all()
    return {
        sid: row["seqs"] if sid in seen else [*row["open"], *(each["seq"] for each in unread.get(sid, ()))]
        for sid, row in sessions.items()
    }
