"""Find exchanges that tell a memory which is being forgotten, though no row links the two: no model has
read them yet, or the fact was said again where the memory was told or shown.

Where one memory is named, only such exchanges go; where a whole kind is forgotten, everything that is not
read yet goes.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable

from proxy.storage.redis import exchanges
from proxy.storage.redis.layout import ExchangeRow, MemoryRow, SessionRow, UnreadRow
from proxy.storage.redis.unit import Unit
from proxy.storage.told import Told, Verdicts

_AT_ONCE = 200  # exchanges: their texts may be long


async def told_besides(
    unit: Unit, memories: Collection[MemoryRow], seen: Collection[str], verdicts: Verdicts
) -> AsyncIterator[tuple[str, int, bool]]:
    """Yield the session and number of exchanges that tell one of the memories, and whether the user's words
    do, and not only the answer. `seen`: sessions that are looked through."""
    told = Told(
        (row["content"] for row in memories),
        (evidence["span"] for row in memories for evidence in row["evidence"]),
        verdicts,
    )
    for sid, seqs in (await _may_tell(unit, seen)).items():
        for start in range(0, len(seqs), _AT_ONCE):
            some = map(str, seqs[start : start + _AT_ONCE])
            rows: dict[str, ExchangeRow] = await exchanges.table(unit, sid).many(some)
            for seq, in_words in await asyncio.to_thread(_telling, told, rows.values()):
                yield sid, seq, in_words


def _telling(told: Told, rows: Iterable[ExchangeRow]) -> list[tuple[int, bool]]:
    found = []
    for row in rows:
        in_words = told.is_in(row["said"], personal=row["explicit"] or row["personal"])
        if in_words or told.is_in(row["answer"], personal=False):
            found.append((row["seq"], in_words))
    return found


async def _may_tell(unit: Unit, seen: Collection[str]) -> dict[str, list[int]]:
    await unit.fetch((unit.table("sessions"), None), (unit.table("unread"), None))
    sessions: dict[str, SessionRow] = await unit.table("sessions").all()
    unread: dict[str, list[UnreadRow]] = await unit.table("unread").all()
    return {
        sid: row["seqs"] if sid in seen else [*row["open"], *(each["seq"] for each in unread.get(sid, ()))]
        for sid, row in sessions.items()
    }
