"""The relay: forwards the upstream's answer to the client, byte for byte, as it arrives."""

import asyncio
from collections.abc import MutableMapping, Sequence
from enum import StrEnum
from typing import Any

import orjson

from proxy.domain.errors import UpstreamCut, UpstreamError, error_body
from proxy.upstream import troubles
from proxy.upstream.client import PREFIX, Upstream
from proxy.upstream.downstream import Downstream, Receive, Send
from proxy.upstream.headers import request_headers, with_ours
from proxy.upstream.opened import Opened

HTTPScope = MutableMapping[str, Any]


class Ending(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CUT = "upstream_cut"


class Tap:
    """References to the chunks that passed, up to `limit_bytes`; what comes later is not kept."""

    __slots__ = ("_limit_bytes", "chunks", "size", "truncated")

    def __init__(self, limit_bytes: int = 8 * 1024 * 1024) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.truncated = False
        self._limit_bytes = limit_bytes

    def add(self, chunk: bytes) -> None:
        """Keep the chunk, unless it or one before it went over the limit."""
        if self.truncated or self.size + len(chunk) > self._limit_bytes:
            self.truncated = True
            return
        self.chunks.append(chunk)
        self.size += len(chunk)


async def relay(
    opened: Opened,
    downstream: Downstream,
    send: Send,
    *,
    extra_headers: Sequence[tuple[bytes, bytes]] = (),
    tap: Tap | None = None,
) -> Ending:
    """Pass the answer on and return how it ended. `opened` is closed in any case, and `downstream` entered.

    Bytes pass as they come; `tap` sees them too. A client that leaves breaks the upstream off at once. An
    upstream that breaks off leaves the client's answer without its end, as it would have been without us:
    the last message is then never sent, and the server closes the connection.
    """
    if opened.status >= 400:
        troubles.refused(opened.status, opened.headers)
    with opened:
        try:
            headers = with_ours(opened.headers, extra_headers) if extra_headers else opened.headers
            await send({"type": "http.response.start", "status": opened.status, "headers": headers})
            last = False
            while not last:
                chunk = await opened.read()
                last = opened.at_end
                if tap is not None:
                    tap.add(chunk)
                if last:
                    downstream.settle()
                await send({"type": "http.response.body", "body": chunk, "more_body": not last})
        except UpstreamCut:
            troubles.cut()
            return Ending.UPSTREAM_CUT
        except asyncio.CancelledError:
            if not downstream.absorb():
                raise
            return Ending.CLIENT_LEFT
    return Ending.COMPLETE


async def passthrough(scope: HTTPScope, receive: Receive, send: Send, upstream: Upstream) -> Ending:
    """Forward a request of a route that is not ours, and its answer, untouched."""
    async with Downstream(receive) as downstream:
        body = await downstream.body()
        try:
            opened = await upstream.open(
                scope["method"],
                raw_target(scope),
                request_headers(scope["headers"]),
                body,
                content_length=_content_length(scope),
            )
        except UpstreamError as error:
            troubles.failed(error)
            downstream.settle()
            await send_upstream_error(send, error)
            return Ending.UPSTREAM_CUT
        return await relay(opened, downstream, send)
    return Ending.CLIENT_LEFT


async def send_upstream_error(send: Send, error: UpstreamError) -> None:
    """Answer with OpenAI's error object, where nothing has been answered yet."""
    body = orjson.dumps(error_body(error.message, "upstream_error", None, error.code))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def raw_target(scope: HTTPScope) -> bytes:
    """Return the request target as the client wrote it, as far as the server has kept it."""
    target: bytes = scope.get("raw_target", b"")
    if target.startswith(PREFIX):
        return target
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path


def _content_length(scope: HTTPScope) -> int | None:
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)
