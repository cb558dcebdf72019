"""Replicas with all their stores, over one Redis and one Qdrant, and a count of the ways to Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from qdrant_client import AsyncQdrantClient

from proxy.storage.redis.connection import Redis
from tests.storage.on_redis.forgetting_support import Replica, over
from tests.storage.on_redis.memories_support import local_index


class Counted(Redis):
    """Counts the ways to Redis and back."""

    ways = 0

    async def _one(self, *command: Any) -> Any:
        self.ways += 1
        return await super()._one(*command)

    async def _all(self, commands: Any) -> list[Any]:
        self.ways += 1
        return await super()._all(commands)


@asynccontextmanager
async def replicas(redis: Redis, count: int) -> AsyncIterator[list[Replica]]:
    """Run replicas that have nothing in common but what is in Redis and in the index."""
    client = AsyncQdrantClient(":memory:")
    made = [over(redis, local_index(client)) for _ in range(count)]
    for each in made:
        await each.instance.start()
    try:
        yield made
    finally:
        for each in made:
            await each.instance.close()
            await each.passages.close()
        await client.close()
