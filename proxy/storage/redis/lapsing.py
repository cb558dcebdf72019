"""An index of expiry times, one row for each day, which finds expired memories without reading the rest. It
holds only memories that count for BM25: see words.py.
"""

from proxy.storage.redis.unit import Unit

_DAY_S = 86_400.0
DAYS = "days"


def _day(at: float) -> int:
    return int(max(-(2.0**50), min(at, 2.0**50)) // _DAY_S)


async def add(unit: Unit, memory_id: str, expires_at: float) -> None:
    """Note when a memory expires."""
    table, day = unit.table("lapsing"), _day(expires_at)
    of_day = await table.get(str(day)) or {}
    table.put(str(day), {**of_day, memory_id: expires_at})
    days = await table.get(DAYS) or []
    if day not in days:
        table.put(DAYS, sorted([*days, day]))


async def remove(unit: Unit, memory_id: str, expires_at: float) -> None:
    """Forget what was noted."""
    table, day = unit.table("lapsing"), _day(expires_at)
    of_day = await table.get(str(day)) or {}
    if left := {name: at for name, at in of_day.items() if name != memory_id}:
        table.put(str(day), left)
        return
    table.drop(str(day))
    if days := [each for each in await table.get(DAYS) or () if each != day]:
        table.put(DAYS, days)
    else:
        table.drop(DAYS)


async def until(unit: Unit, now: float) -> list[str]:
    """Return the memories that had expired by then. Reads one row where there are none."""
    table, today = unit.table("lapsing"), _day(now)
    days = [str(day) for day in await table.get(DAYS) or () if day <= today]
    found = await table.many(days) if days else {}
    return [name for of_day in found.values() for name, at in of_day.items() if at <= now]
