"""All stores of a fleet: everything in one Redis, the vectors there too or in Qdrant."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis as Client
from redis.asyncio import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.domain.oversight import Quota
from proxy.storage.redis.chains import RedisChains
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.conversations import RedisConversations
from proxy.storage.redis.documents import RedisDocuments
from proxy.storage.redis.forms import RedisForms
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.jobs import RedisJobs
from proxy.storage.redis.keys import RedisKeys
from proxy.storage.redis.limits import RedisCalls, RedisLimits
from proxy.storage.redis.memories import RedisMemories
from proxy.storage.redis.notes import RedisNotes
from proxy.storage.redis.passages import RedisPassages
from proxy.storage.redis.points import RedisIndex
from proxy.storage.redis.quarantine import RedisQuarantine
from proxy.storage.redis.receipts import RedisReceipts
from proxy.storage.redis.sessions import RedisSessions
from proxy.storage.redis.unit import Units
from proxy.storage.vector_index import IndexUnavailable, VectorIndex

UNLIMITED = Quota()
_PORT = 6379  # where a URL names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where Redis and Qdrant are, and how the collection is made."""

    redis_url: str = field(repr=False)  # may hold a password
    sentinels: tuple[str, ...] = ()
    sentinel_service: str = "mymaster"
    prefix: str = "memory-proxy:"
    redis_timeout_s: float = 2.0
    replicas: int = 0
    qdrant_url: str | None = None  # None: vectors are searched in Redis
    index_bytes: int = 256 * 2**20  # of the arrays that a replica keeps then; a quarter as many for documents
    qdrant_api_key: str | None = field(default=None, repr=False)
    collection: str = "memories"
    qdrant_timeout_s: float = 2.0
    prefer_grpc: bool = False
    replication_factor: int = 1
    write_consistency_factor: int = 1
    shard_number: int = 0
    on_disk: bool = False
    quantization: str = "none"


def client_of(places: Places) -> Client:
    """Return a client that finds the primary again by itself. It asks nothing twice: a commit is not to
    happen twice, see Redis.commit."""
    options: dict[str, Any] = {
        "socket_timeout": places.redis_timeout_s,
        "socket_connect_timeout": places.redis_timeout_s,
        "health_check_interval": 15,
        "retry": Retry(NoBackoff(), 0),
    }
    if not places.sentinels:
        return Client.from_url(places.redis_url, **options)
    named = (each.rpartition(":") for each in places.sentinels)
    addresses = [(host.strip("[]"), int(port)) for host, _, port in named]
    pool = Client.from_url(places.redis_url).connection_pool
    told: dict[str, Any] = pool.connection_kwargs
    kept = {name: told[name] for name in ("username", "password", "db") if name in told}
    if issubclass(pool.connection_class, SSLConnection):  # the URL says how, also of the Sentinels
        options |= {"ssl": True} | {name: told[name] for name in told if name.startswith("ssl_")}
    asked = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl"))}
    sentinel: Any = Sentinel
    sentinels = sentinel(addresses, sentinel_kwargs=asked)
    primary: Client = sentinels.master_for(places.sentinel_service, **options, **kept)
    return primary


def index_of(places: Places, redis: Redis) -> VectorIndex:
    """Return where vectors are searched: in Qdrant where one is named, else in Redis itself."""
    if places.qdrant_url is None:
        return RedisIndex(redis, cache_bytes=places.index_bytes)
    # Slow to import, and not to be had where it is not needed.
    from qdrant_client import AsyncQdrantClient

    from proxy.storage.qdrant.collection import Collection
    from proxy.storage.qdrant.index import QdrantIndex

    client = AsyncQdrantClient(
        url=places.qdrant_url,
        api_key=places.qdrant_api_key,
        timeout=max(1, round(places.qdrant_timeout_s)),
        prefer_grpc=places.prefer_grpc,
        check_compatibility=False,  # it would ask the server while nobody knows whether it runs
    )
    collection = Collection(
        name=places.collection,
        replication_factor=places.replication_factor,
        write_consistency_factor=places.write_consistency_factor,
        shard_number=places.shard_number,
        on_disk=places.on_disk,
        quantization=places.quantization,
    )
    return QdrantIndex(client, collection)


