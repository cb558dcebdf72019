"""Choose the stores that the settings ask for. Nothing is opened yet."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.config import LimitSettings, Settings
from proxy.domain.core import Quota
from proxy.domain.ports import Stores

if TYPE_CHECKING:
    from proxy.storage.redis_cache import RedisCache
    from proxy.storage.sql.external_index import CandidateIndex, Indexed


def stores_of(settings: Settings, fell_back: Callable[[], None] = lambda: None) -> Stores:
    """Return the stores, still closed. `fell_back` is called for each search that could not use Qdrant."""
    if settings.storage.backend == "postgres":
        return _postgres(settings, fell_back)
    from proxy.storage.sqlite.stores import SqliteStores

    return SqliteStores(
        settings.data_dir,
        index_bytes=settings.storage.index_cache_mb * 2**20,
        quota=_quota(settings.limits),
        allow_network=settings.storage.allow_network_filesystem,
        indexed=_indexed(settings, fell_back),
    )


def _postgres(settings: Settings, fell_back: Callable[[], None]) -> Stores:
    from proxy.storage.postgres.stores import PostgresStores

    return PostgresStores(
        postgres_url_of(settings),
        connections=settings.storage.postgres_connections,
        index_bytes=settings.storage.index_cache_mb * 2**20,
        quota=_quota(settings.limits),
        indexed=_indexed(settings, fell_back),
    )


def postgres_url_of(settings: Settings) -> str:
    """Return the URL of the PostgreSQL that backend `postgres` uses, with its credential."""
    url = settings.storage.postgres_url
    assert url is not None, "the settings have been checked"
    return url.get_secret_value()


def _indexed(settings: Settings, fell_back: Callable[[], None]) -> "Indexed | None":
    if (index := index_of(settings)) is None:
        return None
    from proxy.storage.sql.external_index import Indexed

    return Indexed(index, exact_up_to=settings.qdrant.exact_up_to, fell_back=fell_back)


def index_of(settings: Settings) -> "CandidateIndex | None":
    """Return the index next to the database, not connected yet; None: vectors are searched exactly."""
    if settings.storage.vectors == "exact":
        return None
    from proxy.storage import qdrant

    chosen = settings.qdrant
    client = qdrant.connect(
        chosen.url,
        chosen.api_key.get_secret_value() if chosen.api_key else None,
        prefer_grpc=chosen.prefer_grpc,
        timeout_s=chosen.timeout_seconds,
    )
    collection = qdrant.Collection(
        prefix=chosen.collection,
        replication_factor=chosen.replication_factor,
        write_consistency_factor=chosen.write_consistency_factor,
        shard_number=chosen.shard_number,
        on_disk=chosen.on_disk,
        quantization=chosen.quantization,
    )
    return qdrant.QdrantIndex(client, collection, search_timeout_s=chosen.search_timeout_seconds)


def cache_of(settings: Settings, failed: Callable[[], None]) -> "RedisCache | None":
    """Return the Redis that replicas share, not connected yet; None: none is set. `failed` is called when an
    outage begins."""
    chosen = settings.cache
    if chosen.redis_url is None:
        return None
    from proxy.storage.redis_cache import RedisCache

    url = chosen.redis_url.get_secret_value()
    return RedisCache(url, prefix=chosen.prefix, timeout_s=chosen.timeout_seconds, failed=failed)


def place_of(settings: Settings) -> str:
    """Return where the stores are, without a credential, as the stores say it themselves."""
    if settings.storage.backend == "postgres":
        from proxy.storage.postgres.connection import place_of as of_server

        return of_server(postgres_url_of(settings))
    return str(settings.data_dir)


def obstacle_of(settings: Settings) -> str:
    """Return why nothing can be stored where the settings say and what to do, "" if something can."""
    if settings.storage.backend != "sqlite":
        return ""
    from proxy.storage.sqlite import file

    return file.obstacle(settings.data_dir)


def _quota(limits: LimitSettings) -> Quota:
    return Quota(
        memories=limits.max_memories_per_user,
        content_bytes=int(limits.max_content_mb_per_user * 1_000_000),
        evict=limits.when_full == "evict",
    )
