"""The JobQueue over Redis: see ports.JobQueue for what every method guarantees.

A claim asks what all users share: which leases are lost, what is due by now, and who is next. What it then
does is a unit of work of that one user, so that of several claims one succeeds, and the others look again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import orjson

from proxy.domain.core import Batch, Job, Scope
from proxy.domain.errors import NotFound
from proxy.domain.lanes import LANES
from proxy.domain.oversight import JOB_STATES, JobInfo, JobState, QueueCounts
from proxy.storage.redis import exchanges, overview, queue, waiting
from proxy.storage.redis.connection import Command, pairs, scored
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.layout import SessionRow, UnreadRow
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.unit import Unit, Units

_RIPE_AT_ONCE = 50  # jobs put back whose time has come; the next claim sees to more
_LOOK_AT = 64  # users of a lane, the first whom nobody else is about to serve
_RESERVED_MS = 2000  # then a claim that reserved a user has died
# A reservation spares claims the way to a user whom another gets. What decides is the unit of work.
_NEXT = """
for _, due in ipairs(KEYS) do
    for _, owner in ipairs(redis.call('ZRANGE', due, 0, ARGV[2] - 1)) do
        if redis.call('SET', ARGV[1] .. owner, '1', 'NX', 'PX', ARGV[3]) then return owner end
    end
