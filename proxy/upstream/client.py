"""The HTTP client of the upstream: sends the client's request unchanged to one OpenAI-compatible endpoint."""

import asyncio
from collections import deque
from urllib.parse import urljoin, urlsplit

from proxy import telemetry
from proxy.domain.base_url import DEFAULT_PORTS, BaseUrl, parse_base_url
from proxy.domain.core import Scope
from proxy.domain.errors import ConfigError, UpstreamBroken, UpstreamError, UpstreamTimeout
from proxy.domain.limits import TTLCache
from proxy.upstream.connection import (
    WIRE_ERRORS,
    Body,
    ConnectionLimits,
    Malformed,
    Timeouts,
    UpstreamConnection,
    UpstreamRequest,
    UpstreamResponse,
)
from proxy.upstream.network import Network, UpstreamRoute, open_connection, refused_by_proxy
from proxy.wire.http import CREDENTIALS, Headers

PREFIX = b"/v1"
_PROXY_WANTS_CREDENTIALS = 407
_HAS_CONTENT = ("POST", "PUT", "PATCH")  # methods that announce an empty body


class Upstream:
    """The endpoint at `base_url`, over a pool of connections. Made inside a running loop.

    Requests are written as bytes: no library normalises the target, adds a header, or sends one twice.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts | None = None,
        limits: ConnectionLimits | None = None,
        network: Network | None = None,
        api_key: str | None = None,
    ) -> None:
        """`api_key` is sent with requests that carry no credential of their own, and with no others: a
        client with a failing key does not get the server's. `network`: proxy and authorities;
        None: none but the system's. Raises ConfigError.
        """
        try:
            self.endpoint = parse_base_url(base_url)
        except ValueError as error:
            raise ConfigError(f"the base URL of an upstream {error}") from error
        self.origin = self.endpoint.origin
        self._base = b"" if self.endpoint.query else self.endpoint.path  # of most upstreams; else see target
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or ConnectionLimits()
        self._route = _route_to(self.endpoint, network or Network(), self._timeouts.connect_s)
        self._api_key = credential(self.endpoint, api_key) if api_key else []
        self._host = b"host: " + self.endpoint.authority.encode("ascii")
        self._pool = _Pool(self._route, self._limits)

    async def open(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: Body = None,
        *,
        content_length: int | None = None,
        upgrade: Headers | None = None,
    ) -> UpstreamResponse:
        """Send a request and return the answer, its status and headers there, its body still to come.

        `target` is the request target as received, from /v1 on: what follows /v1 reaches the upstream to
        the byte, and so do the headers. `body` may be an iterator, of `content_length` bytes or chunked. A
        request that provably never reached the upstream is sent once more; nothing else is. `upgrade`: the
        headers that ask for another protocol. Raises UpstreamError.
        """
        if not target.startswith(PREFIX):
            raise ValueError("the target must start with /v1")
        if self._api_key and not any(name in CREDENTIALS for name, _ in headers):
            headers = headers + self._api_key
        target = self._base + target[len(PREFIX) :] if self._base else self.endpoint.target(target)
        for _ in range(MAX_REDIRECTS):
            response = await self.send(
                method, target, headers, body, content_length=content_length, upgrade=upgrade
            )
            if response.status not in _REDIRECT_STATUSES:
                return response
            next_target = self._redirected(response, method, target, body)
            if next_target is None:
                return response
            target = next_target
        raise UpstreamBroken(f"The upstream {self.origin} redirects without end.", cause="redirect")

    @property
    def idle_s(self) -> float:
        """How long a tunnel may be silent."""
        return self._timeouts.read_s

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: Body = None,
        *,
        content_length: int | None = None,
        upgrade: Headers | None = None,
    ) -> UpstreamResponse:
        """As `open`, with a target on the upstream, and without the server's key."""
        request = self._request(
            method, target, telemetry.with_trace_headers(headers), body, content_length, upgrade
        )
        if upgrade or not isinstance(body, bytes | None):
            # It could not be sent again, so it does not go over a connection that may be stale.
            return await self._attempt(request, fresh=True)
        try:
            return await self._attempt(request)
        except _NeverReached:
            return await self._attempt(request, fresh=True)

    async def aclose(self) -> None:
        """Close every connection."""
        self._pool.close()
        await asyncio.sleep(0)  # in which the transports end

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _redirected(self, response: UpstreamResponse, method: str, target: bytes, body: Body) -> bytes | None:
        """Return the next target, None if the answer is passed on. Raises UpstreamBroken."""
        location = next((value for name, value in response.headers if name == b"location"), None)
        if location is None:
            return None
        try:
            found = redirect_target(self.endpoint, method, target, response.status, location)
            if found is not None and not isinstance(body, bytes | None):
                text = f"The upstream redirects ({response.status}), and an upload cannot be sent twice."
                raise UpstreamBroken(text, cause="redirect")
        except UpstreamBroken:
            response.close()
            raise
        if found is not None:
            response.close()
        return found

    def _request(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: Body,
        content_length: int | None,
        upgrade: Headers | None,
    ) -> UpstreamRequest:
        proxy = self._route.proxy
        absolute = proxy is not None and not self._route.tunnel and not upgrade
        origin = self.endpoint.origin.encode("ascii") if absolute else b""
        lines = [
            b"%s %s%s HTTP/1.1" % (method.encode("ascii"), origin, target),
            self._host,
            *[name + b": " + value for name, value in headers],
        ]
        if absolute and proxy is not None and proxy.authorization:
            lines.append(proxy.authorization)
        lines += [name + b": " + value for name, value in upgrade or ()]
        if isinstance(body, bytes):
            content_length = len(body) if body or method in _HAS_CONTENT else None
        chunked = content_length is None and not isinstance(body, bytes | None)
        if chunked:
            lines.append(b"transfer-encoding: chunked")
        elif content_length is not None:
            lines.append(b"content-length: %d" % content_length)
        head = b"\r\n".join((*lines, b"", b""))
        if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
            raise ValueError("a line break in the target or a header")
        return UpstreamRequest(method, head, body, chunked, upgrades=bool(upgrade))

    async def _attempt(self, request: UpstreamRequest, *, fresh: bool = False) -> UpstreamResponse:
        connection = await self._pool.take(fresh=fresh, tunnel=request.upgrades)
        response = UpstreamResponse(connection, self._limits, self._pool.give_back)
        try:
            await response.start(request, self._timeouts)
        except WIRE_ERRORS as error:
            response.close()
            raise self._explained(error, connection) from error
        except BaseException:
            response.close()
            raise
        if response.status == _PROXY_WANTS_CREDENTIALS and self._route.proxy is not None:
            response.close()  # over plain HTTP the proxy answers in the upstream's place
            raise refused_by_proxy(self._route, response.status)
        return response

    def _explained(self, error: BaseException, connection: UpstreamConnection) -> UpstreamError:
        if isinstance(error, TimeoutError):
            limit_s = f"{self._timeouts.headers_s:g} s (upstream.response_timeout_seconds)"
            text = f"The upstream {self.origin} did not answer within {limit_s}."
            return UpstreamTimeout(text, cause="response_timed_out")
        if connection.never_reached():
            return _NeverReached("The upstream closed the connection before the request arrived.")
        if isinstance(error, Malformed):
            text = f"What the upstream {self.origin} answered is no HTTP/1.1 ({error})."
            return UpstreamBroken(text, cause="malformed")
        text = f"The upstream {self.origin} broke off before it answered."
        return UpstreamBroken(text, cause=type(error).__name__)


