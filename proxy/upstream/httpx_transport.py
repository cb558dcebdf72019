"""httpx over the relay's own client: the same connections, proxies, authorities and causes of failure.

For the proxy's own calls. Tests replace it by `httpx.MockTransport`, or by respx.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import httpx

from proxy.domain.errors import (
    ConfigError,
    UpstreamBroken,
    UpstreamCut,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.upstream.client import Upstream
from proxy.upstream.connection import Body, Timeouts, UpstreamResponse
from proxy.upstream.network import Network
from proxy.wire.http import Headers

_FRAMING = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection"))
MOST_BYTES = 1_000_000  # of a document


class UpstreamTransport(httpx.AsyncBaseTransport):
    """Sends every request to one Upstream, whatever host the URL names, as `Upstream.open` does: `/v1/X`
    becomes a path under the base URL, which may be a Unix socket. The Upstream belongs to the caller."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; the answer's body is still to come. Raises httpx.TransportError."""
        headers = [
            (name.lower(), value) for name, value in request.headers.raw if name.lower() not in _FRAMING
        ]
        try:
            body: Body = request.content
        except httpx.RequestNotRead:
            assert isinstance(request.stream, httpx.AsyncByteStream)
            body = aiter(request.stream)
        with _mapped(request):
            opened = await self._sender(request.url)(request.method, request.url.raw_path, headers, body)
        return httpx.Response(opened.status, headers=opened.headers, stream=_Stream(opened, request))

    def _sender(self, url: httpx.URL) -> Callable[..., Awaitable[UpstreamResponse]]:
        return self._upstream.open


class Transport(UpstreamTransport):
    """One pool per origin. Redirects are the client's affair; the limits of time are `timeouts`."""

    def __init__(self, network: Network | None = None, *, timeouts: Timeouts | None = None) -> None:
        self._network, self._timeouts = network, timeouts
        self._upstreams: dict[str, Upstream] = {}

    def _sender(self, url: httpx.URL) -> Callable[..., Awaitable[UpstreamResponse]]:
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if origin not in self._upstreams:
            self._upstreams[origin] = Upstream(origin, network=self._network, timeouts=self._timeouts)
        return self._upstreams[origin].send

    async def aclose(self) -> None:
        """Close every connection."""
        for upstream in self._upstreams.values():
            await upstream.aclose()
        self._upstreams.clear()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, opened: UpstreamResponse, request: httpx.Request) -> None:
        self._opened, self._request = opened, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped(self._request):
            while chunk := await self._opened.read():
                yield chunk

    async def aclose(self) -> None:
        self._opened.close()


@contextmanager
def _mapped(request: httpx.Request) -> Iterator[None]:
    """Raise httpx's errors for ours."""
    try:
        yield
    except ConfigError as error:
        raise httpx.UnsupportedProtocol(str(error), request=request) from error
    except UpstreamUnreachable as error:
        raise httpx.ConnectError(error.message, request=request) from error
    except UpstreamTimeout as error:
        is_connecting = error.cause != "response_timed_out"
        kind = httpx.ConnectTimeout if is_connecting else httpx.ReadTimeout
        raise kind(error.message, request=request) from error
    except UpstreamBroken as error:
        raise httpx.RemoteProtocolError(error.message, request=request) from error
    except UpstreamCut as error:
        raise httpx.ReadError(error.message, request=request) from error


async def exchange(
    transport: httpx.AsyncBaseTransport,
    method: str,
    url: str,
    headers: Headers,
    body: bytes | None = None,
    *,
    max_bytes: int,
) -> tuple[int, Headers, bytes]:
    """Send one request and return status, headers and body of the answer, as they were sent.

    Raises UpstreamError, also for a body of more than `max_bytes`. The client is used once, because httpx's
    clients store cookies: those of an answer to one user must not be sent with a call for another.
    """
    answer = bytearray()
    try:
        async with (
            httpx.AsyncClient(transport=transport) as client,
            client.stream(method, url, headers=headers, content=body) as response,
        ):
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for chunk in response.stream:  # aiter_raw() cannot read the responses of mocks
                answer += chunk
                if len(answer) > max_bytes:
                    raise UpstreamBroken("the answer is absurdly long")
            return response.status_code, response.headers.raw, bytes(answer)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        if isinstance(error.__cause__, UpstreamError):  # a transport of ours has mapped it
            raise error.__cause__ from error.__cause__.__cause__
        if isinstance(error, httpx.TimeoutException):
            raise UpstreamTimeout("no answer in time") from error
        if isinstance(error, httpx.ConnectError | httpx.InvalidURL):
            raise UpstreamUnreachable(f"the address cannot be reached: {error}") from error
        raise UpstreamBroken(f"no valid answer: {error}") from error


async def fetch(url: str, *, timeout_s: float = 3.0, network: Network | None = None) -> bytes:
    """Return the document at the URL, of at most MOST_BYTES. Raises UpstreamError.

    No redirect is followed: what is to be trusted is what this very address answers.
    """
    headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    try:
        async with asyncio.timeout(timeout_s):
            status, _, document = await exchange(
                Transport(network), "GET", url, headers, max_bytes=MOST_BYTES
            )
    except TimeoutError as error:
        raise UpstreamTimeout("no answer in time") from error
    if status != 200:
        raise UpstreamBroken(f"status {status}")
    return document
