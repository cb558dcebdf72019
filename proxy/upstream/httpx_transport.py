"""httpx over the relay's own client: the same connections, proxies, authorities and causes of failure.

For the proxy's own calls. Tests replace it by `httpx.MockTransport`, or by respx.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx

from proxy.domain.errors import ConfigError, UpstreamBroken, UpstreamCut, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.client import Upstream
from proxy.upstream.connection import Timeouts, UpstreamResponse
from proxy.upstream.network import Network

_FRAMING = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection"))


class Transport(httpx.AsyncBaseTransport):
    """One pool per origin. Redirects are the client's affair; the limits of time are `timeouts`."""

    def __init__(self, network: Network | None = None, *, timeouts: Timeouts | None = None) -> None:
        self._network, self._timeouts = network, timeouts
        self._upstreams: dict[str, Upstream] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; the answer's body is still to come. Raises httpx.TransportError."""
        with _mapped(request):
            opened = await self._upstream(request.url).send(
                request.method,
                request.url.raw_path,
                [(n.lower(), value) for n, value in request.headers.raw if n.lower() not in _FRAMING],
                _body(request),
            )
        return httpx.Response(opened.status, headers=opened.headers, stream=_Stream(opened, request))

    async def aclose(self) -> None:
        """Close every connection."""
        for upstream in self._upstreams.values():
            await upstream.aclose()
        self._upstreams.clear()

    def _upstream(self, url: httpx.URL) -> Upstream:
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if origin not in self._upstreams:
            self._upstreams[origin] = Upstream(origin, network=self._network, timeouts=self._timeouts)
        return self._upstreams[origin]


class _Stream(httpx.AsyncByteStream):
    def __init__(self, opened: UpstreamResponse, request: httpx.Request) -> None:
        self._opened, self._request = opened, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped(self._request):
            while chunk := await self._opened.read():
                yield chunk

    async def aclose(self) -> None:
        self._opened.close()


def _body(request: httpx.Request) -> bytes | AsyncIterator[bytes]:
    try:
        return request.content
    except httpx.RequestNotRead:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        return aiter(request.stream)


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


MOST_BYTES = 1_000_000


async def fetch(url: str, *, timeout_s: float = 3.0, network: Network | None = None) -> bytes:
    """Return the document at the URL. Raises UpstreamError.

    No redirect is followed: what is to be trusted is what this very address answers.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(transport=Transport(network)) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            return await _document(answer.status_code, answer.aiter_raw())
    except (TimeoutError, httpx.TimeoutException) as error:
        raise UpstreamTimeout("no answer in time") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise UpstreamUnreachable(f"the address cannot be reached: {error}") from error


async def _document(status: int, body: AsyncIterator[bytes]) -> bytes:
    """Return the body of a successful answer, of at most MOST_BYTES. Raises UpstreamBroken."""
    if status != 200:
        raise UpstreamBroken(f"status {status}")
    document = bytearray()
    async for chunk in body:
        document += chunk
        if len(document) > MOST_BYTES:
            raise UpstreamBroken("the document is absurdly long")
    return bytes(document)
