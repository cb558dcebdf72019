"""The one place where our own errors become answers, in OpenAI's shape.

Endpoints raise, and the application's exception handlers answer. An endpoint that has work left after the
answer sends it itself, with `send_error`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proxy.domain.errors import (
    ClientError,
    Conflict,
    EmbeddingFailed,
    StoreError,
    UpstreamError,
    error_body,
)
from proxy.http.asgi import Header, Send, send_bytes
from proxy.upstream.relay import log_failed
from proxy.wire import body as json_body


def error_of(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return status and OpenAI's error object; for anything but our errors a bare 500."""
    match error:
        case ClientError():
            return error.status, error_body(error.message, error.type, error.param, error.code)
        case UpstreamError():
            return error.status, error_body(error.message, "upstream_error", None, error.code)
        case Conflict():
            return 409, _server_error("The user's memories kept changing; try again.", "conflict")
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
