"""Read memories by filter: one, a page of them, their number, and the history of one.

A list goes along the rows' numbers by an index, a slice at a time. Each slice is a read of its own: where
a filter lets few rows through, other requests need not wait until all have been looked at.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from proxy.domain.core import Event, Memory, MemoryFilter, Page, Scope
from proxy.domain.errors import NotFound
from proxy.storage.sql import owners, rows
from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.forgetting import pending

_SLICE = 4_000  # rows that one read looks at
_BEYOND_ALL = 2**63 - 1
_NOBODY = -1
# CROSS JOIN: in this order. By an id alone SQLite would look for it with every user of the tenant.
_FROM = "memories m CROSS JOIN scopes s ON s.id = m.owner"


class Listing:
    """Lists of one file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        """Return the memory, also a superseded one."""
        return await self._database.read(lambda tx: _get(tx, where, memory_id))

    async def history(self, where: MemoryFilter, ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Return the events of the memories that there are, oldest first, by id."""
        return await self._database.read(lambda tx: _history(tx, where, ids))

    async def page(
        self, where: MemoryFilter, *, limit: int, after: str | None, oldest_first: bool, total: bool
    ) -> Page:
        """Return the memories after the one with id `after`. Raises NotFound if there never was one."""
        edge: int | None = await self._database.read(
            lambda tx: _start(tx, where, after, oldest_first=oldest_first)
        )
        items: list[Memory] = []
        while edge is not None and len(items) <= limit:
            work = partial(
                _slice, where=where, edge=edge, limit=limit + 1 - len(items), oldest_first=oldest_first
            )
            found, edge = await self._database.read(work)
            items += found
        count = await self._count(where) if total else None
        return Page(tuple(items[:limit]), count, has_more=len(items) > limit)

    async def _count(self, where: MemoryFilter) -> int:
        edge: int | None = 0
        total = 0
        while edge is not None:
            found, edge = await self._database.read(partial(_count, where=where, edge=edge))
            total += found
        return total


def _get(tx: Connection, where: MemoryFilter, memory_id: str) -> Memory | None:
    condition, parameters = _condition(tx, where, inactive=True)
    parameters["id"] = rows.storable(memory_id)
    found = rows.memories_where(tx, f"{condition} AND m.id = :id LIMIT 1", parameters)
    return found[0][1] if found else None


def _history(tx: Connection, where: MemoryFilter, ids: Sequence[str]) -> dict[str, list[Event]]:
    condition, parameters = _condition(tx, where, inactive=True)
    parameters["ids"] = rows.as_json(map(rows.storable, ids))
    # The plus keeps SQLite from walking through all that the user has.
    found = tx.execute(
        f"SELECT m.id, e.at, e.action, e.by, e.content FROM {_FROM} JOIN events e ON e.memory = m.seq"
        f" WHERE {condition.replace('m.owner =', '+m.owner =')}"
        " AND m.id IN (SELECT value FROM json_each(:ids)) ORDER BY e.id",
        parameters,
    )
    events: dict[str, list[Event]] = {}
    for id_, *event in found:
        events.setdefault(id_, []).append(Event(*event))
    return events


def _slice(
    tx: Connection, *, where: MemoryFilter, edge: int, limit: int, oldest_first: bool
) -> tuple[list[Memory], int | None]:
    """Return up to `limit` memories beyond the edge, and the edge of what was not looked at, if any."""
    condition, parameters = _condition(tx, where, inactive=where.include_inactive)
    end = _end(tx, where, edge, oldest_first=oldest_first)
    beyond = "> :edge AND m.seq <= :end" if oldest_first else "< :edge AND m.seq >= :end"
    condition, parameters = f"{condition} AND m.seq {beyond}", parameters | {"edge": edge, "end": end}
    order = f"ORDER BY m.seq {_order(oldest_first)}"
    if where.text is not None:
        read = tx.execute(f"SELECT m.seq, m.content FROM {_FROM} WHERE {condition} {order}", parameters)
        condition = "m.seq IN (SELECT CAST(value AS INTEGER) FROM json_each(:seqs))"
        parameters = {"seqs": rows.as_json(rows.holding(where.text, read)[:limit])}
    found = rows.memories_where(tx, f"{condition} {order} LIMIT :limit", parameters | {"limit": limit})
    return [memory for _, memory in found], None if end in (0, _BEYOND_ALL) else end


def _count(tx: Connection, *, where: MemoryFilter, edge: int) -> tuple[int, int | None]:
    """Return how many match in the slice after the edge, and where it ends, if there is more."""
    condition, parameters = _condition(tx, where, inactive=where.include_inactive)
    end = _end(tx, where, edge, oldest_first=True)
    parameters |= {"edge": edge, "end": end}
    slice_ = f"FROM {_FROM} WHERE {condition} AND m.seq > :edge AND m.seq <= :end"
    if where.text is not None:
        count = len(rows.holding(where.text, tx.execute(f"SELECT m.seq, m.content {slice_}", parameters)))
    else:
        (count,) = tx.execute(f"SELECT count(*) {slice_}", parameters).fetchone()
    return count, None if end == _BEYOND_ALL else end


def _end(tx: Connection, where: MemoryFilter, edge: int, *, oldest_first: bool) -> int:
    """Return the number of the last row of the slice beyond the edge: 0 or a very high one for all of it."""
    sign = ">" if oldest_first else "<"
    of_owner, owner = _whose(tx, where)
    row = tx.execute(
        f"SELECT m.seq FROM memories m WHERE {of_owner} AND m.seq {sign} :edge"
        f" ORDER BY m.seq {_order(oldest_first)} LIMIT 1 OFFSET {_SLICE - 1}",
        owner | {"edge": edge},
    ).fetchone()
    if row is not None:
        return int(row[0])
    return _BEYOND_ALL if oldest_first else 0


def _start(tx: Connection, where: MemoryFilter, after: str | None, *, oldest_first: bool) -> int:
    """Return the number of the memory `after`, also if it has left the list since the last page."""
    if after is None:
        return 0 if oldest_first else _BEYOND_ALL
    row = tx.execute(
        f"SELECT m.seq FROM {_FROM} WHERE m.id = :id AND s.tenant = :tenant"
        f" AND (:user IS NULL OR s.user = :user)",
        {"id": rows.storable(after), "tenant": where.tenant, "user": where.user},
    ).fetchone()
    if row is None:
        raise NotFound("no memory has this id", param="after")
    return int(row[0])


def _condition(tx: Connection, where: MemoryFilter, *, inactive: bool) -> tuple[str, dict[str, Any]]:
    """Return the filter, without what is being forgotten."""
    condition, parameters = rows.conditions(where, inactive=inactive)
    of_owner, owner = _whose(tx, where)
    return f"{condition} AND {of_owner}{pending.hidden(tx)}", parameters | owner


def _whose(tx: Connection, where: MemoryFilter) -> tuple[str, dict[str, int]]:
    """Return a condition by which rows are found in their order through an index."""
    if where.user is None:
        return "TRUE", {}
    owner = owners.find(tx, Scope(where.tenant, where.user))
    return "m.owner = :owner", {"owner": owner.id if owner else _NOBODY}


def _order(oldest_first: bool) -> str:
    return "ASC" if oldest_first else "DESC"
