"""Recognise a request that repeats one of its session's exchanges: the same request sent again."""

from proxy.domain.core import NewExchange
from proxy.storage.redis.layout import ExchangeRow, SessionRow, storable
from proxy.storage.redis.table import Table
from proxy.storage.redis.unit import Unit
from proxy.storage.retry import is_opening, is_retry, said_anew


def name_of(ours: str) -> str:
    """Return the name of the table of a session's exchanges."""
    return f"exchanges:{ours}"


def table(unit: Unit, ours: str) -> Table:
    """Return the exchanges of one session."""
    return unit.table(name_of(ours))


async def repeated(
    unit: Unit, ours: str, session: SessionRow, new: NewExchange
) -> tuple[str, ExchangeRow | None]:
    """Return the key to store the exchange under, and the one that it repeats.

    A request that holds its history repeats whichever has the same key. One without says the same words
    anew, unless they are the last thing said and that is a retry (see stores/retry). But
    where a session's requests hold their history (`retold`), one without is its beginning, sent again: in a
    session without a name, which another conversation may share, only for a while.
    """
    row: ExchangeRow | None
    if session["retold"] or not new.standalone:
        opens = new.standalone and new.unnamed
        row = await (newest if opens else _of_key)(unit, ours, new.key)
        if row is None or not opens:
            return new.key, row
        same = is_opening(new, at=row["at"])
    else:
        if not session["seqs"]:
            return new.key, None
        row = await table(unit, ours).get(str(session["seqs"][-1]))
        same = is_retry(new, key=row["key"], whole=row["whole"], at=row["at"])
    if same and (row["open"] or not await _said_elsewhere(unit, ours, new, row["seq"])):
        return row["key"], row
    return said_anew(new.key, row["seq"]), None


async def _of_key(unit: Unit, ours: str, key: str) -> ExchangeRow | None:
    seq = await unit.table(f"keys:{ours}").get(key)
    found: ExchangeRow | None = None if seq is None else await table(unit, ours).get(str(seq))
    return found


async def _said_elsewhere(unit: Unit, ours: str, new: NewExchange, since: int) -> bool:
    """Return whether the user said something in another session since, in other words."""
    sessions: dict[str, SessionRow] = await unit.table("sessions").all()
    for other, row in sessions.items():
        if other != ours and (later := [seq for seq in row["seqs"] if seq > since]):
            found: dict[str, ExchangeRow] = await table(unit, other).many(map(str, later))
            if any(each["said"] != storable(new.said) for each in found.values()):
                return True
    return False


async def newest(unit: Unit, ours: str, key: str) -> ExchangeRow | None:
    """Return the session's newest exchange with the key; where the same was said anew, it has a suffix."""
    keys = unit.table(f"keys:{ours}")
    if await keys.get(key) is None:  # mostly so, and then nobody reads all that was ever said
        return None
    known: dict[str, int] = await keys.all()
    last = max(seq for each, seq in known.items() if each.partition(":")[0] == key)
    row: ExchangeRow = await table(unit, ours).get(str(last))
    return row
