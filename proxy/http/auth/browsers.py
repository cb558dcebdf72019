"""Rules for requests that web pages make a visitor's browser send (cross-origin requests, DNS rebinding), and
CORS.

A page of any web site can make its visitor's browser send requests to a proxy that the visitor can reach. In
modes `open` and `header` such a request needs no credential, so the page must be recognised by what only the
browser writes: `Origin`, `Sec-Fetch-Site`, and `Host`. If the owner of a page lets the name of the page
resolve to 127.0.0.1 (DNS rebinding), the page has the same origin as the proxy, and only that name reveals
it.

The consequences in these two modes:
- The server's key (`upstream.api_key`) is not used for a page of another origin, nor in mode `open` for a
  host name that others could point to the proxy. This holds on every route.
- The memory API, and the responses and conversations that are stored here, refuse such requests (403).
- A request that brings its own credential is forwarded *without memory*: an application in a browser works
  through the proxy as it does without it, but no foreign page plants or reads a memory.

In modes `keys` and `jwt` a page needs the credential, which no foreign page has.

Origins in `identity.allowed_origins` are part of the application: their preflights are answered here, and all
answers carry the CORS headers that let the page read them, in place of the upstream's own.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import urlsplit

from proxy import telemetry
from proxy.domain.core import Reason
from proxy.domain.errors import ClientError, Forbidden, UnsupportedMedia
from proxy.http.asgi import ASGIScope, Header, Send, with_headers
from proxy.wire.http import CREDENTIALS

_METHODS = b"GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_HEADERS = (
    b"authorization, api-key, x-api-key, content-type, openai-organization, openai-project, x-request-id,"
    b" x-memory-user-id, x-memory-project-id, x-memory-session-id, x-memory-mode"
)
_MAX_AGE_S = b"600"
_TOKENS = re.compile(rb"[\w!#$%&'*+.^`|~, -]{1,4096}", re.ASCII)
_METHOD = re.compile(rb"[A-Z]{1,32}")
# What scripts may read anyway, and headers that are not meant for them.
_NOT_EXPOSED = frozenset(
    b"cache-control content-language content-length content-type expires last-modified pragma vary connection"
    b" set-cookie date transfer-encoding timing-allow-origin".split()
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_ASKED_METHOD = b"access-control-request-method"
_READ = (
    frozenset({b"origin", b"host", b"sec-fetch-site", b"referer", b"content-type", _ASKED_METHOD})
    | CREDENTIALS
)
_OTHER_SITES = frozenset({"cross-site", "same-site"})  # `same-site`: another port or a sibling domain
_LOGGED_ORIGINS = 100  # distinct ones; any client can invent more


class Visitor(Enum):
    """The page, if any, that makes the request."""

    OURS = auto()  # no browser, or a page that the proxy serves
    ALLOWED = auto()  # of an origin in `allowed_origins`
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of `identity.allowed_origins`; `*` matches a part of one."""

    pattern: re.Pattern[str] | None = None
    anyone: bool = False

    @classmethod
    def of(cls, rules: Sequence[str]) -> "Origins":
        """Return the origins that the rules name, written as config.Identity normalises them."""
        patterns = []
        for rule in rules:
            scheme, mark, authority = rule.partition("://")
            host = re.escape(authority.removesuffix(":*")).replace(r"\*", "[^/@:]+")
            port = r"(:\d+)?" if authority.endswith(":*") else ""
            if rule != "*":
                patterns.append(re.escape(scheme + mark) + host + port)
        return cls(re.compile("|".join(patterns)) if patterns else None, "*" in rules)

    def __contains__(self, origin: str) -> bool:
        return self.anyone or (self.pattern is not None and bool(self.pattern.fullmatch(origin)))

    def __bool__(self) -> bool:
        return self.anyone or self.pattern is not None


