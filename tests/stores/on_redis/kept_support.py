"""Replicas with all their stores, over one Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from qdrant_client import AsyncQdrantClient

from proxy.stores.redis.chains import RedisChains
from proxy.stores.redis.connection import Redis
from proxy.stores.redis.conversations import RedisConversations
from proxy.stores.redis.instance import Instance
from proxy.stores.redis.jobs import RedisJobs
from proxy.stores.redis.notes import RedisNotes
from proxy.stores.redis.quarantine import RedisQuarantine
from proxy.stores.redis.receipts import RedisReceipts
from proxy.stores.redis.sessions import RedisSessions
from proxy.stores.redis.unit import Units
from tests.stores.on_redis import memories_support


class Counted(Redis):
    """Counts the ways to Redis and back."""

    ways = 0

    async def _one(self, *command: Any) -> Any:
        self.ways += 1
        return await super()._one(*command)

    async def _all(self, commands: Any) -> list[Any]:
        self.ways += 1
        return await super()._all(commands)


@dataclass
class Replica:
    """One process's stores."""

    units: Units
    instance: Instance
    memories: Any
    sessions: RedisSessions
    jobs: RedisJobs
    notes: RedisNotes
    chains: RedisChains
    conversations: RedisConversations
    quarantine: RedisQuarantine
    receipts: RedisReceipts


@asynccontextmanager
async def replicas(redis: Redis, count: int) -> AsyncIterator[list[Replica]]:
    """Run replicas that have nothing in common but what is in Redis and in the index."""
    client = AsyncQdrantClient(":memory:")
    made = [_replica(redis, client) for _ in range(count)]
    for each in made:
        await each.instance.start()
    try:
        yield made
    finally:
        for each in made:
            await each.instance.close()
        await client.close()


def _replica(redis: Redis, client: AsyncQdrantClient) -> Replica:
    units, instance = Units(redis), Instance(redis)
    return Replica(
        units=units,
        instance=instance,
        memories=memories_support.replica(redis, client),
        sessions=RedisSessions(units, instance),
        jobs=RedisJobs(units, instance),
        notes=RedisNotes(units),
        chains=RedisChains(units),
        conversations=RedisConversations(units),
        quarantine=RedisQuarantine(units),
        receipts=RedisReceipts(units),
    )
