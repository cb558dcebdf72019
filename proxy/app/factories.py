"""Build what the settings choose: stores, index, cache, network and authentication. Nothing is opened yet.

Raises ConfigError for what only an operator can change.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from proxy.config import IdentitySettings, Settings
from proxy.domain.core import Quota, Reason
from proxy.domain.errors import ConfigError
from proxy.domain.ports import KeyStore
from proxy.http.auth.browsers import Browsers
from proxy.http.auth.identity import Auth, Authenticator, HeaderAuth, KeyAuth, OpenAuth
from proxy.http.auth.keys import KeyRing
from proxy.upstream.network import Network

if TYPE_CHECKING:
    from proxy.http.auth.jwt import JwtAuth, PublicKeys, SharedSecret
    from proxy.storage.redis_cache import RedisCache
    from proxy.storage.sql.stores import SqlStores
    from proxy.storage.sql.vectors import CandidateIndex


def stores_of(settings: Settings, fell_back: Callable[[], None] = lambda: None) -> "SqlStores":
    """Return the stores, still closed. `fell_back` is called for each search that could not use Qdrant."""
    storage, limits = settings.storage, settings.limits
    content_bytes = int(limits.max_content_mb_per_user * 1_000_000)
    quota = Quota(limits.max_memories_per_user, content_bytes, limits.when_full == "evict")
    index_bytes, indexed = storage.index_cache_mb * 2**20, None
    if (index := index_of(settings)) is not None:
        from proxy.storage.sql.vectors import Indexed

        indexed = Indexed(index, exact_up_to=settings.qdrant.exact_up_to, fell_back=fell_back)
    if storage.backend == "postgres":
        from proxy.storage.postgres import PostgresStores

        url, connections = postgres_url_of(settings), storage.postgres_connections
        return PostgresStores(
            url, connections=connections, index_bytes=index_bytes, quota=quota, indexed=indexed
        )
    from proxy.storage.sqlite import SqliteStores

    allow = storage.allow_network_filesystem
    return SqliteStores(
        settings.data_dir, index_bytes=index_bytes, quota=quota, allow_network=allow, indexed=indexed
    )


def postgres_url_of(settings: Settings) -> str:
    """Return the URL of the PostgreSQL that backend `postgres` uses, with its credential."""
    url = settings.storage.postgres_url
    assert url is not None, "the settings have been checked"
    return url.get_secret_value()


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
        from proxy.storage.postgres.database import place_of as of_server

        return of_server(postgres_url_of(settings))
    return str(settings.data_dir)


def obstacle_of(settings: Settings) -> str:
    """Return why nothing can be stored where the settings say and what to do, "" if something can."""
    if settings.storage.backend != "sqlite":
        return ""
    from proxy.storage.sqlite import obstacle

    return obstacle(settings.data_dir)


LOOPBACK = ("127.0.0.1", "localhost", "::1")


def refuse_open_network(settings: Settings) -> None:
    """Raise ConfigError if a client on a network could name any user."""
    server = settings.server
    if settings.identity.mode == "open" and server.host not in LOOPBACK and not server.allow_open:
        raise ConfigError(
            f"refusing to listen on {server.host} in identity mode `open`: any client that reaches the port\n"
            "could read and delete every user's memories by naming them. Listen on 127.0.0.1 behind your\n"
            "own backend, choose a mode that asks who is calling (MEMORY_PROXY__IDENTITY__MODE=keys, see\n"
            "docs/identity.md), or pass --allow-open if the network is trusted."
        )


def auth_of(settings: Settings, keys: KeyStore, refused: Callable[[Reason], None] | None = None) -> Auth:
    """Return how requests are authenticated. `keys`: our own API keys, for mode `keys`. `refused`: is called
    with the reason for each request of a page or host that is not trusted. Raises ConfigError."""
    identity = settings.identity
    if "*" in identity.allowed_origins and identity.mode in ("open", "header"):
        raise ConfigError(
            f"identity.allowed_origins: '*' is for modes keys and jwt. In mode {identity.mode} a request\n"
            "needs no credential: any web page that a user visits could read and delete memories.\n"
            "Name the origins, such as https://app.example.com, http://localhost:* or app://*"
        )
    browsers = Browsers.of(
        identity.allowed_origins,
        (*identity.allowed_hosts, settings.server.host),
        check_host=identity.mode == "open",
        private_names=settings.server.host not in LOOPBACK,
        server_key=bool(settings.upstream.api_key and settings.upstream.api_key.get_secret_value().strip()),
    )
    mode = _mode(settings, keys)
    return Auth(mode, browsers) if refused is None else Auth(mode, browsers, refused)


def network_of(settings: Settings) -> Network:
    """Return how this process reaches the outside: the settings, else the environment. Raises ConfigError."""
    upstream = settings.upstream
    proxy = upstream.proxy.get_secret_value() if upstream.proxy is not None else None
    return Network.of(os.environ, proxy=proxy, ca_file=upstream.ca_file)


def _mode(settings: Settings, keys: KeyStore) -> Authenticator:
    identity = settings.identity
    match identity.mode:
        case "open":
            return OpenAuth()
        case "keys":
            return KeyAuth(KeyRing(keys))
        case "header":
            return HeaderAuth.of(identity.user_header, identity.tenant_header, identity.trusted_peers)
        case "jwt":
            return _by_token(identity, network_of(settings))


def _by_token(identity: IdentitySettings, network: Network) -> "JwtAuth":
    if not identity.jwt_audience:
        raise ConfigError(
            "identity.jwt_audience is required in mode jwt: without it, a token that the issuer made for any"
            " other application would be good here"
        )
    from proxy.http.auth.jwt import JwtAuth  # 3 MB that only mode jwt needs

    return JwtAuth(
        _keys(identity, network),
        audience=identity.jwt_audience,
        issuer=identity.jwt_issuer,
        user_claim=identity.jwt_user_claim,
        tenant_claim=identity.jwt_tenant_claim,
    )


def _keys(identity: IdentitySettings, network: Network) -> "PublicKeys | SharedSecret":
    url, secret = identity.jwt_jwks_url, identity.jwt_secret
    if (url is None) == (secret is None):
        raise ConfigError("mode jwt needs identity.jwt_jwks_url or identity.jwt_secret, and not both")
    from proxy.http.auth.jwt import PublicKeys, SharedSecret
    from proxy.upstream.httpx_transport import fetch  # httpx takes a tenth of a second to import

    if secret is not None:
        return SharedSecret.of(secret.get_secret_value(), identity.jwt_algorithms)
    assert url is not None
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"identity.jwt_jwks_url must be an http(s) URL, not {url[:60]!r}")
    return PublicKeys(partial(fetch, url, network=network), identity.jwt_algorithms)
