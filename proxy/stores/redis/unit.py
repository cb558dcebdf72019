"""One user's data as a unit of change: tables of rows, read as they are needed and written all at once.

A unit of work reads freely and writes into its own copy. What it wrote becomes everybody's in one step, if
nobody has changed the user's data since it began; else the work is done again from the start. There is no
lock that a dead process could hold, and no writer that could come late.
"""

import asyncio
import hashlib
import random
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import orjson

from proxy.domain import Scope, Stamp
from proxy.errors import StoreUnavailable
from proxy.stores.redis.connection import Argument, Command, Redis

T = TypeVar("T")

_TRIES = 64
_MOST_PAUSE_S = 0.05
_AT_ONCE = 1000  # rows a command: Redis's scripts take no more than a few thousand arguments
_GONE = object()


def uid(scope: Scope) -> str:
    """Return what stands for the user in keys: their names are in rows only."""
    text = f"{scope.tenant}\0{scope.user}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class Table:
    """A hash of rows by name. What `get` returns is the unit's own copy: a changed row counts once it is
    `put`."""

    def __init__(self, redis: Redis, key: str, *, raw: bool) -> None:
        self._redis, self._key, self._raw = redis, key, raw
        self._rows: dict[str, Any] = {}
        self._whole = False  # all rows are in `_rows`
        self._cleared = False
        self._changed: set[str] = set()

    async def get(self, name: str) -> Any:
        """Return a row, None if there is none."""
        return (await self.many((name,))).get(name)

    async def many(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of the rows that there are, in the order of the names."""
        wanted = list(dict.fromkeys(names))
        missing = [] if self._whole else [name for name in wanted if name not in self._rows]
        for start in range(0, len(missing), _AT_ONCE):
            portion = missing[start : start + _AT_ONCE]
            values = await self._redis.call("HMGET", self._key, *portion)
            for name, value in zip(portion, values, strict=True):
                self._rows[name] = _GONE if value is None else self._decoded(value)
        found = {name: self._rows.get(name, _GONE) for name in wanted}
        return {name: row for name, row in found.items() if row is not _GONE}

    async def all(self) -> dict[str, Any]:
        """Return all rows, in no order."""
        if not self._whole:
            stored = await self._redis.hash(self._key)
            for name in stored.keys() - self._rows.keys():
                self._rows[name] = self._decoded(stored[name])
            self._whole = True
        return {name: row for name, row in self._rows.items() if row is not _GONE}

    def put(self, name: str, row: Any) -> None:
        """Write a row."""
        self._rows[name] = row
        self._changed.add(name)

    def drop(self, name: str) -> None:
        """Delete a row, if there is one."""
        self.put(name, _GONE)

    def clear(self) -> None:
        """Delete all rows."""
        self._rows, self._changed = {}, set()
        self._whole = self._cleared = True

    @property
    def is_changed(self) -> bool:
        return self._cleared or bool(self._changed)

    def commands(self) -> list[Command]:
        """Return what writes the changes down."""
        found: list[Command] = [("UNLINK", self._key)] if self._cleared else []
        gone = [name for name in self._changed if self._rows[name] is _GONE]
        kept = [name for name in self._changed if self._rows[name] is not _GONE]
        for start in range(0, len(gone), _AT_ONCE):
            found.append(("HDEL", self._key, *gone[start : start + _AT_ONCE]))
        for start in range(0, len(kept), _AT_ONCE):
            command: list[Argument] = ["HSET", self._key]
            for name in kept[start : start + _AT_ONCE]:
                command += [name, self._encoded(self._rows[name])]
            found.append(command)
        return found

    def _encoded(self, row: Any) -> bytes:
        return bytes(row) if self._raw else orjson.dumps(row)

    def _decoded(self, value: bytes) -> Any:
        return value if self._raw else orjson.loads(value)


class Unit:
    """One attempt of a unit of work on a user's data."""

    def __init__(self, redis: Redis, scope: Scope, owner: Mapping[str, str]) -> None:
        self._redis, self.scope, self.uid = redis, scope, uid(scope)
        self.is_new = not owner
        self._numbers = {name: int(value) for name, value in owner.items() if name not in ("tenant", "user")}
        self.revision = self._numbers.get("revision", 0)
        self._changed: set[str] = set()
        self._tables: dict[str, Table] = {}
        self._wiped: list[str] = []
        self._shared: list[Command] = []

    @classmethod
    async def begin(cls, redis: Redis, scope: Scope) -> "Unit":
        """Return the user's data as they are now."""
        owner = await redis.hash(_owner_key(redis, uid(scope)))
        return cls(redis, scope, {name: value.decode() for name, value in owner.items()})

    # ------------------------------------------------------------ the user
    @property
    def stamp(self) -> Stamp:
        return Stamp(self.number("generation"), self.number("version"))

    def number(self, name: str) -> int:
        """Return one of the user's counters, 0 at first."""
        return self._numbers.get(name, 0)

    def set_number(self, name: str, value: int) -> None:
        self._numbers[name] = value
        self._changed.add(name)

    def next(self) -> int:
        """Return a number that no row of this user has had: it orders what comes in."""
        self.set_number("last", self.number("last") + 1)
        return self.number("last")

    # ------------------------------------------------------------ rows
    def table(self, name: str) -> Table:
        """Return a table of JSON values."""
        return self._table(name, raw=False)

    def blobs(self, name: str) -> Table:
        """Return a table of bytes."""
        return self._table(name, raw=True)

    def share(self, *command: Argument) -> None:
        """Send a command on keys that all users share (Redis.key) with the commit."""
        self._shared.append(command)

    async def wipe(self, *, keep: Iterable[str] = ()) -> None:
        """Delete all tables but those to keep, with what this unit has written into them."""
        names = {name.decode() for name in await self._redis.call("SMEMBERS", self._key("tables"))}
        gone = (names | self._tables.keys()) - set(keep)
        for name in gone:
            self._tables.pop(name, None)
        self._wiped += [name for name in gone if name not in self._wiped]

    async def is_stale(self) -> bool:
        """True if somebody has changed the user's data since: what was read may not fit together."""
        now = await self._redis.call("HGET", _owner_key(self._redis, self.uid), "revision")
        return int(now or 0) != self.revision

    @property
    def is_changed(self) -> bool:
        tables = any(table.is_changed for table in self._tables.values())
        return bool(self._changed or self._wiped or self._shared) or tables

    async def commit(self) -> bool:
        """Write everything down; False, with nothing written, if the user's data have changed since."""
        owner: list[Argument] = ["HSET", _owner_key(self._redis, self.uid)]
        if self.is_new:
            owner += ["tenant", _storable(self.scope.tenant), "user", _storable(self.scope.user)]
        for name in self._changed:
            owner += [name, self._numbers[name]]
        commands: list[Command] = [owner] if len(owner) > 2 else []
        for start in range(0, len(self._wiped), _AT_ONCE):
            names = self._wiped[start : start + _AT_ONCE]
            commands.append(("UNLINK", *map(self._key, names)))
            commands.append(("SREM", self._key("tables"), *names))
        for name, table in self._tables.items():
            if table.is_changed:
                commands.append(("SADD", self._key("tables"), name))
                commands += table.commands()
        return await self._redis.commit(
            _owner_key(self._redis, self.uid), self.revision, commands + self._shared
        )

    def _table(self, name: str, *, raw: bool) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self._redis, self._key(name), raw=raw)
            if name in self._wiped:
                self._tables[name].clear()
        return self._tables[name]

    def _key(self, name: str) -> str:
        return f"{self._redis.prefix}u:{self.uid}:{name}"


