"""Bare ASGI: request bodies, plain and compressed, small answers, and errors.

Our own errors become answers here only, in OpenAI's shape. Endpoints raise, and the application's exception
handlers answer. An endpoint that has work left after the answer sends it itself, with `send_error`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

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
    InvalidRequest,
    StoreError,
    TooLarge,
    UnsupportedMedia,
    UpstreamError,
    error_body,
)
from proxy.upstream.relay import log_failed
from proxy.wire import body as json_body
from proxy.wire.body import LARGE_BYTES
from proxy.wire.http import CODINGS, MAX_CODINGS, Undecodable, named_codings

ASGIScope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]
P = ParamSpec("P")
T = TypeVar("T")


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


class OffLoop:
    """Runs work on large bodies in two threads, off the event loop, and on small ones at once. More threads
    would not be quicker: most of the work needs the interpreter's lock."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "large-bodies")

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Return what the work returns. `size`: bytes of the body that it reads."""
        if size < LARGE_BYTES:
            return work(*args, **more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **more))


OFF_LOOP = OffLoop()


# ---------------------------------------------------------------- compressed bodies
FREE_BYTES = 8 * 1024 * 1024
MAX_RATIO = 200  # repetitive text reaches 100; bombs of gzip have 1,000, others a million


@dataclass(frozen=True, slots=True)
class Decoded:
    """An app that gets the bodies of its requests decoded (RFC 9110, section 8.4), within bounds.

    `Content-Encoding` lists the encodings in the order in which the client applied them; they are undone
    from the last to the first. Each step yields small pieces, so that a decompression bomb costs constant
    memory: it is refused once a step has made more bytes than the limit, or (beyond FREE_BYTES) more than
    MAX_RATIO times what was sent.
    """

    app: ASGIApp
    max_bytes: int  # of the body, compressed and decoded

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        encodings = encodings_of(scope["headers"])
        if not encodings:
            await self.app(scope, receive, send)
            return
        raw = await read_body(receive, self.max_bytes)
        if raw is None:
            return  # the client left
        body = await asyncio.to_thread(decoded, raw, encodings, self.max_bytes)
        headers = [h for h in scope["headers"] if h[0] not in (b"content-encoding", b"content-length")]
        headers = [h for h in headers if h[0] != b"transfer-encoding"]
        headers.append((b"content-length", b"%d" % len(body)))
        await self.app({**scope, "headers": headers}, body_first(body, receive), send)


def encodings_of(headers: Sequence[Header]) -> list[str]:
    """Return the encodings of the body, in the order in which they were applied. Raises UnsupportedMedia."""
    values = [value for name, value in headers if name == b"content-encoding"]
    if not values:
        return []
    found = named_codings(b",".join(values).decode("latin-1"))
    if unknown := [name for name in found if name not in CODINGS]:
        raise _unsupported(f"'{unknown[0][:32]}' cannot be read. Accepted: {', '.join(CODINGS)}.")
    if len(found) > MAX_CODINGS:
        raise _unsupported(f"is applied {len(found)} times; at most {MAX_CODINGS} are read.")
    return found


def _unsupported(reason: str) -> UnsupportedMedia:
    error = UnsupportedMedia(
        f"Content-Encoding {reason}", param="content-encoding", code="unsupported_encoding"
    )
    error.headers = ((b"accept-encoding", ", ".join(CODINGS).encode()),)
    return error


def decoded(raw: bytes, encodings: Sequence[str], max_bytes: int) -> bytes:
    """Return the body without its encodings. Raises TooLarge for a bomb, InvalidRequest for a body that is
    cut off or not encoded so. No bytes at all are an empty body, whatever their encoding."""
    if not raw:
        return raw
    pieces: Iterator[bytes] = iter((raw,))
    for name in reversed(encodings):
        pieces = _bounded(_stepwise(pieces, name), len(raw), max_bytes)
    return b"".join(pieces)


def _bounded(pieces: Iterator[bytes], raw_bytes: int, max_bytes: int) -> Iterator[bytes]:
    made, most = 0, min(max_bytes, max(FREE_BYTES, raw_bytes * MAX_RATIO))
    for piece in pieces:
        made += len(piece)
        if made > max_bytes:
            raise too_large(max_bytes)
        if made > most:
            raise TooLarge(
                f"The compressed body is larger than {MAX_RATIO} times what was sent: send it plain.",
                param="content-encoding",
                code="body_too_large",
            )
        yield piece


def _unreadable(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request body could not be decoded as {name}: {why}.",
        param="content-encoding",
        code="invalid_encoding",
    )


def _stepwise(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    coding = CODINGS[name]()
    try:
        for piece in pieces:
            yield from coding.feed(piece)
    except Undecodable:
        raise _unreadable(name, "it is damaged, or not encoded so") from None
    if not coding.whole:
        raise _unreadable(name, "it ends too early")


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


def request_id(scope: ASGIScope) -> str:
    """Return the id that the router gave the request."""
    id_: str = scope[REQUEST_ID_KEY]
    return id_


# ---------------------------------------------------------------- errors
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
