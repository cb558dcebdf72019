"""Read memories by filter: one, a page of them, their number, and the history of one.

A list goes along the order in which memories came, some hundred at a time: where a filter lets few through,
other requests need not wait. Users have no order among each other: a list of all users' goes from one to the
next by name.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import orjson

from proxy.domain.core import Event, Memory, MemoryFilter, Page, Scope, with_children
from proxy.domain.errors import NotFound
from proxy.storage.redis import order, orders, rows, words
from proxy.storage.redis.connection import pairs
from proxy.storage.redis.layout import EventRow, MemoryRow, storable
from proxy.storage.redis.unit import Unit, Units, full_name

_SLICE = 1000  # memories read at a time where it is not known how many are needed
_NAMES = 1000  # users whose names are held at a time
_LOOKED_AT = 1000  # users who are listed by name at a time


class Listing:
    """Lists of what all users have."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        """Return the memory, also a superseded one."""
        memory_id = storable(memory_id)
        scope = await self._scope(where, memory_id)
        row = None if scope is None else await self._row(scope, memory_id)
        if scope is None or row is None or not rows.matches(row, where, inactive=True):
            return None
        return rows.memory_of(scope, memory_id, row)

    async def history(self, where: MemoryFilter, ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """Return the events of the memories that there are, oldest first, by id."""
        by_scope: dict[Scope, list[str]] = {}
        for memory_id in map(storable, ids):
            if (scope := await self._scope(where, memory_id)) is not None:
                by_scope.setdefault(scope, []).append(memory_id)
        found: dict[str, Sequence[Event]] = {}
        for scope, some in by_scope.items():
            found |= await self._units.glance(scope, partial(_history, where=where, ids=some))
        return found

    async def page(
        self, where: MemoryFilter, *, limit: int, after: str | None, oldest_first: bool, total: bool
    ) -> Page:
        """Return the memories after the one with id `after`. Raises NotFound if there never was one."""
        edge = None if after is None else await self._edge(where, storable(after))
        items: list[Memory] = []
        async for memory in self._beyond(where, edge, oldest_first=oldest_first, first=limit + 1):
            items.append(memory)
            if len(items) > limit:
                break
        count = (
            sum([await self._count(scope, where) async for scope in self._scopes(where)]) if total else None
        )
        return Page(tuple(items[:limit]), count, has_more=len(items) > limit)

    async def _beyond(
        self, where: MemoryFilter, edge: "_Place | None", *, oldest_first: bool, first: int
    ) -> AsyncIterator[Memory]:
        """Yield the memories beyond the edge: what is left of its user's, then those of the users behind."""
        async for scope in self._scopes(where, edge and edge.user):
            seq = edge.seq if edge is not None and scope.user == edge.user else None
            async for some in self._matching(scope, where, seq, oldest_first=oldest_first, first=first):
                for memory_id, row in some:
                    yield rows.memory_of(scope, memory_id, row)

    async def _matching(
        self, scope: Scope, where: MemoryFilter, edge: int | None, *, oldest_first: bool, first: int = _SLICE
    ) -> AsyncIterator[list[tuple[str, MemoryRow]]]:
        async for some in order.walk(self._units, scope, edge=edge, oldest_first=oldest_first, first=first):
            yield [
                (memory_id, row)
                for memory_id, row in some.items()
                if rows.matches(row, where, inactive=where.include_inactive)
            ]

    async def _count(self, scope: Scope, where: MemoryFilter) -> int:
        """Return how many match; by what is counted already, where that is enough."""
        if where.text is None and not (where.include_inactive or where.include_archived):
            project = None if where.project is None else storable(where.project)
            types = None if where.type is None else with_children((where.type,)) | {where.type}
            counted = await self._units.glance(
                scope, partial(_counted, types=types, of=project, now=where.now)
            )
            if counted is not None:
                return counted
        total = 0
        async for some in self._matching(scope, where, None, oldest_first=True):
            total += len(some)
        return total

    # ------------------------------------------------------------ whose
    async def _scope(self, where: MemoryFilter, memory_id: str) -> Scope | None:
        """Return whose memory it would be."""
        if where.user is not None:
            return Scope(where.tenant, where.user)
        key = self._units.redis.key(f"ids:{storable(where.tenant)}")
        holder = await self._units.redis.call("HGET", key, memory_id)
        if holder is None:
            return None
        return (await self._units.scopes([holder.decode()])).get(holder.decode())

    async def _scopes(self, where: MemoryFilter, since: str | None = None) -> AsyncIterator[Scope]:
        """Yield whose memories may match: the one user, or all of the tenant's from one on, by name."""
        if where.user is not None:
            yield Scope(where.tenant, where.user)
            return
        names = [] if since is None else [since]
        while True:
            for name in names:
                yield Scope(where.tenant, name)
            names = await self._names(where.tenant, names[-1] if names else None)
            if not names:
                return

    async def _names(self, tenant: str, beyond: str | None) -> list[str]:
        """Return the tenant's next users by name."""
        redis = self._units.redis
        names, first = redis.key("names"), full_name(tenant, "")
        if await redis.call("ZCARD", names) < await redis.call("HLEN", redis.key("users")):
            await self._name_all()
        since = b"[" + first if beyond is None else b"(" + full_name(tenant, beyond)
        to = b"(" + first[:-1] + b"\1"
        found = await redis.call("ZRANGEBYLEX", names, since, to, "LIMIT", 0, _NAMES)
        return [name.removeprefix(first).decode() for name in found]

    async def _name_all(self) -> None:
        """List everybody by name: who came while an earlier version served is not yet."""
        redis, at = self._units.redis, b"0"
        while True:
            at, some = await redis.call("HSCAN", redis.key("users"), at, "COUNT", _LOOKED_AT)
            named = [full_name(*orjson.loads(each)) for each in pairs(some).values()]
            if named:
                await redis.call("ZADD", redis.key("names"), *(each for name in named for each in (0, name)))
            if int(at) == 0:
                return

    async def _row(self, scope: Scope, memory_id: str) -> MemoryRow | None:
        async def read(unit: Unit) -> dict[str, MemoryRow]:
            return await orders.shown(unit, await unit.table("memories").many((memory_id,)))

        return (await self._units.glance(scope, read)).get(memory_id)

    async def _edge(self, where: MemoryFilter, after: str) -> "_Place":
        """Return the place of the memory `after`, also if it has left the list since the last page."""
        scope = await self._scope(where, after)
        row = None if scope is None else await self._row(scope, after)
        if scope is None or row is None:
            raise NotFound("no memory has this id", param="after")
        return _Place(scope.user, row["seq"])


class _Place(NamedTuple):
    """Where a memory is in a list."""

    user: str
    seq: int


async def _counted(unit: Unit, types: frozenset[str] | None, of: str | None, now: float) -> int | None:
    """Return how many are current; None while some of them are being forgotten."""
    return None if orders.are_standing(unit) else await words.how_many(unit, types, of, now)


async def _history(unit: Unit, where: MemoryFilter, ids: Sequence[str]) -> dict[str, list[Event]]:
    memories, events = unit.table("memories"), unit.table("events")
    await unit.fetch((memories, ids), (events, ids))
    found: Mapping[str, MemoryRow] = await orders.shown(unit, await memories.many(ids))
    shown = [name for name, row in found.items() if rows.matches(row, where, inactive=True)]
    told: Mapping[str, list[EventRow]] = await events.many(shown)
    return {
        name: [Event(each["at"], each["action"], each["by"], each["content"]) for each in of_one]
        for name, of_one in told.items()
    }
