"""Replicas that keep sessions and jobs in one Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis as Client

from proxy.domain.core import Job
from proxy.storage.redis import queue
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.instance import DEAD_AFTER_S, Instance
from proxy.storage.redis.jobs import RedisJobs
from proxy.storage.redis.sessions import RedisSessions
from proxy.storage.redis.unit import Unit, Units

FACTS = "facts"


@dataclass(frozen=True, slots=True)
class Replica:
    """One process's view; what it holds in memory nobody else knows."""

    redis: Redis
    instance: Instance
    units: Units
    sessions: RedisSessions
    jobs: RedisJobs

    async def finish(self, job: Job, *facts: str) -> None:
        """Store what was extracted and settle the job, in one step, as MemoryStore.apply does."""

        async def work(unit: Unit) -> None:
            await queue.finish(unit, job)
            for fact in facts:
                found = await unit.table(FACTS).get(fact) or 0
                unit.table(FACTS).put(fact, found + 1)

        await self.units.write(job.scope, work)

    async def serve(self, job: Job, *, limit: int = 9) -> list[str]:
        """Do the job; return what it has read."""
        batch = await self.jobs.batch(job, limit=limit, context=0)
        read = [exchange.said for exchange in batch.pending]
        await self.finish(job, *read)
        return read

    async def fall_silent(self) -> None:
        """Die without a word: to the others, it was last seen long ago."""
        await self.instance.close()
        long_ago = await self.redis.now() - 2 * DEAD_AFTER_S
        await self.redis.call("ZADD", self.redis.key("instances"), long_ago, self.instance.id)

    async def facts(self, scope) -> dict[str, int]:
        """Return how often each fact of the user was stored."""
        return await self.units.read(scope, lambda unit: unit.table(FACTS).all())


@asynccontextmanager
async def replica(url: str) -> AsyncIterator[Replica]:
    """A replica with connections of its own, alive until it is closed or falls silent."""
    redis = Redis(Client.from_url(url), prefix="t:")
    instance, units = Instance(redis), Units(redis)
    await instance.start()
    try:
        yield Replica(redis, instance, units, RedisSessions(units, instance), RedisJobs(units, instance))
    finally:
        await instance.close()
        await redis.close()