class Unreachable(StoreUnavailable):
    """Redis does not answer, or does not let us in. Says where it should be, and what to do."""


class RedisStores:
    """See storage.Stores. Everything that was acknowledged is in Redis, and durable there as far as it is set
    up so (appendonly yes, appendfsync always)."""

    def __init__(self, places: Places, *, quota: Quota = UNLIMITED) -> None:
        self._places = places
        self.connection = Redis(client_of(places), prefix=places.prefix, replicas=places.replicas)
        self._instance = Instance(self.connection)
        self.index = index_of(places, self.connection)
        self._open, self.failure = False, ""
        units = Units(self.connection)
        self.memories = RedisMemories(units, self.index, quota=quota)
        self.sessions = RedisSessions(units, self._instance)
        self.notes = RedisNotes(units)
        self.jobs = RedisJobs(units, self._instance)
        self.chains = RedisChains(units)
        self.conversations = RedisConversations(units)
        self.quarantine = RedisQuarantine(units)
        self.keys = RedisKeys(units)
        self.receipts = RedisReceipts(units)
        self.documents = RedisDocuments(units, self.memories.forgetting, lambda: self.memories.embedding)
        self.passages = RedisPassages(
            units, lambda: self.memories.embedding, index_bytes=places.index_bytes // 4
        )
        self.memories.forgetting.also_let_go(self.passages.let_go)
        self.limits = RedisLimits(self.connection)
        self.calls = RedisCalls(self.connection)
        self.forms = RedisForms(self.connection)
        self.vectors = self.memories.vectors

    @property
    def place(self) -> str:
        return place_of(self._places)

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def trouble(self) -> str:
        return self.connection.trouble.kind

    @property
    def is_readable(self) -> bool:
        return True

    async def reach(self) -> None:
        """Raise Unreachable unless Redis answers."""
        try:
            await self.connection.ping()
        except StoreUnavailable as error:
            wanted = "redis.sentinels" if self._places.sentinels else "redis.url"
            raise Unreachable(
                f"{redis_of(self._places)} cannot be used ({error}): see that Redis runs there and lets the"
                f" proxy in, or set {wanted}"
            ) from error

    async def open(self) -> None:
        """Reach Redis, and be alive to the other replicas. Raises StoreUnavailable; UnfitStore where
        Redis evicts."""
        try:
            await self._open_all()
        except StoreUnavailable as error:
            self.failure = str(error)
            raise
        self.failure = ""

    async def _open_all(self) -> None:
        await self.reach()
        if (policy := await self.connection.eviction_policy()) not in ("", "noeviction"):
            raise UnfitStore(
                f"{redis_of(self._places)} has maxmemory-policy {policy}: full, it would delete memories."
                " Set it to noeviction (`redis-cli CONFIG SET maxmemory-policy noeviction`, and redis.conf)"
            )
        if not self._open:
            await self.connection.warn_if_forgetful()
        await self._instance.start()
        self._open = True

    async def ask_index(self) -> None:
        """Raise StoreUnavailable unless the vectors can be searched now."""
        try:
            await self.index.open()
        except IndexUnavailable as error:
            raise StoreUnavailable(str(error)) from error

    async def upkeep(self) -> None:
        """Make the index agree where another replica did not, and go on with forgets that were broken off."""
        await self.connection.probe()
        await self.memories.resume_forgets()
        await self.memories.indexing.catch_up()

    async def close(self) -> None:
        await self._instance.close()
        await self.passages.close()
        with suppress(IndexUnavailable):
            await self.index.close()
        await self.connection.close()


def place_of(places: Places) -> str:
    """Return where everything is, without a credential."""
    redis = redis_of(places)
    return redis if places.qdrant_url is None else f"{redis} and {places.qdrant_url}"


def redis_of(places: Places) -> str:
    """Return where Redis is, without a credential."""
    if places.sentinels:
        return f"Redis {places.sentinel_service} ({', '.join(places.sentinels)})"
    url = urlsplit(places.redis_url)
    port = f":{url.port or _PORT}" if url.hostname else ""  # a socket has none
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return f"{url.scheme}://{host}{port}{url.path}"