end
return false
"""
_LISTED_AT_ONCE = 500


class RedisJobs:
    """Jobs of all replicas."""

    def __init__(self, units: Units, instance: Instance) -> None:
        self._units, self._redis, self._instance = units, units.redis, instance

    # ------------------------------------------------------------ claiming
    async def claim(self, now: float, lease_s: float, *, upto_lane: int = 3) -> Job | None:
        key = self._redis.key
        running, ripe, first = await self._redis.pipeline(
            [
                ("HGETALL", key("running")),
                ("ZRANGEBYSCORE", key("later"), "-inf", now, "LIMIT", 0, _RIPE_AT_ONCE),
                self._next(upto_lane),
            ]
        )
        lost = await self._reclaim(running, now)
        if await self._ripen([id_.decode() for id_ in ripe], now) or lost:
            if first is not None:
                await self._redis.call("DEL", self._reservation(first.decode()))
            first = await self._redis.call(*self._next(upto_lane))
        while first is not None:
            if (job := await self._claim(first.decode(), now, lease_s, upto_lane)) is not None:
                return job
            first = await self._redis.call(*self._next(upto_lane))  # another was quicker
        return None

    def _next(self, upto_lane: int) -> Command:
        """Return what reserves the most urgent user who has something due."""
        due = [self._redis.key(f"due:{lane}") for lane in LANES if lane <= upto_lane]
        return ("EVAL", _NEXT, len(due), *due, self._reservation(""), _LOOK_AT, _RESERVED_MS)

    def _reservation(self, owner: str) -> str:
        return self._redis.key(f"claiming:{owner}")

    async def _claim(self, owner: str, now: float, lease_s: float, upto_lane: int) -> Job | None:
        scope = (await self._units.scopes((owner,))).get(owner)
        if scope is None:
            await self._redis.pipeline([("ZREM", self._redis.key(f"due:{lane}"), owner) for lane in LANES])
            return None

        async def work(unit: Unit) -> Job | None:
            jobs = await Queue.of(unit)
            job = await jobs.claim(self._instance.id, now, lease_s, upto_lane)
            await jobs.settle()
            unit.share("DEL", self._reservation(owner))
            return job

        return await self._units.write(scope, work)

    async def _reclaim(self, running: object, now: float) -> bool:
        """Put back the jobs whose lease ran out or whose replica died; return whether there were any."""
        leases = {id_: orjson.loads(lease) for id_, lease in pairs(running).items()}
        dead = await self._instance.dead({instance for _, instance in leases.values()})
        lost = [id_ for id_, (until, instance) in leases.items() if until <= now or instance in dead]

        def put_back(jobs: Queue, job_id: str) -> None:
            jobs.reclaim(job_id, now, dead)

        return await self._each(lost, put_back)

    async def _ripen(self, ripe: Sequence[str], now: float) -> bool:
        """Make due what was put back until now; return whether there was any."""
        return await self._each(ripe, lambda jobs, job_id: jobs.ripen(job_id, now))

    async def _each(self, job_ids: Collection[str], change: Callable[[Queue, str], None]) -> bool:
        """Change the jobs, those of a user at once; return whether there were any."""
        theirs = _by_owner(job_ids)
        for owner, scope in (await self._units.scopes(theirs)).items():

            async def work(unit: Unit, ids: Sequence[str] = tuple(theirs[owner])) -> None:
                jobs = await Queue.of(unit)
                for job_id in ids:
                    change(jobs, job_id)
                await jobs.settle()

            await self._units.write(scope, work)
        return bool(theirs)

    # ------------------------------------------------------------ serving
    async def batch(self, job: Job, *, limit: int, context: int) -> Batch:
        async def work(unit: Unit) -> Batch:
            row = await queue.leased(unit, job)
            if row is None:
                return Batch((), (), unit.stamp)
            return await _batch(unit, job, row["sid"], limit, context)

        return await self._units.write(job.scope, work)

    async def retry(
        self, job: Job, *, at: float, reason: str, dead: bool = False, counted: bool = True
    ) -> None:
        async def change(jobs: Queue) -> None:
            if not counted:
                jobs.take_back_attempt(job)
            if dead:
                await jobs.bury(job, reason)
            else:
                jobs.park(job.id, state="queued", due_at=at, reason=reason)

        await self._while_leased(job, change)

    async def wait_for_credential(self, job: Job) -> None:
        async def change(jobs: Queue) -> None:
            jobs.take_back_attempt(job)  # waiting is no failure
            jobs.park(job.id, state="waiting", reason="credential")

        await self._while_leased(job, change)

    async def _while_leased(self, job: Job, change: Callable[[Queue], Awaitable[None]]) -> None:
        """Change the job, unless it was forgotten or is somebody else's by now."""

        async def work(unit: Unit) -> None:
            jobs = await Queue.of(unit)
            if jobs.leased(job) is not None:
                await change(jobs)
                await jobs.settle()

        await self._units.write(job.scope, work)

    async def wake(self, scope: Scope | None) -> bool:
        if scope is None:
            return any([await self.wake(each) for each in await self._who_waits()])

        async def work(unit: Unit) -> bool:
            jobs = await Queue.of(unit)
            woken = jobs.wake()
            await jobs.settle()
            return woken

        return await self._units.write(scope, work)

    async def _who_waits(self) -> Collection[Scope]:
        job_ids = await self._redis.call("ZRANGE", self._redis.key("jobs:waiting"), 0, -1)
        return (await self._units.scopes(_by_owner(id_.decode() for id_ in job_ids))).values()

    # ------------------------------------------------------------ overseeing
    async def counts(self) -> QueueCounts:
        key = self._redis.key
        queued, running, waiting_, dead, oldest = await self._redis.pipeline(
            [
                *(("ZCARD", key(f"jobs:{state}")) for state in JOB_STATES),
                ("ZRANGE", key("queued-since"), 0, 0, "WITHSCORES"),
            ]
        )
        oldest_at = next((at for _, at in scored(oldest)), None)
        return QueueCounts(int(queued), int(running), int(waiting_), int(dead), oldest_at)

    async def list(
        self, tenant: str, user: str | None, *, state: JobState | None, limit: int, after: str | None = None
    ) -> Sequence[JobInfo]:
        since = 0 if after is None else await self._place(tenant, user, after)
        if user is not None:
            found = await self._units.read(Scope(tenant, user), overview.jobs)
            wanted = sorted((id_ for id_ in found if queue.number(id_) > since), key=queue.number)
            return [found[id_] for id_ in wanted if state in (None, found[id_].state)][: max(limit, 0)]
        page: list[JobInfo] = []
        async for job_ids in self._of_tenant(tenant, JOB_STATES if state is None else (state,), since):
            page += await self._infos(job_ids, state)
            if len(page) >= limit:
                break
        return page[: max(limit, 0)]

    async def revive(self, tenant: str, user: str | None, job_id: str | None = None) -> int:
        if job_id is None and user is not None:
            return await self._revive(Scope(tenant, user), None)
        if job_id is not None:
            scope = await self._whose(tenant, user, job_id)
            return 0 if scope is None else await self._revive(scope, job_id)
        owners: dict[str, None] = {}
        async for job_ids in self._of_tenant(tenant, ("dead",), 0):
            owners.update(dict.fromkeys(_by_owner(job_ids)))
        return sum([await self._revive(each, None) for each in (await self._units.scopes(owners)).values()])

    async def _revive(self, scope: Scope, job_id: str | None) -> int:
        async def work(unit: Unit) -> int:
            jobs = await Queue.of(unit)
            count = await jobs.revive(job_id)
            await jobs.settle()
            return count

        return await self._units.write(scope, work)

    async def _whose(self, tenant: str, user: str | None, job_id: str) -> Scope | None:
        """Return the user whose job it is, if they are of the tenant, and the one asked for."""
        owner = queue.owner(job_id)
        scope = (await self._units.scopes((owner,))).get(owner) if owner else None
        ours = scope is not None and scope.tenant == tenant and user in (None, scope.user)
        return scope if ours else None

    async def _place(self, tenant: str, user: str | None, job_id: str) -> int:
        """Return the number of the job `after`."""
        scope = await self._whose(tenant, user, job_id)
        if scope is None or job_id not in await self._units.read(scope, overview.jobs):
            raise NotFound("No job has this id.", param="after")
        return queue.number(job_id)

    async def _of_tenant(
        self, tenant: str, states: Collection[str], since: int
    ) -> AsyncIterator[Sequence[str]]:
        """Yield ids of the tenant's jobs in these states, in order, those with a number above `since`."""
        while True:
            ranges = await self._redis.pipeline(
                [
                    ("ZRANGEBYSCORE", self._redis.key(f"jobs:{state}"), f"({since}", "+inf",
                     "LIMIT", 0, _LISTED_AT_ONCE)
                    for state in states
                ]
            )  # fmt: skip
            found = sorted((id_.decode() for each in ranges for id_ in each), key=queue.number)
            if not found:
                return
            found = found[:_LISTED_AT_ONCE]  # of what is later, some may not have been asked for yet
            since = queue.number(found[-1])
            scopes = await self._units.scopes(_by_owner(found))
            yield [id_ for id_ in found if _is_of(scopes, id_, tenant)]

    async def _infos(self, job_ids: Sequence[str], state: JobState | None) -> Sequence[JobInfo]:
        """Return the jobs as far as they are there, and still in the state."""
        infos: dict[str, JobInfo] = {}
        for scope in (await self._units.scopes(_by_owner(job_ids))).values():
            infos |= await self._units.read(scope, overview.jobs)
        found = [infos[id_] for id_ in job_ids if id_ in infos]
        return [info for info in found if state in (None, info.state)]


