"""The periodic sweep: exchanges whose replica died, sessions that wait for a trigger, and sessions that
their client has ended.
"""

import asyncio
import secrets
from collections.abc import Collection, Sequence

from proxy.domain.core import Scope
from proxy.domain.lanes import rest_of
from proxy.domain.ports import Trigger
from proxy.storage.redis import exchanges, queue, waiting
from proxy.storage.redis.connection import pairs
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.layout import ExchangeRow, SessionRow, sid, storable
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.redis.waiting import Waiting

_AT_ONCE = 500  # sessions that one round trip of a sweep brings
_TURN_S = 30  # a sweep that has said nothing for so long is dead
_PATIENCE_S = 5.0
_ASK_S = 0.05
# Only who has the turn keeps it, or gives it back.
_KEEP = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('EXPIRE', KEYS[1], ARGV[2]) end return 1"
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"


class Sweep:
    """One sweep over what all users share. Of several replicas' one goes at a time."""

    def __init__(self, units: Units, instance: Instance) -> None:
        self._units, self._redis, self._instance = units, units.redis, instance
        self._key, self._token = units.redis.key("sweeping"), secrets.token_hex(8)

    async def __call__(self, now: float, trigger: Trigger) -> int:
        """Return how many jobs were made: none where another's sweep did not come to its end."""
        if not await self._has_turn():
            return 0
        try:
            await self._close_abandoned()
            return await self._offer_all(now, trigger)
        finally:
            await self._redis.call("EVAL", _GIVE_BACK, 1, self._key, self._token)

    async def _has_turn(self) -> bool:
        for _ in range(int(_PATIENCE_S / _ASK_S)):
            if await self._redis.call("SET", self._key, self._token, "NX", "EX", _TURN_S):
                return True
            await asyncio.sleep(_ASK_S)
        return False

    async def _close_abandoned(self) -> None:
        held = await self._redis.hash(self._redis.key("open"))
        dead = await self._instance.dead({name.decode() for name in held.values()})
        left: dict[str, list[str]] = {}
        for field, name in held.items():
            if name.decode() in dead:
                owner, _, exchange_id = field.partition(" ")
                left.setdefault(owner, []).append(exchange_id)
        for owner, scope in (await self._units.scopes(left)).items():
            await self._close(scope, left[owner], dead)

    async def _close(self, scope: Scope, exchange_ids: Sequence[str], dead: Collection[str]) -> None:
        async def work(unit: Unit) -> None:
            jobs = await Queue.of(unit)
            places: dict[str, tuple[str, int]] = await unit.table("where").many(exchange_ids)
            for exchange_id in exchange_ids:
                await _close_dead(unit, jobs, exchange_id, places.get(exchange_id), dead)
            await jobs.settle()

        await self._units.write(scope, work)

    async def _offer_all(self, now: float, trigger: Trigger) -> int:
        cursor, made = b"0", 0
        while True:
            cursor, answer = await self._redis.call(
                "HSCAN", self._redis.key(waiting.HASH), cursor, "COUNT", _AT_ONCE
            )
            for field, value in pairs(answer).items():
                made += await self._offer(waiting.decoded(field, value), trigger, now)
            if int(cursor) == 0:
                return made
            await self._redis.call("EVAL", _KEEP, 1, self._key, self._token, _TURN_S)

    async def _offer(self, found: Waiting, trigger: Trigger, now: float) -> bool:
        """Make the job that is wanted for the session, unless there is no need any more."""
        wanted = queue.wanted_of(found, trigger)
        if wanted is None:
            return False

        async def work(unit: Unit) -> bool:
            jobs = await Queue.of(unit)
            jobs.touch(found.sid)
            by_now = None if jobs.pending(found.sid) else (await jobs.waiting((found.sid,))).get(found.sid)
            asked = wanted if by_now == found else by_now and queue.wanted_of(by_now, trigger)
            if asked:
                await jobs.put(found.sid, asked, at=now)
            await jobs.settle()
            return bool(asked)

        return await self._units.write(found.state.scope, work)


async def end(unit: Unit, instance: Instance, scope: Scope, name: str, at: float) -> int:
    """Queue at once what the user's sessions of this name hold, and what is still being answered in them
    as soon as it is; return how many exchanges. A later exchange takes a session up again."""
    sessions = await _named(unit, scope, name)
    if not sessions:
        return 0
    jobs = await Queue.of(unit)
    await _close_those_of_dead(unit, instance, jobs, sessions)
    count = 0
    rows: dict[str, SessionRow] = await unit.table("sessions").many(sessions)
    for ours, session in rows.items():
        ended: SessionRow = {**session, "ended": True}
        unit.table("sessions").put(ours, ended)
        jobs.touch(ours)
        count += len(ended["open"])
    for found in (await jobs.waiting(sessions)).values():
        await jobs.put(found.sid, rest_of(found.state, closing=True), at=at)
        jobs.hurry(found.sid)
        count += found.state.pending
    await jobs.settle()
    return count


async def _named(unit: Unit, scope: Scope, name: str) -> dict[str, SessionRow]:
    """Return the user's sessions of this name: in the scope's project, or in any where it names none."""
    if scope.project is not None:
        found: dict[str, SessionRow] = await unit.table("sessions").many((sid(scope.project, name),))
        return found
    rows: dict[str, SessionRow] = await unit.table("sessions").all()
    return {ours: row for ours, row in rows.items() if row["name"] == storable(name)}


async def _close_those_of_dead(
    unit: Unit, instance: Instance, jobs: Queue, sessions: dict[str, SessionRow]
) -> None:
    being_answered: list[tuple[str, ExchangeRow]] = [
        (ours, row)
        for ours, session in sessions.items()
        for row in (await exchanges.table(unit, ours).many(map(str, session["open"]))).values()
    ]
    dead = await instance.dead({row["instance"] for _, row in being_answered})
    for ours, row in being_answered:
        if row["instance"] in dead:
            await exchanges.close(unit, jobs, ours, row)


async def _close_dead(
    unit: Unit, jobs: Queue, exchange_id: str, place: tuple[str, int] | None,
    dead: Collection[str],
) -> None:  # fmt: skip
    row: ExchangeRow | None = None
    if place is not None:
        row = await exchanges.table(unit, place[0]).get(str(place[1]))
    if place is None or row is None or not row["open"]:
        unit.share("HDEL", unit.redis.key("open"), f"{unit.uid} {exchange_id}")
    elif row["instance"] in dead:  # nobody has sent the request again meanwhile
        await exchanges.close(unit, jobs, place[0], row)