def credential(at: BaseUrl, key: str) -> Headers:
    """Return the header that carries the operator's key: `api-key` at Azure's addresses with an api-version,
    which take no other key (a token of Entra is none), else `Authorization: Bearer`."""
    if b"api-version=" in at.query and key.count(".") != 2:
        return [(b"api-key", key.strip().encode("ascii"))]
    return [(b"authorization", b"Bearer " + key.strip().encode("ascii"))]


class _Pool:
    """Connections to one endpoint: the idle ones, newest last, and a bound on how many there are at once."""

    def __init__(self, route: UpstreamRoute, limits: ConnectionLimits) -> None:
        self._route, self._limits = route, limits
        self._loop = asyncio.get_running_loop()
        self._idle: deque[UpstreamConnection] = deque()
        self._connections: set[UpstreamConnection] = set()  # all, to be closed in the end
        self._slots = asyncio.Semaphore(limits.connections) if limits.connections else None
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self, *, fresh: bool, tunnel: bool) -> UpstreamConnection:
        """Return a connection: an idle one that is as good as new, or a new one. Raises UpstreamError."""
        if self._slots is not None:
            await self._wait_for(self._slots)
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.reusable():
                return connection
            self._drop(connection)
        try:
            connection = await open_connection(self._route, tunnel=tunnel)
        except BaseException:
            self._free_slot()
            raise
        connection.on_end = self._drop
        self._connections.add(connection)
        return connection

    def give_back(self, connection: UpstreamConnection, reusable: bool) -> None:
        """Take back a connection after its request has ended."""
        self._free_slot()
        if not reusable or not connection.connected:
            self._drop(connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.keepalive_s, self._close_old)

    def close(self) -> None:
        """Close all connections, those in use as well."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for connection in tuple(self._connections):
            connection.abort()
        self._connections.clear()

    def _free_slot(self) -> None:
        if self._slots is not None:
            self._slots.release()

    async def _wait_for(self, slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._route.timeout_s):
                await slots.acquire()
        except TimeoutError as error:
            limit = f"{self._limits.connections} (upstream.max_connections)"
            text = f"All connections to the upstream are in use: {limit}."
            raise UpstreamTimeout(text, cause="max_connections") from error

    def _drop(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        self._connections.discard(connection)
        connection.on_end = None
        connection.abort()

    def _close_old(self) -> None:
        self._sweep = None
        before = self._loop.time() - self._limits.keepalive_s
        while self._idle and self._idle[0].idle_since <= before:
            self._drop(self._idle[0])
        if self._idle:
            next_at = self._idle[0].idle_since + self._limits.keepalive_s
            self._sweep = self._loop.call_at(next_at, self._close_old)


class _NeverReached(UpstreamBroken):
    """Safe to send again."""


def _route_to(at: BaseUrl, network: Network, connect_s: float) -> UpstreamRoute:
    proxy = network.proxy_for(at)
    tls = network.tls if at.scheme == "https" else None
    proxy_tls = network.tls if proxy is not None and proxy.scheme == "https" else None
    return UpstreamRoute(at, proxy, tls, proxy_tls, connect_s)


# ---------------------------------------------------------------- redirects
# A client that followed one itself would bypass the proxy.
MAX_REDIRECTS = 5  # in a row
_REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))
_SAME_METHOD = frozenset((307, 308))
_ELSEWHERE = frozenset((302, 303, 307))  # the current address of a download, not a new one of the API
_READS = frozenset(("GET", "HEAD"))


def redirect_target(at: BaseUrl, method: str, target: bytes, status: int, location: bytes) -> bytes | None:
    """Return the target that the redirect names on the upstream's own origin; None for one to be passed on:
    a download that is elsewhere. Raises UpstreamBroken, which names the address, for all others.
    """
    base = f"{at.scheme}://{at.authority}"
    try:
        url = urljoin(base + target.decode("latin-1"), location.decode("latin-1").strip())
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UpstreamBroken("The upstream redirects to an invalid address.", cause="redirect") from error
    port = port or DEFAULT_PORTS.get(parts.scheme, 0)
    is_own = (parts.hostname, port, parts.scheme) == (at.host.lower(), at.port, at.scheme)
    # Behind a balancer that ends TLS, servers name their own scheme: http.
    behind_tls = at.scheme == "https" and at.port == 443 and parts.scheme == "http" and port == 80
    if is_own or (behind_tls and parts.hostname == at.host.lower()):
        if status in _SAME_METHOD or method in _READS:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return path.encode("latin-1")
        text = f"to {parts.path} with another method"
        raise UpstreamBroken(_refused(status, text, "is upstream.base_url right?"), cause="redirect")
    if method in _READS and status in _ELSEWHERE:
        return None
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    raise UpstreamBroken(_refused(status, f"to {origin}", "set upstream.base_url to it"), cause="redirect")


def _refused(status: int, where: str, remedy: str) -> str:
    return f"The upstream redirects ({status}) {where}, where the proxy does not follow: {remedy}."


# ---------------------------------------------------------------- the users' credentials
_CARRIED = CREDENTIALS | {b"openai-organization", b"openai-project"}


class Credentials:
    """The last credential of each user, for our own calls on the user's behalf. In memory only.

    The headers are those that the upstream sees: a key or token of the proxy is never among them, the
    upstream key that it maps to may be.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._by_user = TTLCache[tuple[str, str], Headers](limit)

    def remember(self, scope: Scope, headers: Headers) -> None:
        """Store what the upstream has just accepted for the user, or not refused. A request without a
        credential (the server's key is sent with it, or none is needed) replaces an older one, too."""
        self._by_user.put((scope.tenant, scope.user), [each for each in headers if each[0] in _CARRIED])

    def get(self, scope: Scope) -> Headers:
        """Return the headers that carry the user's credential, none if it is not known."""
        return list(self._by_user.get((scope.tenant, scope.user)) or ())

    def forget(self, scope: Scope) -> None:
        """Remove the user's credential."""
        self._by_user.pop((scope.tenant, scope.user))