@dataclass(frozen=True, slots=True)
class Browsers:
    """The rules. `check_host`: mode `open`. `private_names`: the proxy listens beyond loopback, where other
    machines and containers call it by names that no web site can have. `server_key`: the server's key is sent
    for requests without a credential."""

    allowed_origins: Origins = Origins()
    allowed_hosts: frozenset[str] = frozenset()
    check_host: bool = True
    private_names: bool = False
    server_key: bool = False
    _seldom: telemetry.ThrottledLog = field(default_factory=telemetry.ThrottledLog, init=False, compare=False)
    _logged: set[str] = field(default_factory=set, init=False, compare=False)

    @classmethod
    def of(cls, origins: Sequence[str], hosts: Iterable[str], **modes: bool) -> "Browsers":
        """Return the rules for these settings; `origins` as config.Identity normalises them."""
        named = frozenset(host.lower().removesuffix(".") for host in hosts)
        return cls(Origins.of(origins), named, **modes)

    def visit(self, scope: ASGIScope) -> "Visit":
        headers = tuple([header for header in scope["headers"] if header[0] in _READ])
        _, mark, rest = scope.get("raw_target", b"").partition(b"://")
        absolute = mark and not scope["raw_target"].startswith(b"/")  # `http://authority/path`
        named = re.split(rb"[/?#\\]", rest)[0].lower().decode("latin-1") if absolute else None
        return Visit(self, scope["method"], self._visitor(headers, named), named, headers)

    def _visitor(self, headers: tuple[Header, ...], named: str | None) -> Visitor:
        """Return the kind of page. Two origins, or two hosts, count as none of ours."""
        origins = _values(headers, b"origin")
        if origins and all(origin in self.allowed_origins for origin in origins):
            return Visitor.ALLOWED
        if not _OTHER_SITES.isdisjoint(_values(headers, b"sec-fetch-site")):
            return Visitor.FOREIGN
        if not origins:
            return Visitor.OURS
        hosts = _values(headers, b"host")
        asked = [*hosts, *(() if named is None else (named,))]
        same = len(hosts) == 1 and all(is_same(origin, host) for origin in origins for host in asked)
        return Visitor.OURS if same and self.knows(hosts, named) else Visitor.FOREIGN

    def knows(self, hosts: list[str], named: str | None) -> bool:
        """True if the request came under names that no web site can point to the proxy. `named`: the
        authority in a request target of absolute form, checked like Host. No browser leaves out both."""
        if not self.check_host or (not hosts and named is None):
            return True
        asked = hosts if named is None else [*hosts, named]
        return len(hosts) == 1 and all(self._is_known(*_name_of(host)) for host in asked)

    def _is_known(self, name: str, is_address: bool) -> bool:
        name = name.removesuffix(".")
        if is_address or name == "localhost" or name.endswith(".localhost") or name in self.allowed_hosts:
            return True
        # Public DNS has no name without a dot, and none below .internal (ICANN, 2024).
        return self.private_names and bool(name) and ("." not in name or name.endswith(".internal"))

    def note(self, visit: "Visit", reason: Reason) -> None:
        """Log that a page or host was not trusted, at most once a minute for each, and not for every one."""
        is_host = reason is Reason.FOREIGN_HOST
        name = ", ".join(visit.hosts) if is_host else visit.origin.decode("latin-1")
        name = (name if name.isprintable() else repr(name))[:200]
        if name not in self._logged and len(self._logged) >= _LOGGED_ORIGINS:
            name = "(more)"
        self._logged.add(name)
        what, setting = ("host", "allowed_hosts") if is_host else ("origin", "allowed_origins")
        facts = {what: name or "(none)", "reason": reason.value, "setting": f"identity.{setting}"}
        self._seldom.warning("browser.not_trusted", **facts)


