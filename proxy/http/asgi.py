"""Bare ASGI: request bodies, small answers, and errors.

Our own errors become answers here only, in OpenAI's shape. Endpoints raise, and the application's exception
handlers answer. An endpoint that has work left after the answer sends it itself, with `send_error`.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp as ASGIApp
from starlette.types import Message as Message
from starlette.types import Receive as Receive
from starlette.types import Send as Send

from proxy.domain.errors import (
    ClientError,
    Conflict,
    EmbeddingFailed,
    StoreError,
    TooLarge,
    UpstreamError,
    error_body,
)
from proxy.upstream.relay import log_failed
from proxy.wire import body as json_body

ASGIScope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]


# ---------------------------------------------------------------- bodies
async def read_body(receive: Receive, most_bytes: int) -> bytes | None:
    """Return the request's body, None if the client left. Raises TooLarge."""
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


def body_first(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that has been read already, then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def too_large(most_bytes: int) -> TooLarge:
    """Return the refusal of a body beyond `server.max_body_bytes`."""
    return TooLarge(
        f"The request body is larger than {most_bytes} bytes (server.max_body_bytes).",
        param="body",
        code="body_too_large",
    )


# ---------------------------------------------------------------- answers
async def send_bytes(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Iterable[Header] = ()
) -> None:
    """Send a whole answer."""
    own = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, value: Any, headers: Iterable[Header] = ()) -> None:
    """Send a JSON answer. Half an emoji quoted from a request is returned as it came."""
    await send_bytes(send, status, json_body.dump(value), b"application/json", headers)


def with_headers(send: Send, more: Callable[[list[Header]], list[Header]]) -> Send:
    """Return a `send` that passes the answer's headers through `more`."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": more(list(message.get("headers", ())))}
        await send(message)

    return sending


REQUEST_ID_KEY = "memory_proxy.request_id"  # in the scope


# ---------------------------------------------------------------- errors
def error_of(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return status and OpenAI's error object; for anything but our errors a bare 500."""
    match error:
        case ClientError():
            return error.status, error_body(error.message, error.type, error.param, error.code)
        case UpstreamError():
            return error.status, error_body(error.message, "upstream_error", None, error.code)
        case Conflict():
            return 409, _server_error("The user's memories changed again and again; try again.", "conflict")
        case EmbeddingFailed():
            message = "The embedding model failed; nothing was changed. Try again."
            return 503, _server_error(message, "embedding_failed")
        case StoreError():
            message = "The memory store cannot be used at the moment: /health says why."
            return 503, _server_error(message, "store_unavailable")
        case _:
            return 500, _server_error("Internal error.", "internal_error")


async def send_error(send: Send, error: Exception, headers: Iterable[Header] = ()) -> None:
    """Send the answer to an error, with these headers added to its own."""
    status, body, own = _answer_to(error)
    await send_bytes(send, status, body, b"application/json", [*own, *headers])


async def answer(request: Request, error: Exception) -> Response:
    """Return the answer to an error that an endpoint has raised, as Starlette's handlers do."""
    status, body, headers = _answer_to(error)
    response = Response(body, status, media_type="application/json")
    response.raw_headers.extend(headers)
    return response


def _answer_to(error: Exception) -> tuple[int, bytes, Sequence[Header]]:
    """Return status, body and headers. Upstream failures are logged here."""
    if isinstance(error, UpstreamError):
        log_failed(error)
    status, body = error_of(error)
    return status, json_body.dump(body), error.headers if isinstance(error, ClientError) else ()


def _server_error(message: str, code: str) -> dict[str, Any]:
    return error_body(message, "server_error", None, code)
