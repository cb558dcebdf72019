"""Whole small answers over bare ASGI, and OpenAI's error shape for our own errors."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

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
from proxy.wire import body as json_body

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
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