@dataclass(frozen=True, slots=True)
class Visit:
    """The parts of a request that say whether a browser sent it, and for which page."""

    rules: Browsers
    method: str
    visitor: Visitor
    named: str | None  # the authority of an absolute-form target
    headers: tuple[Header, ...]  # those in _READ

    @property
    def hosts(self) -> list[str]:
        return _values(self.headers, b"host")

    @property
    def origin(self) -> bytes:
        """The Origin as it was sent, b"" without one."""
        return self._header(b"origin")

    @property
    def is_preflight(self) -> bool:
        """True for a browser's question whether a page may send its request."""
        return self.method == "OPTIONS" and bool(self._header(_ASKED_METHOD))

    def knows_host(self) -> bool:
        """True under a name that no web site can point to the proxy."""
        return self.rules.knows(self.hosts, self.named)

    def require_host(self) -> None:
        """Raise Forbidden for a host name that others could point to the proxy."""
        if not self.knows_host():
            raise Forbidden(
                "The proxy does not answer this under this host name, since any web page could then use it"
                " (DNS rebinding). Use localhost or the IP address, or add the name to"
                " identity.allowed_hosts.",
                param="host",
                code="host_not_allowed",
            )

    def require_key_may_be_spent(self) -> None:
        """Raise ClientError if the server's key would go with a request that a foreign page may have made."""
        if not self.rules.server_key or any(name in CREDENTIALS for name, _ in self.headers):
            return
        if self.visitor is Visitor.FOREIGN or self._is_referred_by_another():
            raise foreign_page()
        if not self.knows_host():
            raise Forbidden(
                "The server's key is not used under this host name, since any web page could then spend it"
                " (DNS rebinding). Use localhost or the IP address, add the name to identity.allowed_hosts,"
                " or send a credential of your own.",
                param="host",
                code="host_not_allowed",
            )
        kind = self._header(b"content-type").partition(b";")[0].strip().lower()
        unsigned = not self.origin and not self._header(b"sec-fetch-site")
        if unsigned and kind == b"text/plain" and self.method not in ("GET", "HEAD"):
            # Without any sign of its sender: the classic cross-site request of a form.
            raise UnsupportedMedia(
                "The server's key is not used for a text/plain body, which any web page can send. Send"
                " Content-Type: application/json.",
                param="content-type",
                code="unsupported_media_type",
            )

    def readable(self, send: Send) -> Send:
        """Return a `send` that adds the CORS headers to an answer, and drops those of the upstream, which
        could contradict them."""
        if not self.rules.allowed_origins or self.is_preflight:
            return send  # the upstream's own decide; `answer_preflight` writes all of them
        return with_headers(send, self._with_cors)

    async def answer_preflight(self, scope: ASGIScope, send: Send) -> None:
        asked = dict(scope["headers"])
        wanted, method = asked.get(b"access-control-request-headers", b""), self._header(_ASKED_METHOD)
        methods = _METHODS if method in _METHODS.split(b", ") or not _METHOD.fullmatch(method) else method
        headers = [
            *self._allowed(),
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", wanted if _TOKENS.fullmatch(wanted) else _HEADERS),
            (b"access-control-max-age", _MAX_AGE_S),
            (b"vary", b"Access-Control-Request-Headers, Access-Control-Request-Private-Network"),
        ]
        if asked.get(b"access-control-request-private-network") == b"true":
            headers.append((b"access-control-allow-private-network", b"true"))
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def wants_own_credential(self, scope: ASGIScope) -> bool:
        """True for a preflight of a request that will bring a credential of its own."""
        asked = [v for n, v in scope["headers"] if n == b"access-control-request-headers"]
        names = {name.strip().lower() for value in asked for name in value.split(b",")}
        return not names.isdisjoint(CREDENTIALS)

    def _with_cors(self, headers: list[Header]) -> list[Header]:
        vary = (b"vary", b"Origin")  # caches must not give this answer to another page
        if not self.origin:
            return [*headers, vary]
        others = [header for header in headers if not header[0].startswith(b"access-control-")]
        if self.visitor is not Visitor.ALLOWED:
            return [*others, vary]
        names = dict.fromkeys([name for name, _ in others if name not in _NOT_EXPOSED] + [b"x-request-id"])
        exposed = (b"access-control-expose-headers", b", ".join(names))
        timing = (b"timing-allow-origin", self.origin)  # for Server-Timing
        return [*others, exposed, timing, *self._allowed()]

    def _allowed(self) -> list[Header]:
        allowed = [(b"access-control-allow-origin", self.origin), (b"vary", b"Origin")]
        if self.visitor is Visitor.ALLOWED and not self.rules.allowed_origins.anyone:
            allowed.append((b"access-control-allow-credentials", b"true"))  # cookies of a proxy in front
        return allowed

    def _header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")

    def _is_referred_by_another(self) -> bool:
        """True for a page of another origin that an old browser names in Referer only."""
        referer = self._header(b"referer").decode("latin-1").lower()
        scheme, mark, rest = referer.partition("://")
        if self.origin or not mark or self._header(b"sec-fetch-site"):
            return False
        origin = f"{scheme}://{re.split('[/?#]', rest)[0]}"
        return origin not in self.rules.allowed_origins and not all(is_same(origin, h) for h in self.hosts)


def reason_of(error: ClientError) -> Reason | None:
    """Return the X-Memory-Reason of a refusal that these rules made."""
    return {"origin_not_allowed": Reason.FOREIGN_ORIGIN, "host_not_allowed": Reason.FOREIGN_HOST}.get(
        error.code or ""
    )


def foreign_page() -> Forbidden:
    return Forbidden(
        "Web pages of this origin may not use this proxy: add the origin to identity.allowed_origins.",
        param="origin",
        code="origin_not_allowed",
    )


def is_same(origin: str, host: str) -> bool:
    """True if the origin's host and port are those of the Host header. TLS may end in front of the proxy, so
    that the schemes say nothing."""
    scheme, mark, authority = origin.partition("://")
    port = _DEFAULT_PORTS.get(scheme, ":")
    return bool(mark and authority and host) and authority.removesuffix(port) == host.removesuffix(port)


def _values(headers: Iterable[Header], wanted: bytes) -> list[str]:
    return [value.strip().lower().decode("latin-1") for name, value in headers if name == wanted]


@lru_cache(maxsize=512)
def _name_of(host: str) -> tuple[str, bool]:
    """Return the name in a Host header without its port, and whether it is an IP address; "" for nonsense."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for nonsense
        plain = not (parts.path or parts.query or parts.fragment or "@" in host or "\\" in host)
        name = (parts.hostname or "") if plain else ""
    except ValueError:
        return "", False
    try:
        ipaddress.ip_address(name.removesuffix("."))
    except ValueError:
        return name, False
    return name, True
