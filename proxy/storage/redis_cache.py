"""Counters that replicas share in Redis or Valkey: rate limits, and the hourly quota of model calls.

Nothing here has to last. While Redis is down, slower than the time-out, full or read-only, every call raises
StoreUnavailable at once and its caller counts without it; after OPEN_S one call tries again. A Redis that was
flushed, or that evicts, has lost some counts: a subject gets one more burst.

Every count is one script about one key, by Redis's own clock, so replicas need no common time.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy import telemetry
from proxy.domain.errors import StoreUnavailable
from proxy.domain.limits import (
    HOUR_S,
    TOLERANCE,
    CallQuota,
    CircuitBreaker,
    QuotaDecision,
    Rate,
    RateVerdict,
    rate_verdict,
)

OPEN_S = 2.0  # without a question after a failure
_CONNECTIONS = 64

# proxy.domain.limits.check_rate. The key expires when the subject has its whole burst again.
_ASK = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local interval, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local empty_at = tonumber(redis.call('GET', KEYS[1]) or '0')
local ahead = math.min(math.max(empty_at - now, 0), most)
if ahead + interval > most * tonumber(ARGV[3]) then return {0, string.format('%.9f', ahead)} end
ahead = ahead + interval
redis.call('SET', KEYS[1], string.format('%.6f', now + ahead), 'PX', math.ceil(ahead * 1000))
return {1, string.format('%.9f', ahead)}
"""
# limits.spend_call and calls_left, over a sorted set of times. The last argument says whether to count.
_SPEND = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local limit, hour = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now - hour))
local count, at, granted = redis.call('ZCARD', KEYS[1]), '0', 0
if count < limit then
    granted = 1
    if ARGV[3] == '1' then
        at = string.format('%.6f', now)
        redis.call('ZADD', KEYS[1], at, at .. ' ' .. count)
        redis.call('PEXPIRE', KEYS[1], math.ceil(hour * 1000))
        count = count + 1
    end
end
local wait = 0
if limit > 0 and count >= limit then
    local first = redis.call('ZRANGE', KEYS[1], count - limit, count - limit, 'WITHSCORES')
    wait = math.min(tonumber(first[2]), now) + hour - now
end
return {granted, math.max(0, limit - count), string.format('%.6f', wait), at}
"""
_REFUND = """
local made = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[1], 'LIMIT', 0, 1)
if made[1] then return redis.call('ZREM', KEYS[1], made[1]) end
return 0
"""


class RedisCache:
    """One process's connections to the Redis that replicas share. Nothing is sent before the first call."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "memory-proxy:",
        timeout_s: float = 0.25,
        failed: Callable[[], None] = lambda: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`failed` is called when an outage begins."""
        # Without time-outs of the client's own: it would wait with asyncio.wait_for, which in Python 3.11
        # drops a cancellation that comes together with an answer.
        pool = BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=None, socket_timeout=None, socket_connect_timeout=None
        )
        self._client: Any = Redis.from_pool(pool)  # its commands have no types
        self._client.set_retry(Retry(NoBackoff(), 1))  # a connection that a restart has closed
        self._scripts = {source: self._client.register_script(source) for source in (_ASK, _SPEND, _REFUND)}
        self.prefix, self.place = prefix, place_of(url)
        self._timeout_s, self._failed, self._steady = timeout_s, failed, steady
        self._away_since: float | None = None
        self._breaker = CircuitBreaker(OPEN_S, probe_s=OPEN_S, clock=steady)

    async def ask(self, subject: str, rate: Rate) -> RateVerdict:
        """Ask for one request of the subject over all replicas: see ports.RateLimits."""
        digest = hashlib.blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        asked = (rate.interval_s, rate.most_s, TOLERANCE)
        passes, ahead = await self.run(_ASK, f"limit:{digest}", *asked)
        return rate_verdict(rate, passes=bool(passes), ahead_s=float(ahead))

    def calls(self, without: CallQuota) -> "SharedCalls":
        """Our own model calls over all replicas; `without` counts them while Redis cannot."""
        return SharedCalls(self, without)

    async def run(self, script: str, key: str, *arguments: str | float) -> Any:
        """Return what a script returns. Raises StoreUnavailable."""
        return await self._guarded(lambda: self._scripts[script](keys=(self.prefix + key,), args=arguments))

    async def ping(self) -> None:
        """Raise StoreUnavailable unless Redis answers in time."""
        await self._guarded(self._client.ping)

    async def close(self) -> None:
        await self._client.aclose()

    async def _guarded(self, call: Callable[[], Any]) -> Any:
        """Return the call's result, within the time-out, and only while Redis is not known to be away."""
        if self._breaker.acquire():
            raise StoreUnavailable("Redis failed a moment ago")
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await call()
        except (RedisError, OSError, TimeoutError) as error:
            self._breaker.failed()
            if self._away_since is None:
                self._away_since = self._steady()
                telemetry.log.warning("cache.unavailable", place=self.place, error=type(error).__name__)
                self._failed()
            raise StoreUnavailable(f"Redis: {type(error).__name__}") from error
        self._breaker.succeeded()
        if self._away_since is not None:
            seconds = round(self._steady() - self._away_since, 1)
            self._away_since = None
            telemetry.log.info("cache.recovered", place=self.place, seconds=seconds)
        return result


class SharedCalls:
    """Our own model calls of the last hour, over all replicas and by Redis's clock: see limits.CallQuota."""

    def __init__(self, cache: RedisCache, without: CallQuota) -> None:
        self._cache, self._without = cache, without

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        return await self._ask(limit, counts=True) or await self._without.spend(limit, now)

    async def look(self, limit: int, now: float) -> QuotaDecision:
        return await self._ask(limit, counts=False) or await self._without.look(limit, now)

    async def refund(self, at: float) -> None:
        try:
            taken = await self._cache.run(_REFUND, "calls", f"{at:.6f}")
        except StoreUnavailable:
            taken = 0
        if not taken:
            await self._without.refund(at)

    async def _ask(self, limit: int, *, counts: bool) -> QuotaDecision | None:
        """Return Redis's decision, None while it is away."""
        try:
            granted, left, wait_s, at = await self._cache.run(_SPEND, "calls", limit, HOUR_S, int(counts))
        except StoreUnavailable:
            return None
        return QuotaDecision(bool(granted), int(left), float(wait_s), float(at))


def place_of(url: str) -> str:
    """Return where Redis is, without a credential."""
    parts = urlsplit(url)
    port = f":{parts.port or 6379}" if parts.hostname else ""  # a socket has none
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