class Units:
    """All users' data, for one process."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        # The process's own writers of one user wait for each other; those of other processes meet at commit.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def read(self, scope: Scope, work: Callable[[Unit], Awaitable[T]]) -> T:
        """Return the work's result from one state of the user's data."""
        for _ in range(_TRIES):
            unit = await Unit.begin(self.redis, scope)
            try:
                result = await work(unit)
            except Exception:
                if await unit.is_stale():
                    continue  # of two states that do not fit together, anything may come
                raise
            assert not unit.is_changed, "a read has written"
            if not await unit.is_stale():
                return result
        raise StoreUnavailable("the user's data keep changing")

    async def glance(self, scope: Scope, work: Callable[[Unit], Awaitable[T]]) -> T:
        """Return the work's result, for work that reads one thing only."""
        return await work(await Unit.begin(self.redis, scope))

    async def write(self, scope: Scope, work: Callable[[Unit], Awaitable[T]]) -> T:
        """Do the work and commit it, durable on return. It may be done several times, and counts once."""
        turn = self._turns.setdefault(uid(scope), asyncio.Lock())
        async with turn:
            for tried in range(_TRIES):
                unit = await Unit.begin(self.redis, scope)
                try:
                    result = await work(unit)
                except Exception:
                    if await unit.is_stale():
                        continue
                    raise
                if await (unit.commit() if unit.is_changed else _fits(unit)):
                    return result
                await asyncio.sleep(random.random() * min(_MOST_PAUSE_S, 0.001 * 2**tried))
        raise StoreUnavailable("the user's data keep changing")


async def _fits(unit: Unit) -> bool:
    return not await unit.is_stale()


def _owner_key(redis: Redis, user: str) -> str:
    return f"{redis.prefix}u:{user}:owner"


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
