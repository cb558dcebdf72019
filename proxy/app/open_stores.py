"""Choose the stores that the settings ask for. Nothing is opened yet."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.config import LimitSettings, Settings
from proxy.domain.errors import ConfigError
from proxy.domain.oversight import Quota
from proxy.domain.storage import Stores

if TYPE_CHECKING:
    from proxy.storage.cache.redis import RedisCache
    from proxy.storage.redis.stores import Places


def stores_of(settings: Settings) -> Stores:
    """Return the stores, still closed. Raises ConfigError where what they need is not installed."""
    if settings.storage.backend == "sqlite":
        from proxy.storage.sqlite.stores import SqliteStores

        return SqliteStores(
            settings.data_dir,
            index_bytes=settings.storage.index_cache_mb * 2**20,
            quota=_quota(settings.limits),
            allow_network=settings.storage.allow_network_filesystem,
        )
    return _shared(settings)


def cache_of(settings: Settings, failed: Callable[[], None]) -> "RedisCache | None":
    """Return the Redis that replicas share, not connected yet; None: none is set. `failed` is called when an
    outage begins."""
    chosen = settings.cache
    if chosen.redis_url is None:
        return None
    from proxy.storage.cache.redis import RedisCache

    url = chosen.redis_url.get_secret_value()
    return RedisCache(url, prefix=chosen.prefix, timeout_s=chosen.timeout_seconds, failed=failed)


def place_of(settings: Settings) -> str:
    """Return where the stores are, without a credential, as the stores say it themselves."""
    if settings.storage.backend == "sqlite":
        return str(settings.data_dir)
    from proxy.storage.redis.stores import place_of

    return place_of(_places(settings))


def obstacle_of(settings: Settings) -> str:
    """Return why nothing can be stored where the settings say and what to do, "" if something can."""
    if settings.storage.backend != "sqlite":
        return ""
    from proxy.storage.sqlite import place

    return place.obstacle(settings.data_dir)


def _shared(settings: Settings) -> Stores:
    from proxy.storage.redis.stores import RedisStores

    try:
        return RedisStores(_places(settings), quota=_quota(settings.limits))
    except ImportError as error:
        raise ConfigError(
            "storage.backend redis+qdrant needs the package qdrant-client: run scripts/install fleet"
        ) from error


def _places(settings: Settings) -> "Places":
    from proxy.storage.redis.stores import Places

    redis, qdrant = settings.redis, settings.qdrant
    return Places(
        redis_url=redis.url.get_secret_value(),
        sentinels=redis.sentinels,
        sentinel_service=redis.sentinel_service,
        prefix=redis.prefix,
        redis_timeout_s=redis.timeout_seconds,
        replicas=redis.replicas,
        qdrant_url=qdrant.url if settings.storage.backend == "redis+qdrant" else None,
        index_bytes=settings.storage.index_cache_mb * 2**20,
        qdrant_api_key=qdrant.api_key.get_secret_value() if qdrant.api_key else None,
        collection=qdrant.collection,
        qdrant_timeout_s=qdrant.timeout_seconds,
        prefer_grpc=qdrant.prefer_grpc,
        replication_factor=qdrant.replication_factor,
        write_consistency_factor=qdrant.write_consistency_factor,
        shard_number=qdrant.shard_number,
        on_disk=qdrant.on_disk,
        quantization=qdrant.quantization,
    )


def _quota(limits: LimitSettings) -> Quota:
    return Quota(
        memories=limits.max_memories_per_user,
        content_bytes=int(limits.max_content_mb_per_user * 1_000_000),
        evict=limits.when_full == "evict",
    )
