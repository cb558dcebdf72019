"""Protect against web pages that use a visitor's browser to reach the proxy (cross-origin requests, DNS
rebinding).

A page of any web site can make a visitor's browser send requests to a proxy that the visitor can reach. In
modes `open` and `header` such a request is believed like any other, so the page has to be told from the
rest, by what only the browser writes: `Origin`, `Sec-Fetch-Site`, and the `Host` under which it asked (a name
that the page's owner makes point to 127.0.0.1 turns the proxy into the page's "own" server: DNS rebinding).

What follows from it:
- The memory API refuses pages of other origins (403), except those in `allowed_origins`; these get CORS.
- The routes to the model go on *without memory*. Refusing them would break applications that run in a
  browser and talk to the upstream through us, as they may without us (the upstream's CORS decides that);
  but no foreign page plants or reads a memory. Stored responses and conversations are refused as well.
- Mode `open`: the memory API and /ui answer only under a name that is ours: loopback, an IP address, or
  one of `allowed_hosts`. The routes to the model ask that of browsers only: in a container network, other
  programs call us by any name.

In modes `keys` and `jwt` a page needs the credential, which no foreign page has.
"""

import ipaddress
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from urllib.parse import urlsplit

from proxy.edge.reply import ASGIScope, Header, Send
from proxy.errors import Forbidden

_METHODS = b"GET, POST, PATCH, DELETE"
_HEADERS = b"authorization, api-key, x-api-key, content-type, x-memory-user-id, x-memory-project-id"
_EXPOSED = b"x-request-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Visitor(Enum):
    """Whose page, if any, makes the request."""

    OURS = auto()  # no browser, or a page of our own
    ALLOWED = auto()  # of an origin in `allowed_origins`
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class Browsers:
    """The rules. `check_host`: mode `open`, where who reaches the port is believed."""

    allowed_origins: frozenset[str] = frozenset()
    allowed_hosts: frozenset[str] = frozenset()
    check_host: bool = True

    @classmethod
    def of(cls, origins: Iterable[str], hosts: Iterable[str], *, check_host: bool) -> "Browsers":
        """Return the rules for these settings; names in any case."""
        return cls(
            frozenset(origin.rstrip("/").lower() for origin in origins),
            frozenset(host.lower() for host in hosts),
            check_host,
        )

    def visitor(self, headers: Sequence[Header]) -> Visitor:
        """Return whose page this is. Two origins, or two hosts, are nobody's."""
        origins = _values(headers, b"origin")
        if origins and all(origin in self.allowed_origins for origin in origins):
            return Visitor.ALLOWED
        if b"cross-site" in [value.strip().lower() for name, value in headers if name == b"sec-fetch-site"]:
            return Visitor.FOREIGN
        if not origins:
            return Visitor.OURS
        hosts = _values(headers, b"host")
        ours = len(hosts) == 1 and all(_authority(origin) == _bare(hosts[0], origin) for origin in origins)
        return Visitor.OURS if ours and self.knows_host(headers) else Visitor.FOREIGN

    def knows_host(self, headers: Sequence[Header]) -> bool:
        """True if the request came under a name that nobody else can make point to us."""
        if not self.check_host:
            return True
        hosts = _values(headers, b"host")
        return len(hosts) == 1 and self._is_known(_name_of(hosts[0]))

    def require_host(self, headers: Sequence[Header]) -> None:
        """Raise Forbidden for a name that is not ours."""
        if not self.knows_host(headers):
            raise Forbidden(
                "The memory API does not answer under this host name, since any web page could then use it."
                " Use localhost or the IP address, or add the name to identity.allowed_hosts.",
                code="host_not_allowed",
            )

    def _is_known(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self.allowed_hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def foreign_page() -> Forbidden:
    """Return what a page of another origin is refused with."""
    return Forbidden(
        "Web pages of this origin may not use the memory API (identity.allowed_origins).",
        code="origin_not_allowed",
    )


def is_preflight(scope: ASGIScope) -> bool:
    """True for a browser's question whether a page may send its request."""
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


async def answer_preflight(send: Send, visitor: Visitor) -> None:
    """Say what a page of an allowed origin may send. Raises Forbidden for any other page."""
    if visitor is not Visitor.ALLOWED:
        raise foreign_page()
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _HEADERS),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def letting_read(send: Send, headers: Sequence[Header]) -> Send:
    """Return a `send` whose answers the page of an allowed origin may read."""

    async def with_cors(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_cors(headers)]}
        await send(message)

    return with_cors


def _cors(headers: Sequence[Header]) -> list[Header]:
    origin = next((value for name, value in headers if name == b"origin"), b"")
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def _values(headers: Sequence[Header], wanted: bytes) -> list[str]:
    return [value.strip().lower().decode("latin-1") for name, value in headers if name == wanted]


def _authority(origin: str) -> str:
    """Return host and port of an origin, without its scheme's default port; "" for `null` and the like."""
    scheme, mark, authority = origin.partition("://")
    return authority.removesuffix(_DEFAULT_PORTS.get(scheme, ":")) if mark else ""


def _bare(host: str, origin: str) -> str:
    """Return the Host without the default port of the origin's scheme; never ""."""
    return host.removesuffix(_DEFAULT_PORTS.get(origin.partition("://")[0], ":")) or "?"


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without its port; "" for nonsense."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for nonsense
        plain = not (parts.path or parts.query or parts.fragment or "@" in host or "\\" in host)
        return (parts.hostname or "") if plain else ""
    except ValueError:
        return ""
