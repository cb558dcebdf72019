"""The eviction order of a user's memories at the quota: a sorted set whose members sort by whether the
memory is over, its strength, when it was used last, and its age. Without it, each write of a user who is at
the quota would read all that the user has.
"""

import struct
from collections.abc import AsyncIterator

from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.unit import Unit

_FIRST = 32  # read at a time, then more and more
_HEAD = 1 + 16 + 16 + 12


def member(memory_id: str, row: MemoryRow) -> str:
    """Return what stands for the memory: of two, the lesser goes first."""
    is_current = row["superseded_by"] is None and not row["archived"]
    used = row["created_at"] if row["last_accessed"] is None else row["last_accessed"]
    strength = _sortable(row["importance"] * row["weight"] * row["confidence"])
    return f"{is_current:d}{strength}{_sortable(used)}{row['seq']:012x}{memory_id}"


def id_of(member: str) -> str:
    return member[_HEAD:]


def follow(unit: Unit, memory_id: str, old: MemoryRow | None, new: MemoryRow | None) -> None:
    """Let the set hold what the row has become."""
    before = None if old is None else member(memory_id, old)
    after = None if new is None else member(memory_id, new)
    if before == after:
        return
    if before is not None:
        unit.share("ZREM", unit.key("weakest"), before)
    if after is not None:
        unit.share("SADD", unit.key("tables"), "weakest")
        unit.share("ZADD", unit.key("weakest"), 0, after)


async def walk(unit: Unit, *, is_current: bool) -> AsyncIterator[list[str]]:
    """Yield the members as they are committed, the weakest first, some at a time."""
    least, most = ("[1", "+") if is_current else ("-", "(1")
    start, count = 0, _FIRST
    while True:
        found = await unit.redis.call(
            "ZRANGE", unit.key("weakest"), least, most, "BYLEX", "LIMIT", start, count
        )
        yield [each.decode() for each in found]
        if len(found) < count:
            return
        start, count = start + count, 2 * count


def _sortable(value: float) -> str:
    """Return 16 digits that sort as the numbers do."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # + 0.0: there is one zero only
    bits = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | 1 << 63
    return f"{bits:016x}"
