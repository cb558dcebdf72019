"""What models were found to take, shared by the replicas. See ports.FormStore."""

import json
from collections.abc import Mapping

from proxy.stores.damage import legible
from proxy.stores.redis.connection import Redis


class RedisForms:
    """A hash of short rows."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._key = redis, redis.key("forms")

    async def load(self) -> Mapping[str, str]:
        """As FormStore says."""
        rows = await self._redis.hash(self._key)
        with legible():
            return {key: row.decode() for key, row in rows.items()}

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """As FormStore says. Two replicas that save at once may keep a few rows too many until the next."""
        if rows:
            await self._redis.call("HSET", self._key, *(word for pair in rows.items() for word in pair))
        found = await self.load()
        with legible():
            by_time = sorted(found, key=lambda key: -json.loads(found[key])["until"])
        if excess := by_time[most:]:
            await self._redis.call("HDEL", self._key, *excess)
