"""Heartbeats that tell which replicas are alive: one every few seconds, on Redis's own clock."""

import asyncio
import secrets
import time
from contextlib import suppress

from proxy.domain.errors import StoreUnavailable
from proxy.storage.outages import Outages
from proxy.storage.redis.connection import Redis

BEAT_S = 2.0
DEAD_AFTER_S = 10.0
AWAY = "store_unavailable"
_BEAT = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
redis.call('ZADD', KEYS[1], string.format('%.6f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now - tonumber(ARGV[2])))
"""


class Instance:
    """This process among the replicas; alive from `start` to `close`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._key = redis.key("instances")
        self.id = secrets.token_hex(8)
        self._beating: asyncio.Task[None] | None = None
        self._judges_from = 0.0  # on the monotonic clock
        self._outages = Outages(time.monotonic)

    async def start(self) -> None:
        """Be alive to the others, and say so from now on."""
        await self._beat()
        if self._beating is None:
            self._beating = asyncio.create_task(self._keep_beating())

    async def dead(self, instances: set[str]) -> set[str]:
        """Return those of the instances that are gone: closed, or silent for long. Nobody is, for a while
        after Redis was away: they could not say that they live."""
        others = sorted(instances - {self.id})
        if not others or time.monotonic() < self._judges_from:
            return set()
        now = await self._redis.now()
        seen = await self._redis.call("ZMSCORE", self._key, *others)
        return {
            name
            for name, at in zip(others, seen, strict=True)
            if at is None or now - float(at) > DEAD_AFTER_S
        }

    async def close(self) -> None:
        """Be dead to the others."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None
        with suppress(StoreUnavailable):
            await self._redis.call("ZREM", self._key, self.id)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self._beat()
            except StoreUnavailable as error:
                self._judges_from = time.monotonic() + DEAD_AFTER_S
                self._outages.failed(AWAY, "beat", str(error))
            else:
                self._outages.over(AWAY)

    async def _beat(self) -> None:
        # A Redis that is full is still read from, and who lives is still to be known.
        await self._redis.script(_BEAT, (self._key,), self.id, 100 * DEAD_AFTER_S, though_full=True)
