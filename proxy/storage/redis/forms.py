"""What models were found to take, shared by the replicas. See ports.FormStore."""

from collections.abc import Mapping

from proxy.domain.ports import latest_forms
from proxy.storage.redis.connection import Redis


class RedisForms:
    """A hash of short rows."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._key = redis, redis.key("forms")

    async def load(self) -> Mapping[str, str]:
        """As FormStore says."""
        rows = await self._redis.hash(self._key)
        return {key: row.decode("utf-8", "replace") for key, row in rows.items()}

    async def save(self, rows: Mapping[str, str], most: int) -> None:
        """As FormStore says. Two replicas that save at once may keep a few rows too many until the next."""
        if rows:
            await self._redis.call("HSET", self._key, *(word for pair in rows.items() for word in pair))
        if excess := latest_forms(await self.load())[most:]:
            await self._redis.call("HDEL", self._key, *excess)
