"""The VectorIndex in Redis itself: every user's points, searched exactly, in arrays that each replica keeps.

No further server is needed, and a write reaches all replicas: before each search a replica asks for the
number of the last change, and reads what has changed since its own. The vectors take Redis's memory (1.5 kB
for each memory); where that is too much, they belong in Qdrant.

Of one user:  points:<uid>                        hash: `changes` (the last one's number), `read-anew` (the
                                                  last one that the log does not tell), `g<generation>`s
              points:<uid>:log                    sorted set of memory ids by their last change
              points:<uid>:<generation>           hash: memory id → a point, its vector after a line break
              points:<uid>:<generation>:written   hash: memory id → its version
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import orjson

from proxy.domain.core import Search, Stamp
from proxy.domain.errors import StoreUnavailable
from proxy.storage.exact.index import Row, UserIndex, build
from proxy.storage.exact.postings import pack
from proxy.storage.redis.connection import Argument, Redis, pairs
from proxy.storage.vector_index import IndexUnavailable, Near, Point, Query

_IN_THREAD = 2000  # rows that would hold up the loop
_AT_ONCE = 1000
_DELETED_AT_ONCE = 250
_NEVER = Stamp(0, 0)
_UPSERT = """
local prefix, generation, log = KEYS[1] .. ':', ARGV[1], KEYS[1] .. ':log'
local points, versions = prefix .. generation, prefix .. generation .. ':written'
redis.call('HSET', KEYS[1], 'g' .. generation, '1')
local others = {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, 1) == 'g' and name ~= 'g' .. generation then
        others[#others + 1] = prefix .. string.sub(name, 2)
    end
end
for at = 2, #ARGV, 3 do
    local memory, written = ARGV[at], tonumber(ARGV[at + 1])
    if tonumber(redis.call('HGET', versions, memory) or '-1') <= written then
        redis.call('HSET', points, memory, ARGV[at + 2])
        redis.call('HSET', versions, memory, written)
        redis.call('ZADD', log, redis.call('HINCRBY', KEYS[1], 'changes', 1), memory)
        for _, other in ipairs(others) do
            redis.call('HDEL', other, memory)
            redis.call('HDEL', other .. ':written', memory)
        end
    end
end
"""
_DELETE = """
local prefix, log = KEYS[1] .. ':', KEYS[1] .. ':log'
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, 1) == 'g' then
        local points = prefix .. string.sub(name, 2)
        for at = 1, #ARGV do
            redis.call('HDEL', points, ARGV[at])
            redis.call('HDEL', points .. ':written', ARGV[at])
        end
    end
end
for at = 1, #ARGV do
    redis.call('ZADD', log, redis.call('HINCRBY', KEYS[1], 'changes', 1), ARGV[at])
end
"""
# Of one generation, without a line in the log: `_READ_ANEW` follows.
_DELETE_OLD = """
local points, versions, upto = KEYS[1], KEYS[1] .. ':written', tonumber(ARGV[1])
for at = 2, #ARGV do
    local written = redis.call('HGET', versions, ARGV[at])
    if written and tonumber(written) <= upto then
        redis.call('HDEL', points, ARGV[at])
        redis.call('HDEL', versions, ARGV[at])
    end
end
"""
_READ_ANEW = """
redis.call('UNLINK', KEYS[1] .. ':log')
redis.call('HSET', KEYS[1], 'read-anew', redis.call('HINCRBY', KEYS[1], 'changes', 1))
"""


@dataclass(slots=True)
class _Snapshot:
    """What a replica knows of one user's points of one generation."""

    change: int
    index: UserIndex
    numbers: dict[str, int]  # of memories, in the index
    ids: list[str] = field(default_factory=list)  # by number
    vectors_of: list[int | None] = field(default_factory=list)  # by number

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + 100 * len(self.ids)


