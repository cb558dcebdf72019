"""Keep the index of vectors and words consistent with the rows, which are the truth.

A commit notes, together with the rows, what the index has to take in (`unindexed`) or to drop (`obsolete`).
After the commit the same process carries that out; if it dies, or the index is away, any process does it
later: `catch_up`. A memory is read again after its point was written: if it changed meanwhile, the point is
written anew. What is erased is erased a second time some time later: a process that was slow, not dead,
might have written its point in between. A point that disagrees with its row is ignored: see search.py.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.domain.ports import Clock
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.vector_index import IndexUnavailable, Point, VectorIndex

OWN_S = 5.0  # for so long, it is the business of the process that wrote
AGAIN_S = 60.0
_AT_ONCE = 500  # points in one request
_USERS_AT_ONCE = 100
_MOST = 5000  # of a user in one round
_ROUNDS = 5
_EVERYTHING = ""  # in place of a memory's id: all that was written up to a version


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done in the index for one user, as the rows were."""

    uid: str
    points: Mapping[int, Sequence[Point]]  # by generation
    obsolete: Sequence[str]
    upto: int | None  # all that was written up to this version is obsolete


class Indexing:
    """Makes the index agree, for one process."""

    def __init__(self, units: Units, index: VectorIndex, clock: Clock = time.time) -> None:
        self._units, self._index, self._clock = units, index, clock

    async def settle(self, scope: Scope) -> bool:
        """Make the index agree with what was just committed; False if that has to be done later."""
        try:
            await self._settle(scope, None)
        except (IndexUnavailable, StoreUnavailable):
            return False  # who was asked has said so; what is committed is committed
        return True

    async def catch_up(self) -> int:
        """Make the index agree where another process did not, or could not; return for how many users."""
        redis, now, done = self._units.redis, self._clock(), 0
        while True:
            key, some = redis.key("unindexed"), ("LIMIT", 0, _USERS_AT_ONCE)
            due = await redis.call("ZRANGE", key, "-inf", now, "BYSCORE", *some)
            scopes = await self._units.scopes(uid.decode() for uid in due)
            for scope in scopes.values():
                try:
                    await self._settle(scope, now)
                except IndexUnavailable:
                    return done
            done += len(scopes)
            if len(due) < _USERS_AT_ONCE:
                return done

    async def _settle(self, scope: Scope, now: float | None) -> None:
        """Do what is due by now; None: what was never tried."""
        for _ in range(_ROUNDS):
            plan = await self._units.glance(scope, lambda unit: _planned(unit, now))
            await self._carry_out(plan)
            noted = partial(_note, redis=self._units.redis, plan=plan, now=self._clock())
            if await self._units.write(scope, noted):
                return

    async def _carry_out(self, plan: _Plan) -> None:
        for generation, points in plan.points.items():
            for start in range(0, len(points), _AT_ONCE):
                some = await self._with_vectors(generation, points[start : start + _AT_ONCE])
                await self._index.upsert(generation, some)
        for start in range(0, len(plan.obsolete), _AT_ONCE):
            await self._index.delete(plan.uid, plan.obsolete[start : start + _AT_ONCE])
        if plan.upto is not None:
            await self._index.delete_all(plan.uid, plan.upto)

    async def _with_vectors(self, generation: int, points: Sequence[Point]) -> list[Point]:
        """Return the points with the vectors that the index has, where Redis no longer has them."""
        lacking = [p.memory for p in points if p.vector is None and p.vector_of is not None]
        if not lacking:
            return list(points)
        known = await self._index.vectors(generation, points[0].uid, lacking)
        return [
            replace(p, vector=known[p.memory][1])
            if p.memory in known and p.vector is None and known[p.memory][0] == p.vector_of
            else p
            for p in points
        ]


def let_go_of_all(unit: Unit, *, at: float) -> None:
    """Have the index let go of all that the user has in it, after the user's tables were wiped."""
    upto = unit.stamp.version
    unit.table("obsolete").put(_EVERYTHING, {"due": at + OWN_S, "again": False, "upto": upto})
    unit.share("ZADD", unit.redis.key("unindexed"), "LT", at + OWN_S, unit.uid)


async def _planned(unit: Unit, now: float | None) -> _Plan:
    """Return what is due. Had the user changed meanwhile, `_note` finds out."""
    unindexed, obsolete = unit.table("unindexed"), unit.table("obsolete")
    await unit.fetch((unindexed, None), (obsolete, None))
    listed = [name for name, due in (await unindexed.all()).items() if now is None or due <= now][:_MOST]
    gone: dict[str, Any] = {
        name: entry
        for name, entry in (await obsolete.all()).items()
        if (not entry["again"] if now is None else entry["due"] <= now)
    }
    everything = gone.pop(_EVERYTHING, None)
    memories, vectors = unit.table("memories"), unit.blobs("vectors")
    await unit.fetch((memories, listed), (vectors, listed))
    rows: dict[str, MemoryRow] = await memories.many(listed)
    kept = await vectors.many(listed)
    points: dict[int, list[Point]] = {}
    for name, row in rows.items():
        points.setdefault(row["generation"], []).append(_point(unit.uid, name, row, kept.get(name)))
    return _Plan(unit.uid, points, list(gone), everything and everything["upto"])


def _point(uid: str, memory_id: str, row: MemoryRow, vector: bytes | None) -> Point:
    return Point(
        uid=uid, memory=memory_id, project=row["project"], type=row["type"], current=not row["archived"],
        expires_at=row["expires_at"], written=row["written"], vector_of=row["vector"], vector=vector,
        terms=row["terms"],
    )  # fmt: skip


async def _note(unit: Unit, *, redis: Redis, plan: _Plan, now: float) -> bool:
    """Note what was done; return whether that was all."""
    unindexed, obsolete = unit.table("unindexed"), unit.table("obsolete")
    await unit.fetch((unindexed, None), (obsolete, None))
    written = {point.memory: point for points in plan.points.values() for point in points}
    rows: dict[str, MemoryRow] = await unit.table("memories").many(written)
    gone = await obsolete.all()
    for name, point in written.items():
        row = rows.get(name)
        if row is None or row["superseded_by"] is not None:
            # Whoever erased it may have done so in the index before our point came.
            obsolete.put(name, {"due": now, "again": False})
        elif _point(point.uid, name, row, point.vector) == point:
            unindexed.drop(name)
            unit.blobs("vectors").drop(name)
    for name in (*plan.obsolete, *([] if plan.upto is None else [_EVERYTHING])):
        if (entry := gone.get(name)) is None:
            continue
        if entry["again"]:
            obsolete.drop(name)
        else:
            obsolete.put(name, {**entry, "due": now + AGAIN_S, "again": True})
    listed, rest = await unindexed.all(), (await obsolete.all()).values()
    due = min([*listed.values(), *(entry["due"] for entry in rest)], default=None)
    key = redis.key("unindexed")
    unit.share(*(("ZREM", key, unit.uid) if due is None else ("ZADD", key, due, unit.uid)))
    return not listed and all(entry["again"] for entry in rest)
