"""The checks of `memory-proxy doctor` on Redis and Qdrant: whether they answer, and keep what they are
given.
"""

import time
from collections.abc import AsyncIterator

from proxy.app.open_stores import stores_of
from proxy.cli.doctor_data import BAD, GOOD, NOTE, Finding, learnt
from proxy.config import Settings
from proxy.domain.errors import ConfigError, StoreError
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.forms import RedisForms
from proxy.storage.redis.stores import RedisStores

SKEW_S = 2.0  # between replicas: leases are given by one's clock and judged by another's
_WANTED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
_WHY = {
    "appendonly": "a restart would lose everything",
    "appendfsync": "a crash would lose what was acknowledged last",
    "maxmemory-policy": "a full Redis would throw memories away",
}


async def findings(settings: Settings) -> list[Finding]:
    """Return what was found about the stores that replicas share."""
    try:
        stores = stores_of(settings)
    except ConfigError as error:
        return [Finding(BAD, "stores", str(error))]
    assert isinstance(stores, RedisStores)
    try:
        found = [finding async for finding in _redis(stores.connection, stores.place)]
        if settings.storage.backend == "redis+qdrant":
            found.append(await _qdrant(stores, settings.qdrant.url))
        return found
    finally:
        await stores.close()


async def _redis(redis: Redis, place: str) -> AsyncIterator[Finding]:
    try:
        await redis.ping()
    except StoreError as error:
        yield Finding(BAD, "redis", f"{place}: {error}")
        return
    yield Finding(GOOD, "redis", f"{place} answers")
    for finding in learnt(await RedisForms(redis).load()):
        yield finding
    skew = abs(await redis.now() - time.time())
    if skew > SKEW_S:
        yield Finding(BAD, "clock", f"{skew:.0f} s apart from Redis's: have all machines keep the same time")
    try:
        configured = await redis.configured(*_WANTED)
    except StoreError:
        yield Finding(
            NOTE, "redis", "does not tell its configuration: see docs/scaling.md for what it must be"
        )
        return
    for name, wanted in _WANTED.items():
        if configured.get(name) != wanted:
            text = f"{name} is {configured.get(name)}: {_WHY[name]}; set it to {wanted}"
            yield Finding(BAD, "redis", text)


async def _qdrant(stores: RedisStores, url: str) -> Finding:
    try:
        await stores.ask_index()
    except StoreError as error:
        return Finding(BAD, "qdrant", f"{url}: {error}: until it answers, memories are found by words only")
    return Finding(GOOD, "qdrant", f"{url} answers")
