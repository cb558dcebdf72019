"""Fetch one small document from one address: an identity provider's keys."""

import asyncio
from collections.abc import AsyncIterator

from proxy.domain.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.network import Network

MOST_BYTES = 1_000_000


async def fetch(url: str, *, timeout_s: float = 3.0, network: Network | None = None) -> bytes:
    """Return the document at the URL. Raises UpstreamError.

    No redirect is followed: what is to be trusted is what this very address answers.
    """
    # Imported where it is needed: most processes fetch nothing, and httpx takes a tenth of a second.
    import httpx

    from proxy.upstream.httpx_transport import Transport

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
