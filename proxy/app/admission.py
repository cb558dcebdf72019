"""Checks at start-up that the network address and the identity mode fit together, and builds what
identifies callers, as the settings say. Raises ConfigError for what only an operator can mend.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from proxy.config import Identity, Settings
from proxy.domain.core import Reason
from proxy.domain.errors import ConfigError
from proxy.domain.ports import KeyStore
from proxy.http.auth.browsers import Browsers
from proxy.http.auth.identity import Auth, Authenticator, HeaderAuth, KeyAuth, OpenAuth
from proxy.http.auth.keys import KeyRing
from proxy.upstream.network import Network

if TYPE_CHECKING:
    from proxy.http.auth.jwt import JwtAuth, TokenKeys

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def refuse_open_network(settings: Settings) -> None:
    """Raise ConfigError if anybody on a network would be believed to be anybody."""
    server = settings.server
    if settings.identity.mode == "open" and server.host not in LOOPBACK and not server.allow_open:
        raise ConfigError(
            f"refusing to listen on {server.host} in identity mode `open`: whoever reaches the port could\n"
            "read and delete every user's memories by naming them. Listen on 127.0.0.1 behind your own\n"
            "backend, choose a mode that asks who is calling (MEMORY_PROXY__IDENTITY__MODE=keys, see\n"
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


def _by_token(identity: Identity, network: Network) -> "JwtAuth":
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


def _keys(identity: Identity, network: Network) -> "TokenKeys":
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
    return PublicKeys.of(partial(fetch, url, network=network), identity.jwt_algorithms)
