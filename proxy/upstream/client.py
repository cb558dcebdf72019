"""The HTTP client of the upstream: one OpenAI-compatible endpoint, sent the client's request as it came."""

import ssl
from types import TracebackType
from urllib.parse import urlsplit

from aiohttp import ClientConnectionError, ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from yarl import URL

from proxy import tracing
from proxy.errors import ConfigError, UpstreamBroken, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.headers import CREDENTIALS, Headers
from proxy.upstream.link import Connector, Link
from proxy.upstream.opened import WIRE_ERRORS, Body, Limits, Opened, Request, Timeouts

PREFIX = b"/v1"
_HAS_CONTENT = ("POST", "PUT", "PATCH")  # methods whose empty body is said to be empty


class Upstream:
    """The endpoint at `base_url` (ending in /v1), over a pool of connections. Made inside a running loop.

    Of aiohttp it uses connections and the parser of answers, below the session: requests are written as
    bytes, since a session would normalise the target, add headers, and send some requests twice.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        tls: ssl.SSLContext | bool = True,
        api_key: str | None = None,
    ) -> None:
        """`api_key` goes with requests that carry no Authorization of their own, and with no others: a
        client whose own key fails is not helped out with the server's. `tls`: how the upstream's
        certificate is checked; False: not at all. Raises ConfigError.
        """
        self.origin, self._path = _split(base_url)
        self._api_key = f"Bearer {api_key.strip()}".encode("ascii") if api_key else None
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or Limits()
        self._destination = ClientRequest("GET", self.origin)  # what a connector wants to be asked with
        self._host = str(self._destination.headers["Host"]).encode("ascii")
        connect_s = self._timeouts.connect_s
        self._connect_timeout = ClientTimeout(
            total=None, connect=connect_s, sock_connect=connect_s, ceil_threshold=connect_s + 1
        )
        self._pool = Connector(tls=tls, limit=self._limits.connections, keepalive_s=self._limits.keepalive_s)
        self._fresh = Connector(tls=tls, keepalive_s=None)

    async def open(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: Body = None,
        *,
        content_length: int | None = None,
    ) -> Opened:
        """Send a request and return the answer, its status and headers there, its body still to come.

        `target` is the request target as received, from /v1 on: it reaches the upstream to the byte, and
        so do the headers. `body` may be an iterator, of `content_length` bytes or chunked. A request that
        provably never reached the upstream is sent once more; nothing else is. Raises UpstreamError.
        """
        request = self._request(method, target, tracing.passed_on(headers), body, content_length)
        if not isinstance(body, bytes | None):
            # It could not be sent again, so it does not go over a connection that may be stale.
            return await self._attempt(request, self._fresh)
        try:
            return await self._attempt(request, self._pool)
        except _NeverReached:
            return await self._attempt(request, self._fresh)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.close()
        await self._fresh.close()

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _request(
        self, method: str, target: bytes, headers: Headers, body: Body, content_length: int | None
    ) -> Request:
        if not target.startswith(PREFIX):
            raise ValueError("the target must start with /v1")
        lines = [
            b"%s %s%s HTTP/1.1" % (method.encode("ascii"), self._path, target.removeprefix(PREFIX)),
            b"host: " + self._host,
            *(name + b": " + value for name, value in headers),
        ]
        if self._api_key and not any(name in CREDENTIALS for name, _ in headers):
            lines.append(b"authorization: " + self._api_key)
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
        return Request(method, head, body, chunked)

    async def _attempt(self, request: Request, connector: Connector) -> Opened:
        opened = Opened(await self._connect(connector))
        try:
            await opened.start(request, self._timeouts, self._limits)
        except WIRE_ERRORS as error:
            opened.close()
            raise self._explain(error, opened.link) from error
        except BaseException:
            opened.close()
            raise
        return opened

    async def _connect(self, connector: Connector) -> Connection:
        while True:
            try:
                connection = await connector.connect(self._destination, [], self._connect_timeout)
            except TimeoutError as error:
                raise UpstreamTimeout(f"Could not connect to the upstream {self.origin} in time.") from error
            except (ClientConnectionError, OSError) as error:
                raise UpstreamUnreachable(f"Could not connect to the upstream {self.origin}.") from error
            link = connection.protocol
            assert isinstance(link, Link)
            if not link.used or link.reusable():
                return connection
            connection.close()  # one fewer in the pool: the loop ends

    def _explain(self, error: BaseException, link: Link) -> UpstreamError:
        if isinstance(error, TimeoutError):
            return UpstreamTimeout(f"The upstream {self.origin} did not answer in time.")
        if link.never_reached():
            return _NeverReached("The upstream closed the connection before the request arrived.")
        return UpstreamBroken(f"The upstream {self.origin} broke off before it answered.")


class _NeverReached(UpstreamBroken):
    """Safe to send again."""


def _split(base_url: str) -> tuple[URL, bytes]:
    """Return the origin, and the path as it is written."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the base URL of an upstream must be http(s)://host[:port]/…/v1, not {base_url!r}")
    if parts.username or parts.query or parts.fragment:
        raise ConfigError("the base URL of an upstream must hold no credentials, query or fragment")
    if not path.endswith("/v1"):
        raise ConfigError(f"the base URL of an upstream must end in /v1: {base_url!r}")
    return URL(base_url).origin(), path.encode("ascii")
