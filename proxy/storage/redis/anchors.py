"""Rows that belong to a session beside its exchanges, and are erased with them: anchors, and the state with
its marks.

Whoever writes or erases exchanges calls these, inside the same unit of work: there are no triggers here.
Anchors are a log, resolved when they are read (`in_force`): an exchange that is taken back, or forgotten,
takes with it what it said, and what held before holds again.
"""

from collections.abc import Collection, Iterable

from proxy.domain.core import NewExchange
from proxy.domain.notes import EVERY, LATEST, MOST_ANCHORS, OTHER, Anchor
from proxy.storage.redis.layout import AnchorRow, ExchangeRow, storable
from proxy.storage.redis.table import Table
from proxy.storage.redis.unit import Unit

_MOST_LOGGED = 4 * MOST_ANCHORS


async def anchor(unit: Unit, sid: str, exchange: ExchangeRow, new: NewExchange) -> None:
    """Write down the standing instructions of a new exchange."""
    if not new.anchors:
        return
    table = unit.table(f"anchors:{sid}")
    log = await logged(table)
    previous = await _set_before(unit, sid, exchange["seq"], log)
    for said in new.anchors:
        entries = [(said.slot, storable(said.text), bool(said.text))]
        if said.slot == LATEST:
            entries = [(row["slot"], row["content"], False) for row in previous]
        for slot, content, holds in entries:
            row: AnchorRow = {
                "seq": unit.next(), "exchange": exchange["seq"], "exchange_id": new.id, "slot": slot,
                "content": content, "holds": holds, "at": new.at,
            }  # fmt: skip
            table.put(str(row["seq"]), row)
            unit.table("anchored").put(new.id, sid)
            log.append(row)
    _drop(unit, table, log, log[:-_MOST_LOGGED])


async def exchange_gone(unit: Unit, sid: str, exchange: ExchangeRow) -> None:
    """Forget what was made of an exchange, which is being erased. Not for what retention removes: that is no
    forget."""
    await _drop_where(unit, sid, exchanges={exchange["seq"]})
    answer_gone(unit, sid)


def answer_gone(unit: Unit, sid: str) -> None:
    """Forget what was made of an answer that is being erased, or that another takes the place of."""
    unit.table("states").drop(sid)


async def sources_gone(unit: Unit, exchange_ids: Collection[str]) -> None:
    """Forget the instructions in the exchanges that memories, which are being erased, came from. Of an
    exchange that is still there they stay: they go with it."""
    if not exchange_ids:
        return
    found: dict[str, str] = await unit.table("anchored").many(exchange_ids)
    kept = await unit.table("where").many(found)
    for sid in {sid for id_, sid in found.items() if id_ not in kept}:
        await _drop_where(unit, sid, ids={id_ for id_ in found if id_ not in kept})


async def session_gone(unit: Unit, sid: str) -> None:
    """Forget all of it: the session is being erased."""
    table = unit.table(f"anchors:{sid}")
    for row in await logged(table):
        unit.table("anchored").drop(row["exchange_id"])
    table.clear()
    answer_gone(unit, sid)


async def logged(table: Table) -> list[AnchorRow]:
    """Return a session's anchors as they were said."""
    rows: dict[str, AnchorRow] = await table.all()
    return sorted(rows.values(), key=lambda row: row["seq"])


def in_force(log: Iterable[AnchorRow]) -> tuple[Anchor, ...]:
    """Return the anchors that hold after all that the log says, the last ones."""
    held: dict[tuple[str, str], Anchor] = {}
    for row in log:
        slot, content = row["slot"], row["content"]
        if slot == EVERY:
            held.clear()
            continue
        key = (slot, content if slot == OTHER else "")
        held.pop(key, None)
        if row["holds"]:
            held[key] = Anchor(slot, content, row["at"])
    return tuple(held.values())[-MOST_ANCHORS:]


async def _set_before(unit: Unit, sid: str, seq: int, log: Iterable[AnchorRow]) -> list[AnchorRow]:
    """Return what the exchange before this one has set."""
    session = await unit.table("sessions").get(sid)
    earlier = [each for each in session["seqs"] if each < seq] if session else []
    return [row for row in log if row["holds"] and row["exchange"] == max(earlier, default=None)]


async def _drop_where(
    unit: Unit, sid: str, *, exchanges: Collection[int] = (), ids: Collection[str] = ()
) -> None:
    table = unit.table(f"anchors:{sid}")
    log = await logged(table)
    _drop(unit, table, log, [row for row in log if row["exchange"] in exchanges or row["exchange_id"] in ids])


def _drop(unit: Unit, table: Table, log: list[AnchorRow], gone: list[AnchorRow]) -> None:
    numbers = {row["seq"] for row in gone}
    left = {row["exchange_id"] for row in log if row["seq"] not in numbers}
    for row in gone:
        table.drop(str(row["seq"]))
        if row["exchange_id"] not in left:
            unit.table("anchored").drop(row["exchange_id"])
