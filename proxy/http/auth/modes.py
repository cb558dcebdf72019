"""How a request becomes a caller: the modes `open`, `keys` and `header`. Mode `jwt` is in tokens.py.

open    One tenant; the user that the caller names is believed. For an application's own backend and for
        local use; serving it beyond loopback takes an explicit `--allow-open`.
keys    Our own API keys: each has a tenant and rights, may fix a user, and may stand for an upstream key.
header  An authenticating proxy in front names the user. It is believed by its address alone.

In `open` and `header` the client's Authorization is the upstream's and passes. In `keys` and `jwt` it is
ours: it never reaches the upstream, and a client whose own credential fails gets our 401 and nothing else.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.errors import ConfigError, IdentityUnavailable, StoreError, Unauthorized
from proxy.http.auth.caller import OPEN, OPEN_TENANT, Caller
from proxy.http.auth.credential import keep_out_of_target, presented, replaced
from proxy.http.auth.keyring import Found, KeyRing
from proxy.http.auth.keys import is_key
from proxy.http.reply import ASGIScope, Header
from proxy.wire.extensions import is_placeholder, is_usable_id

USER_RIGHTS = frozenset(("chat", "memory"))
"""What a fixed user may do: all of their own, nothing of the tenant's."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who calls, and the headers that what follows, and the upstream, may see."""

    caller: Caller
    headers: list[Header]


class Mode(Protocol):
    """One way of finding out who calls."""

    @property
    def ambient(self) -> bool:
        """True if a request needs no credential of its own: then whatever a browser sends is believed, and
        the pages that make it do so have to be told apart (browsers.py)."""
        ...

    @property
    def anyone(self) -> Caller | None:
        """Who calls, if that is the same for all requests: then nobody has to be asked."""
        ...

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Return who calls. Raises Unauthorized, or IdentityUnavailable where nobody can say."""
        ...


@dataclass(frozen=True, slots=True)
class ByTrust:
    """Mode `open`."""

    ambient: bool = True
    anyone: Caller | None = OPEN

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Believe."""
        return Admitted(OPEN, scope["headers"])


@dataclass(frozen=True, slots=True)
class ByKey:
    """Mode `keys`."""

    keys: KeyRing
    ambient: bool = False
    anyone: Caller | None = None

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Find the key, and put the upstream key that it stands for in its place."""
        headers: list[Header] = scope["headers"]
        credential = presented(headers)
        keep_out_of_target(credential, scope)
        try:
            found = await self.keys.find(credential) if is_key(credential) else None
        except StoreError as error:
            raise IdentityUnavailable from error
        if found is None:
            raise Unauthorized("There is no such API key, or it has been revoked.")
        return Admitted(_caller(found), replaced(headers, credential, found.upstream_key))


def _caller(found: Found) -> Caller:
    key = found.key
    rights = key.rights if key.user is None else key.rights & USER_RIGHTS
    return Caller(key.tenant, user=key.user, rights=rights, label=f"key:{key.id}")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ByHeader:
    """Mode `header`. Whoever is not a trusted peer is refused, whatever the request says: only the peer of
    the socket counts, never X-Forwarded-For, which anybody can write. The headers do not pass on."""

    user_header: bytes
    tenant_header: bytes | None
    trusted: tuple[Network, ...]
    ambient: bool = True
    anyone: Caller | None = None

    @classmethod
    def of(cls, user_header: str, tenant_header: str | None, trusted_peers: Sequence[str]) -> "ByHeader":
        """Return the mode for these settings. Raises ConfigError."""
        names = [_header_name(name) for name in (user_header, tenant_header) if name is not None]
        try:
            trusted = tuple(ipaddress.ip_network(peer) for peer in trusted_peers)
        except ValueError as error:
            raise ConfigError(f"identity.trusted_peers: {error}") from error
        if not trusted:
            raise ConfigError("identity.trusted_peers must name the proxy in front: mode header has no other")
        return cls(names[0], names[1] if tenant_header is not None else None, trusted)

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Believe the header, if its sender may write it."""
        if not self._is_trusted(scope.get("client")):
            raise Unauthorized("This address may not say who is calling: it is not in trusted_peers.")
        headers: list[Header] = scope["headers"]
        user = _the_one(headers, self.user_header)
        tenant = OPEN_TENANT if self.tenant_header is None else _the_one(headers, self.tenant_header)
        kept = [h for h in headers if h[0] not in (self.user_header, self.tenant_header)]
        return Admitted(Caller(tenant, user=user, rights=USER_RIGHTS, label="header"), kept)

    def _is_trusted(self, client: Sequence[object] | None) -> bool:
        """True for the address of a trusted peer; a Unix socket has none."""
        try:
            peer = ipaddress.ip_address(str(client[0])) if client else None
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped  # a socket that listens on :: shows IPv4 peers so
        return peer is not None and any(peer in network for network in self.trusted)


def _header_name(name: str) -> bytes:
    lowered = name.lower()
    if not lowered.isascii() or not lowered.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"identity: {name!r} is no header's name")
    return lowered.encode("ascii")


def _the_one(headers: Sequence[Header], wanted: bytes) -> str:
    """Return the header's value, which must be there once: two may be of two authors."""
    values = [value.strip(b" \t") for name, value in headers if name == wanted]
    try:
        # Strictly UTF-8: read as Latin-1 too, two spellings would be one user.
        value = values[0].decode() if len(values) == 1 else ""
    except UnicodeDecodeError:
        value = ""
    if not is_usable_id(value) or is_placeholder(value):
        raise Unauthorized(f"The header {wanted.decode()} must name the user or tenant, once.")
    return value
