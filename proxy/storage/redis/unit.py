"""One user's data as a unit of change: tables of rows, read as they are needed and written all at once.

A unit of work reads freely and writes into its own copy. What it wrote becomes everybody's in one step, if
nobody has changed the user's data since it began; else the work is done again from the start. There is no
lock that a dead process could hold, and no writer that could come late.

A user's tables have a home: a part of their keys. Who moves out leaves all of them behind at once, where
nobody looks for them any more (clearing.py).
"""

import asyncio
import hashlib
import random
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import orjson

from proxy.domain.core import Scope, Stamp
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.connection import Argument, Command, Redis
from proxy.storage.redis.table import AT_ONCE, Saved, Table

T = TypeVar("T")

_TRIES = 64
_MOST_PAUSE_S = 0.05
LASTING = frozenset(("receipts", "forgets"))
"""Tables that a user takes along: they have no home but the user."""


def uid(scope: Scope) -> str:
    """Return what stands for the user in keys: their names are in rows only."""
    text = f"{scope.tenant}\0{scope.user}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def full_name(tenant: str, user: str) -> bytes:
    """Return by what a tenant's users are found in order of their names, which Redis keeps by bytes."""
    return f"{tenant}\0{user}".encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a unit had written at some point."""

    numbers: dict[str, int]
    changed: set[str]
    tables: dict[str, Saved]
    shared: int


class Unit:
    """One attempt of a unit of work on a user's data. `redis`: for the keys that all users share."""

    def __init__(self, redis: Redis, scope: Scope, owner: Mapping[str, str]) -> None:
        self.redis, self.scope, self.uid = redis, scope, uid(scope)
        self.is_new = not owner
        self._numbers = {name: int(value) for name, value in owner.items() if name not in ("tenant", "user")}
        self.revision = self._numbers.get("revision", 0)
        self._changed: set[str] = set()
        self._tables: dict[str, Table] = {}
        self._wiped: list[str] = []
        self._shared: list[Command] = []
        self.frees = False  # it gives back what it takes: to be committed also where Redis is full

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

    def numbers(self, prefix: str) -> dict[str, int]:
        """Return the counters whose names begin so."""
        return {name: value for name, value in self._numbers.items() if name.startswith(prefix)}

    def set_number(self, name: str, value: int) -> None:
        self._numbers[name] = value
        self._changed.add(name)

    def next(self) -> int:
        """Return a number that no row of this user has had: it orders what comes in."""
        self.set_number("last", self.number("last") + 1)
        return self.number("last")

    # ------------------------------------------------------------ rows
    @property
    def home(self) -> str:
        """What stands for the user in the keys of tables."""
        return home_of(self.uid, self.number("home"))

    def move_out(self) -> str:
        """Leave all tables but the LASTING ones behind as they are stored, and begin without any; return the
        home that was left."""
        left = self.home
        self.set_number("home", self.number("home") + 1)
        self._tables = {name: table for name, table in self._tables.items() if name in LASTING}
        return left

    def table(self, name: str) -> Table:
        """Return a table of JSON values."""
        return self._table(name, raw=False)

    def blobs(self, name: str) -> Table:
        """Return a table of bytes."""
        return self._table(name, raw=True)

    async def fetch(self, *wanted: tuple[Table, Iterable[str] | None]) -> None:
        """Read rows of several tables (None: all of a table) in one go, before they are asked for."""
        asked = [(table, command) for table, names in wanted if (command := table.wanting(names))]
        answers = await self.redis.pipeline([command for _, command in asked])
        for (table, command), answer in zip(asked, answers, strict=True):
            table.take(command, answer)

    def key(self, name: str) -> str:
        """Return the key of one of the user's tables, for what is no hash. It has to be noted in `tables`."""
        return self._key(name)

    def share(self, *command: Argument) -> None:
        """Send a command on keys that all users share (Redis.key) with the commit."""
        if not self._shared or self._shared[-1] != command:  # of many rows, each says the same
            self._shared.append(command)

    async def wipe(self, *, keep: Iterable[str] = ()) -> None:
        """Delete all tables but those to keep, with what this unit has written into them."""
        names = {name.decode() for name in await self.redis.call("SMEMBERS", self._key("tables"))}
        gone = (names | self._tables.keys()) - set(keep)
        for name in gone:
            self._tables.pop(name, None)
        self._wiped += [name for name in gone if name not in self._wiped]

    def savepoint(self) -> Savepoint:
        """Return a point that `rollback` goes back to; nothing may be wiped in between."""
        tables = {name: table.saved() for name, table in self._tables.items()}
        return Savepoint(dict(self._numbers), set(self._changed), tables, len(self._shared))

    def rollback(self, to: Savepoint) -> None:
        """Take back what was written since."""
        self._numbers, self._changed = dict(to.numbers), set(to.changed)
        for name, table in self._tables.items():
            table.restore(to.tables.get(name))
        del self._shared[to.shared :]

    async def is_stale(self) -> bool:
        """True if somebody has changed the user's data since: what was read may not fit together."""
        now = await self.redis.call("HGET", _owner_key(self.redis, self.uid), "revision")
        return int(now or 0) != self.revision

    @property
    def is_changed(self) -> bool:
        tables = any(table.is_changed for table in self._tables.values())
        return bool(self._changed or self._wiped or self._shared) or tables

    async def commit(self) -> bool:
        """Write everything down; False, with nothing written, if the user's data have changed since."""
        owner: list[Argument] = ["HSET", _owner_key(self.redis, self.uid)]
        commands: list[Command] = []
        if self.is_new:
            tenant, user = _storable(self.scope.tenant), _storable(self.scope.user)
            owner += ["tenant", tenant, "user", user]
            commands.append(("HSET", self.redis.key("users"), self.uid, orjson.dumps([tenant, user])))
            commands.append(("ZADD", self.redis.key("names"), 0, full_name(tenant, user)))
        for name in self._changed:
            owner += [name, self._numbers[name]]
        if len(owner) > 2:
            commands.append(owner)
        for start in range(0, len(self._wiped), AT_ONCE):
            names = self._wiped[start : start + AT_ONCE]
            commands.append(("UNLINK", *map(self._key, names)))
            commands.append(("SREM", self._key("tables"), *names))
        for name, table in self._tables.items():
            if table.is_changed:
                commands.append(("SREM" if table.is_gone else "SADD", self._key("tables"), name))
                commands += table.commands()
        return await self.redis.commit(
            _owner_key(self.redis, self.uid), self.revision, commands + self._shared, though_full=self.frees
        )

    def _table(self, name: str, *, raw: bool) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self.redis, self._key(name), raw=raw)
            if name in self._wiped:
                self._tables[name].clear()
        return self._tables[name]

    def _key(self, name: str) -> str:
        return key_of(self.redis, self.uid if name in LASTING else self.home, name)


class Units:
    """All users' data, for one process."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        # The process's own writers of one user wait for each other; those of other processes meet at commit.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def scopes(self, uids: Iterable[str]) -> dict[str, Scope]:
        """Return whose data they are, by uid, as far as they are known."""
        wanted = list(dict.fromkeys(uids))
        if not wanted:
            return {}
        named = await self.redis.call("HMGET", self.redis.key("users"), *wanted)
        return {each: Scope(*orjson.loads(names)) for each, names in zip(wanted, named, strict=True) if names}

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


def home_of(user: str, number: int) -> str:
    """Return a user's home, the first of which is number 0."""
    return f"{user}.{number}" if number else user


def key_of(redis: Redis, home: str, name: str) -> str:
    """Return the key of one of a user's tables."""
    return f"{redis.prefix}u:{home}:{name}"


def _owner_key(redis: Redis, user: str) -> str:
    return key_of(redis, user, "owner")


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
