"""The RateLimits of a fleet: one time a subject, on Redis's clock, moved by one script."""

import hashlib

from proxy.rates import TOLERANCE, Rate, Verdict, verdict_of
from proxy.stores.redis.connection import Redis

# proxy.rates.judge. A key is gone when its subject is back at nothing: the same as having no time.
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
