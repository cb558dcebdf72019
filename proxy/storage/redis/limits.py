"""Shared limits of a fleet, by Redis's clock, each kept by one script: rate limits, and the hour's model
calls.
"""

import hashlib

from proxy.domain.calls import HOUR_S, Spent
from proxy.domain.rates import TOLERANCE, Rate, Verdict, verdict_of
from proxy.storage.redis.connection import Redis

# proxy.domain.rates.judge. A key is gone when its subject is back at nothing: the same as having no time.
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
# domain.calls.spend and judge, over a sorted set of times. Whether to count the call is the last argument.
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
if made[1] then redis.call('ZREM', KEYS[1], made[1]) end
"""


class RedisLimits:
    """Rate limits of all replicas. A Redis that has lost them lets a burst more pass."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def ask(self, subject: str, rate: Rate) -> Verdict:
        """As the port says. Raises StoreUnavailable."""
        named = hashlib.blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        key = self._redis.key(f"limit:{named}")
        passes, ahead = await self._redis.script(_ASK, (key,), rate.interval_s, rate.most_s, TOLERANCE)
        return verdict_of(rate, passes=bool(passes), ahead_s=float(ahead))


class RedisCalls:
    """Our own model calls of the last hour, of all replicas. See calls.Calls."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def spend(self, limit: int, now: float) -> Spent:
        """As Calls says, by Redis's clock."""
        return await self._ask(limit, counts=True)

    async def look(self, limit: int, now: float) -> Spent:
        """As Calls says, by Redis's clock."""
        return await self._ask(limit, counts=False)

    async def refund(self, at: float) -> None:
        """As Calls says."""
        await self._redis.script(_REFUND, (self._redis.key("calls"),), f"{at:.6f}")

    async def _ask(self, limit: int, *, counts: bool) -> Spent:
        keys = (self._redis.key("calls"),)
        granted, left, wait_s, at = await self._redis.script(_SPEND, keys, limit, HOUR_S, int(counts))
        return Spent(bool(granted), int(left), float(wait_s), float(at))
