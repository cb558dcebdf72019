"""Fetch one small document from one address: an identity provider's keys."""

import asyncio
from urllib.parse import urlsplit

from proxy.errors import ConfigError, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.client import Upstream
from proxy.upstream.network import Network

MOST_BYTES = 1_000_000


async def fetch(url: str, *, timeout_s: float = 3.0, network: Network | None = None) -> bytes:
    """Return the document at the URL. Raises UpstreamError.

    No redirect is followed: what is to be trusted is what this very address answers.
    """
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    headers = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    try:
        async with (
            asyncio.timeout(timeout_s),
            Upstream(f"{parts.scheme}://{parts.netloc}", network=network) as upstream,
        ):
            with await upstream.send("GET", target.encode(), headers) as answer:
                if answer.status != 200:
                    raise UpstreamBroken(f"status {answer.status}")
                document = bytearray()
                while chunk := await answer.read():
                    document += chunk
                    if len(document) > MOST_BYTES:
                        raise UpstreamBroken("the document is absurdly long")
                return bytes(document)
    except TimeoutError as error:
        raise UpstreamTimeout("no answer in time") from error
    except (ConfigError, ValueError) as error:
        raise UpstreamUnreachable("the address cannot be reached") from error
