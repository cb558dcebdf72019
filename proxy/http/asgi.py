"""Bare ASGI: request bodies and small answers."""

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from starlette.types import ASGIApp as ASGIApp
from starlette.types import Message as Message
from starlette.types import Receive as Receive
from starlette.types import Send as Send

from proxy.domain.errors import TooLarge
from proxy.wire import body as json_body
from proxy.wire.body import LARGE_BYTES

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
