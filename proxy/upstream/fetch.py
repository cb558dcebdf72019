"""Fetch one small document from one address: an identity provider's keys."""

import aiohttp

from proxy.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable

MOST_BYTES = 1_000_000


async def fetch(url: str, *, timeout_s: float = 3.0) -> bytes:
    """Return the document at the URL. Raises UpstreamError.

    No redirect is followed: what is to be trusted is what this very address answers. Proxies of the
    environment are not used either.
    """
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False, headers={"accept": "application/json"}) as answer,
        ):
            return await _document(answer)
    except TimeoutError as error:
        raise UpstreamTimeout("no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise UpstreamUnreachable("the address cannot be reached") from error


async def _document(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of a successful answer, of at most MOST_BYTES. Raises UpstreamBroken."""
    if answer.status != 200:
        raise UpstreamBroken(f"status {answer.status}")
    document = bytearray()
    async for chunk in answer.content.iter_any():
        document += chunk
        if len(document) > MOST_BYTES:
            raise UpstreamBroken("the document is absurdly long")
    return bytes(document)
