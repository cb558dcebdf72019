"""Bare ASGI: request bodies, request ids, small answers, and our own errors in OpenAI's shape."""

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from starlette.types import ASGIApp as ASGIApp
from starlette.types import Message as Message
from starlette.types import Receive as Receive
from starlette.types import Send as Send

from proxy.domain.errors import (
    ClientError,
    Conflict,
    EmbeddingFailed,
    ProxyError,
    StoreError,
    TooLarge,
    UpstreamError,
    error_body,
)
from proxy.upstream.headers import REQUEST_ID, request_id_in
from proxy.wire import body as json_body
from proxy.wire.body import LARGE_BYTES

ASGIScope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]


def body_first(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, which has been read already, and then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def read_body(receive: Receive, most_bytes: int) -> bytes | None:
    """Return the body of the request, None if the client left. Raises TooLarge."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise too_large(most_bytes)
        if not message.get("more_body", False):
            return bytes(body)


def too_large(most_bytes: int) -> TooLarge:
    """Return the refusal of a body beyond `server.max_body_bytes`."""
    return TooLarge(
        f"The request body is larger than {most_bytes} bytes (server.max_body_bytes).",
        param="body",
        code="body_too_large",
    )


def error_of(error: ProxyError) -> tuple[int, dict[str, Any]]:
    """Return status and OpenAI's error object for one of our errors; unknown ones are a bare 500."""
    match error:
        case ClientError():
            return error.status, error_body(error.message, error.type, error.param, error.code)
        case UpstreamError():
            return error.status, error_body(error.message, "upstream_error", None, error.code)
        case Conflict():
            return 409, error_body(
                "The user's memories kept changing meanwhile; try again.", "server_error", None, "conflict"
            )
        case EmbeddingFailed():
            return 503, error_body(
                "The embedding model failed; nothing was changed. Try again.",
                "server_error",
                None,
                "embedding_failed",
            )
        case StoreError():
            return 503, error_body(
                "The memory store cannot be used at the moment: /health says why.",
                "server_error",
                None,
                "store_unavailable",
            )
        case _:
            return 500, error_body("Internal error.", "server_error", None, "internal_error")


async def send_bytes(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Iterable[Header] = ()
) -> None:
    """Send a whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, value: Any, headers: Iterable[Header] = ()) -> None:
    """Send a JSON answer. What it quotes of a request may hold half an emoji, and goes back as it came."""
    await send_bytes(send, status, json_body.dump(value), b"application/json", headers)


async def send_error(send: Send, error: ProxyError, headers: Iterable[Header] = ()) -> None:
    """Send one of our errors in OpenAI's shape."""
    status, body = error_of(error)
    await send_json(send, status, body, headers)


# ---------------------------------------------------------------- request ids
_SCOPE = "memory_proxy.request_id"


def request_id_of(headers: Iterable[Header]) -> str:
    """Return the client's own `X-Request-Id`, so that a line of the log tells whose it is; else a new one."""
    return request_id_in(headers) or f"req_{uuid4().hex}"


def give_request_id(scope: ASGIScope) -> str:
    """Note the request's id in the scope, and return it. Only the router does."""
    scope[_SCOPE] = id_ = request_id_of(scope["headers"])
    return id_


def request_id(scope: ASGIScope) -> str:
    """Return the id that the request was given."""
    id_: str = scope[_SCOPE]
    return id_


def with_request_id(headers: Iterable[Header], id_: str) -> list[Header]:
    """Return an answer's headers with the request's id, unless the upstream has given the answer one: that is
    what its provider asks for."""
    headers = list(headers)
    if all(name != REQUEST_ID for name, _ in headers):
        headers.append((REQUEST_ID, id_.encode()))
    return headers


# ---------------------------------------------------------------- large bodies
P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2  # more would not be quicker: most of it needs the interpreter's lock


class OffLoop:
    """Runs plain functions, those of large bodies in threads of its own. Others wait their turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "large-bodies")

    def takes(self, size: int) -> bool:
        """True if work on so many bytes is done in a thread."""
        return size >= LARGE_BYTES

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Return what the work returns. `size`: bytes of the body that it reads."""
        if not self.takes(size):
            return work(*args, **more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **more))


OFF_LOOP = OffLoop()
"""The threads of this process: they start with the first large body."""