class RedisIndex:
    """See VectorIndex for what every method guarantees."""

    def __init__(self, redis: Redis, *, cache_bytes: int = 256 * 2**20) -> None:
        self._redis, self._cache_bytes = redis, cache_bytes
        self._snapshots: OrderedDict[tuple[str, int], _Snapshot] = OrderedDict()
        self._held = 0
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Nothing is to be made."""

    async def upsert(self, generation: int, points: Sequence[Point]) -> None:
        by_user: dict[str, list[Argument]] = {}
        for point in points:
            by_user.setdefault(point.uid, []).extend((point.memory, point.written, _packed(point)))
        for uid, arguments in by_user.items():
            for start in range(0, len(arguments), 3 * _AT_ONCE):
                await self._run(_UPSERT, uid, generation, *arguments[start : start + 3 * _AT_ONCE])

    async def delete(self, uid: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _AT_ONCE):
            await self._run(_DELETE, uid, *ids[start : start + _AT_ONCE])

    async def delete_all(self, uid: str, written: int) -> None:
        for generation in await self._generations(uid):
            await self._delete_old(f"{self._key(uid)}:{generation}", written)
        await self._run(_READ_ANEW, uid)
        for key in [key for key in self._snapshots if key[0] == uid]:
            self._held -= self._snapshots.pop(key).nbytes

    async def vectors(self, generation: int, uid: str, ids: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        found: dict[str, tuple[int, bytes]] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            for name, value in zip(some, await self._points(uid, generation, some), strict=True):
                point = None if value is None else _unpacked(uid, name, value)
                if point is not None and point.vector is not None and point.vector_of is not None:
                    found[name] = (point.vector_of, point.vector)
        return found

    async def search(self, query: Query, generations: Collection[int]) -> list[Near]:
        search = Search(
            vector=query.vector, terms=tuple(query.weights), limit=query.limit, types=query.wanted.types,
            now=query.wanted.now, vectors=query.vectors,
        )  # fmt: skip
        near: list[Near] = []
        for generation in generations:
            snapshot = await self._current(query.uid, generation)
            if generation not in query.generations:
                search = Search(vector=None, terms=search.terms, limit=search.limit, types=search.types,
                                now=search.now)  # fmt: skip
            for found in snapshot.index.search(query.wanted.project, search):
                vector_of = snapshot.vectors_of[found.seq]
                near.append(Near(snapshot.ids[found.seq], vector_of, found.cosine, found.vector))
        return near

    async def close(self) -> None:
        self._snapshots.clear()

    # ------------------------------------------------------------ what a replica keeps
    async def _current(self, uid: str, generation: int) -> _Snapshot:
        """Return the user's points as of now."""
        # One at a time: the next snapshot grows in the room behind the last one.
        turn = self._turns.setdefault((uid, generation), asyncio.Lock())
        async with turn:
            snapshot = await self._next(uid, generation)
            self._keep((uid, generation), snapshot)
        return snapshot

    async def _next(self, uid: str, generation: int) -> _Snapshot:
        try:
            known = await self._redis.call("HMGET", self._key(uid), "changes", "read-anew")
            change, anew = (int(value or 0) for value in known)
            snapshot = self._snapshots.get((uid, generation))
            if snapshot is None or snapshot.change < anew:
                return await self._read(uid, generation, change)
            if snapshot.change < change:
                return await self._refreshed(snapshot, uid, generation, change)
        except StoreUnavailable as error:
            raise IndexUnavailable(str(error)) from error
        return snapshot

    async def _read(self, uid: str, generation: int, change: int) -> _Snapshot:
        held = await self._redis.hash(f"{self._key(uid)}:{generation}")
        points = [_unpacked(uid, name, value) for name, value in held.items()]
        snapshot = _Snapshot(change, build((), _NEVER), {})
        rows = [_row(snapshot, point) for point in points]
        if len(rows) > _IN_THREAD:
            snapshot.index = await asyncio.to_thread(build, rows, _NEVER)
        else:
            snapshot.index = build(rows, _NEVER)
        return snapshot

    async def _refreshed(self, known: _Snapshot, uid: str, generation: int, change: int) -> _Snapshot:
        """Return the snapshot with what has changed since."""
        since = f"({known.change}"
        names = [name.decode() for name in await self._redis.call(
            "ZRANGE", f"{self._key(uid)}:log", since, "+inf", "BYSCORE")]  # fmt: skip
        if len(names) > _AT_ONCE:
            return await self._read(uid, generation, change)
        values = await self._points(uid, generation, names) if names else []
        # Others may be searching in the old one.
        copy = _Snapshot(change, known.index, dict(known.numbers), [*known.ids], [*known.vectors_of])
        rows = []
        for name, value in zip(names, values, strict=True):
            if value is not None:
                rows.append(_row(copy, _unpacked(uid, name, value)))
            elif (number := copy.numbers.pop(name, None)) is not None:
                rows.append(
                    Row(number, "", None, None, current=False, vector=None, terms=b"", rewritten=True)
                )
        index = copy.index.changed(rows, _NEVER)
        if index is None:
            return await self._read(uid, generation, change)
        copy.index = index
        return copy

    def _keep(self, key: tuple[str, int], snapshot: _Snapshot) -> None:
        if (before := self._snapshots.pop(key, None)) is not None:
            self._held -= before.nbytes
        self._snapshots[key] = snapshot
        self._held += snapshot.nbytes
        while self._held > self._cache_bytes and len(self._snapshots) > 1:
            _, oldest = self._snapshots.popitem(last=False)
            self._held -= oldest.nbytes

    # ------------------------------------------------------------ keys
    async def _points(self, uid: str, generation: int, names: Sequence[str]) -> list[bytes | None]:
        try:
            return list(await self._redis.call("HMGET", f"{self._key(uid)}:{generation}", *names))
        except StoreUnavailable as error:
            raise IndexUnavailable(str(error)) from error

    async def _generations(self, uid: str) -> list[str]:
        try:
            names = await self._redis.call("HKEYS", self._key(uid))
        except StoreUnavailable as error:
            raise IndexUnavailable(str(error)) from error
        return [name[1:].decode() for name in names if name[:1] == b"g"]

    async def _delete_old(self, points: str, written: int) -> None:
        """Delete what was not written after this version: some at a time, since Redis serves nobody else
        meanwhile."""
        cursor = b"0"
        try:
            while True:
                cursor, found = await self._redis.call(
                    "HSCAN", f"{points}:written", cursor, "COUNT", _DELETED_AT_ONCE
                )
                old = [name for name, version in pairs(found).items() if int(version) <= written]
                for start in range(0, len(old), _DELETED_AT_ONCE):
                    some = old[start : start + _DELETED_AT_ONCE]
                    await self._redis.script(_DELETE_OLD, [points], written, *some)
                if int(cursor) == 0:
                    return
        except StoreUnavailable as error:
            raise IndexUnavailable(str(error)) from error

    async def _run(self, script: str, uid: str, *arguments: Argument) -> None:
        try:
            await self._redis.script(script, [self._key(uid)], *arguments)
        except StoreUnavailable as error:
            raise IndexUnavailable(str(error)) from error

    def _key(self, uid: str) -> str:
        return self._redis.key(f"points:{uid}")


