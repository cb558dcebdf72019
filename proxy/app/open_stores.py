"""Choose the stores that the settings ask for. Nothing is opened yet."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.config import LimitSettings, Settings
from proxy.domain.oversight import Quota
from proxy.domain.storage import Stores

if TYPE_CHECKING:
    from proxy.storage.cache.redis import RedisCache


def stores_of(settings: Settings) -> Stores:
    """Return the stores, still closed."""
    from proxy.storage.sqlite.stores import SqliteStores

    return SqliteStores(
        settings.data_dir,
        index_bytes=settings.storage.index_cache_mb * 2**20,
        quota=_quota(settings.limits),
        allow_network=settings.storage.allow_network_filesystem,
    )


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
    return str(settings.data_dir)


def obstacle_of(settings: Settings) -> str:
    """Return why nothing can be stored where the settings say and what to do, "" if something can."""
    from proxy.storage.sqlite import place

    return place.obstacle(settings.data_dir)


def _quota(limits: LimitSettings) -> Quota:
    return Quota(
        memories=limits.max_memories_per_user,
        content_bytes=int(limits.max_content_mb_per_user * 1_000_000),
        evict=limits.when_full == "evict",
    )
