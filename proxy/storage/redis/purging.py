"""Rewrite Redis's append-only file after forgets: until then it still contains what was forgotten.

A rewrite costs as much as writing all the data. So one follows all forgets of some time, and Redis makes it
while it goes on serving. Snapshots and backups that were made earlier are not ours to change.
"""

from proxy import telemetry
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.unit import Unit

EVERY_S = 900
_DUE, _DONE = "purge-due", "purged"


def ask(unit: Unit) -> None:
    """Have the file written anew some time after this commit."""
    unit.share("SET", unit.redis.key(_DUE), "1")


async def purge_if_due(redis: Redis) -> bool:
    """Have the file written anew if something was forgotten since, and the last time is long enough ago;
    return whether Redis has begun to."""
    if not await redis.call("EXISTS", redis.key(_DUE)):
        return False
    if not await redis.call("SET", redis.key(_DONE), "1", "NX", "EX", EVERY_S):
        return False
    await redis.call("DEL", redis.key(_DUE))  # first: what is forgotten from now on may not be in the rewrite
    try:
        if b"aof_enabled:1" not in await _persistence(redis):
            return False
        await redis.call("BGREWRITEAOF")
    except StoreUnavailable as error:  # it writes already, is away, or is hosted and does not let us
        telemetry.log.warning("redis.not_purged", error=str(error))
        await redis.call("SET", redis.key(_DUE), "1")
        return False
    return True


async def _persistence(redis: Redis) -> bytes:
    # redis-py would parse it into a dictionary.
    answer = await redis.call("EVAL", "return redis.call('INFO', 'persistence')", 0)
    return bytes(answer)