def _row(snapshot: _Snapshot, point: Point) -> Row:
    """Return the point as the index reads it, under a number of its own in the snapshot."""
    number = snapshot.numbers.get(point.memory)
    if number is None:
        number = snapshot.numbers[point.memory] = len(snapshot.ids)
        snapshot.ids.append(point.memory)
        snapshot.vectors_of.append(None)
    snapshot.vectors_of[number] = point.vector_of
    return Row(
        number, point.type, point.project, point.expires_at, current=point.current, vector=point.vector,
        terms=pack(point.terms.split()), rewritten=True,
    )  # fmt: skip


def _packed(point: Point) -> bytes:
    head = orjson.dumps(
        [
            point.written,
            point.project,
            point.type,
            point.current,
            point.expires_at,
            point.vector_of,
            point.terms,
        ]
    )
    return head + b"\n" + (point.vector or b"")


def _unpacked(uid: str, memory: str, value: bytes) -> Point:
    head, _, vector = value.partition(b"\n")
    written, project, type_, current, expires_at, vector_of, terms = orjson.loads(head)
    return Point(
        uid=uid, memory=memory, project=project, type=type_, current=current, expires_at=expires_at,
        written=written, vector_of=vector_of, vector=vector or None, terms=terms,
    )  # fmt: skip