async def _batch(unit: Unit, job: Job, sid: str, limit: int, context: int) -> Batch:
    """Mark what the job reads now as its own: `finish` settles exactly that."""
    entries = await waiting.unread(unit, sid)
    free = [entry["seq"] for entry in entries if not entry["dead"] and entry["seq"] <= job.upto]
    read = free[: max(limit, 0)]
    waiting.put(unit, sid, [_marked(entry, job.id, read) for entry in entries])
    if not read:
        return Batch((), (), unit.stamp)
    session: SessionRow = await unit.table("sessions").get(sid)
    answered = [seq for seq in session["seqs"] if seq < read[0] and seq not in session["open"]]
    before = answered[-context:] if context > 0 else []
    found = await exchanges.read(unit, job.scope, job.session_id, sid, [*before, *read], aloud=False)
    return Batch(tuple(found[len(before) :]), tuple(found[: len(before)]), unit.stamp)


def _marked(entry: UnreadRow, job_id: str, read: Collection[int]) -> UnreadRow:
    if entry["seq"] in read:
        return {**entry, "job": job_id}
    return {**entry, "job": None} if entry["job"] == job_id and not entry["dead"] else entry


def _by_owner(job_ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for job_id in job_ids:
        if (owner := queue.owner(job_id)) is not None:
            found.setdefault(owner, []).append(job_id)
    return found


def _is_of(scopes: Mapping[str, Scope], job_id: str, tenant: str) -> bool:
    scope = scopes.get(queue.owner(job_id) or "")
    return scope is not None and scope.tenant == tenant
