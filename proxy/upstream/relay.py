"""The relay: forwards requests and answers byte for byte, as they arrive.

`Downstream` is the client's side (its body, and its disconnect), `relay` passes an answer on, `passthrough` a
whole request of a route that is not intercepted, and `tunnelled` a WebSocket.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from proxy import telemetry
from proxy.domain.errors import TooLarge, UpstreamCut, UpstreamError
from proxy.upstream.client import PREFIX, Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.wire.http import Headers, request_headers, request_id_in, with_ours

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientLeft(Exception):
    """The client disconnected before its request was complete."""


CLIENT_CONNECTION = "memory_proxy.client_connection"  # the key in the scope


class ClientConnection:
    """What our server's protocol does beyond ASGI: it reports the client's disconnect, and takes pieces of an
    answer at once.

    That saves each request a task that waits in `receive`, and each piece of a stream a turn of the loop.
    """

    __slots__ = ("_closed", "_notify", "push")

    def __init__(self, push: Callable[[bytes], bool] = lambda data: False) -> None:
        """`push` writes a piece of the answer that is under way, unless it returns False: then `send` must
        be used, which waits for a slow client."""
        self.push = push
        self._closed = False
        self._notify: Callable[[], None] | None = None

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify`, and no other function any more, when the client disconnects, or soon if it has."""
        self._notify = notify
        if self._closed:
            asyncio.get_running_loop().call_soon(notify)

    def ignore(self, notify: Callable[[], None]) -> None:
        """Call `notify` no more. The connection's next request may have begun: its own function stays."""
        if self._notify == notify:
            self._notify = None

    def closed(self) -> None:
        """The client has disconnected."""
        self._closed = True
        if self._notify is not None:
            self._notify()


class Downstream:
    """The client's side of an exchange, read from `receive`.

    `async with` it around all work done for the client: when the client disconnects, the block is cancelled
    and ends without an error, with `left` true. uvicorn's send is silent after a disconnect; only receive
    and our protocol's `connection` report it. It is watched for once the request's body has been read to its
    end.
    """

    def __init__(self, receive: Receive, connection: ClientConnection | None = None) -> None:
        self.left = False
        self._receive, self._connection = receive, connection
        self._body_complete = False
        self._task: asyncio.Task[Any] | None = None  # which does the work
        self._watcher: asyncio.Task[None] | None = None
        self._cancelled = False

    async def read(self, limit_bytes: int) -> bytes:
        """Return the whole body. Raises TooLarge, or ClientLeft."""
        chunks: list[bytes] = []
        size = 0
        while not self._body_complete:
            chunks.append(await self._next())
            size += len(chunks[-1])
            if size > limit_bytes:
                raise TooLarge(f"The request body is larger than {limit_bytes} bytes.")
        return b"".join(chunks)

    async def body(self) -> bytes | AsyncIterator[bytes]:
        """Return the body if it came in one piece, as small ones do, else an iterator over it."""
        first = await self._next()
        return first if self._body_complete else self._stream(first)

    def push(self, data: bytes) -> bool:
        """Write a piece of the answer at once; False if only `send` can."""
        return self._connection is not None and self._connection.push(data)

    def settle(self) -> None:
        """The response is complete: ignore later disconnects."""
        self._task = None

    def hold(self) -> Callable[[], None]:
        """Ignore the client's disconnect from now on; return a function that ends the work instead."""
        self._watch_no_more()
        return self._leave

    def absorb(self) -> bool:
        """Return True if the CancelledError just caught means only that the client has disconnected."""
        if not self._cancelled:
            return False
        self._cancelled = False
        task = asyncio.current_task()
        return task is not None and task.uncancel() == 0

    async def __aenter__(self) -> "Downstream":
        self._task = asyncio.current_task()
        self._watch_if_complete()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._task = None
        self._watch_no_more()
        if isinstance(error, asyncio.CancelledError):
            return self.absorb()
        return isinstance(error, ClientLeft)

    async def _stream(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        while not self._body_complete:
            yield await self._next()

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
            raise ClientLeft
        self._body_complete = not message.get("more_body", False)
        self._watch_if_complete()
        return message.get("body", b"")  # type: ignore[no-any-return]

    def _watch_if_complete(self) -> None:
        if not self._body_complete or self._task is None:
            return
        if self._connection is not None:
            self._connection.watch(self._leave)
        elif self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

    def _watch_no_more(self) -> None:
        if self._connection is not None:
            self._connection.ignore(self._leave)
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self._body_complete and self._task is None:
            return  # settled
        self.left = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._cancelled = True
            self._task.cancel()


HTTPScope = MutableMapping[str, Any]


class Ending(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CUT = "upstream_cut"


class Tap:
    """References to the chunks that passed, up to `limit_bytes` in all."""

    __slots__ = ("_limit_bytes", "chunks", "size", "truncated")

    def __init__(self, limit_bytes: int = 8 * 1024 * 1024) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.truncated = False
        self._limit_bytes = limit_bytes

    def add(self, chunk: bytes) -> None:
        """Store the chunk, unless it or one before it exceeds the limit."""
        if self.truncated or self.size + len(chunk) > self._limit_bytes:
            self.truncated = True
            return
        self.chunks.append(chunk)
        self.size += len(chunk)


async def relay(
    response: UpstreamResponse,
    downstream: Downstream,
    send: Send,
    *,
    extra_headers: Sequence[tuple[bytes, bytes]] = (),
    tap: Tap | None = None,
) -> Ending:
    """Pass the answer on and return how it ended. `response` is closed in any case, and `downstream` entered.

    Bytes pass as they come; `tap` sees them too. If the client disconnects, the upstream's answer is broken
    off at once. If the upstream breaks off, the last message is not sent and the server closes the
    connection, as it would have been without the proxy.
    """
    if response.status >= 400:
        log_refused(response.status, response.headers)
    tap = tap or Tap(limit_bytes=0)

    def push(chunk: bytes) -> bool:
        pushed = downstream.push(chunk)
        if pushed:
            tap.add(chunk)
        return pushed

    with response:
        try:
            headers = with_ours(response.headers, extra_headers) if extra_headers else response.headers
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            response.pass_on_to(push)
            last = False
            while not last:
                chunk = await response.read()
                last = response.at_end
                tap.add(chunk)
                if last:
                    downstream.settle()
                await send({"type": "http.response.body", "body": chunk, "more_body": not last})
        except UpstreamCut:
            log_cut()
            return Ending.UPSTREAM_CUT
        except asyncio.CancelledError:
            if not downstream.absorb():
                raise
            return Ending.CLIENT_LEFT
    return Ending.COMPLETE


class Passthrough:
    """An ASGI app that forwards requests and answers untouched. Raises UpstreamError without an answer."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        if "tunnel" in scope:
            await tunnelled(scope, receive, send, self._upstream, scope["tunnel"])
        else:
            await passthrough(scope, receive, send, self._upstream)


async def passthrough(scope: HTTPScope, receive: Receive, send: Send, upstream: Upstream) -> Ending:
    """Forward a request and relay its answer. Raises UpstreamError if there is none."""
    async with Downstream(receive, scope.get(CLIENT_CONNECTION)) as downstream:
        body = await downstream.body()
        response = await upstream.open(
            scope["method"],
            raw_target(scope),
            request_headers(scope["headers"]),
            body,
            content_length=None if isinstance(body, bytes) else _content_length(scope),
        )
        return await relay(response, downstream, send)
    return Ending.CLIENT_LEFT


def raw_target(scope: HTTPScope) -> bytes:
    """Return the request target as the client wrote it; without `raw_target`, put together from its parts."""
    target: bytes = scope.get("raw_target", b"")
    if target.startswith(PREFIX):
        return target
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path


def _content_length(scope: HTTPScope) -> int | None:
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


_UPGRADE = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
_LAST_WORDS_S = 5.0  # for the upstream to end after the client has


class Tunnel(Protocol):
    """The client's side, once the answer is 101."""

    async def read(self) -> bytes:
        """Return what the client has sent since the last call, b"" at its end."""

    async def write(self, data: bytes) -> None:
        """Send to the client, as fast as it takes it."""


async def tunnelled(
    scope: MutableMapping[str, Any], receive: Receive, send: Send, upstream: Upstream, tunnel: Tunnel
) -> Ending:
    """Forward an upgrade, then the bytes of both sides until one of them ends. A refusal is relayed as on any
    route. Raises UpstreamError if there is no answer."""
    async with Downstream(receive, scope.get(CLIENT_CONNECTION)) as downstream:
        await downstream.body()
        headers = request_headers(scope["headers"])
        response = await upstream.open("GET", raw_target(scope), headers, upgrade=_UPGRADE)
        if not response.switched:
            return await relay(response, downstream, send)
        with response:
            downstream.settle()  # from now on the tunnel itself shows that the client has left
            start = {"type": "http.response.start", "status": response.status}
            await send({**start, "headers": response.headers})
            response.wait_without_limit()
            return await _Exchange(response, tunnel, upstream.idle_s).run()
    return Ending.CLIENT_LEFT


class _Exchange:
    """Both directions of a tunnel, which ends when nothing has moved for `idle_s`."""

    def __init__(self, response: UpstreamResponse, tunnel: Tunnel, idle_s: float) -> None:
        self._response, self._tunnel, self._idle_s = response, tunnel, idle_s
        self._clock = asyncio.get_running_loop().time
        self._moved_at = self._clock()

    async def run(self) -> Ending:
        """Return who ended it."""
        up, down, idle = (asyncio.create_task(each) for each in (self._up(), self._down(), self._idle()))
        try:
            await asyncio.wait((up, down, idle), return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not down.done():
                await asyncio.wait((down,), timeout=_LAST_WORDS_S)
                return Ending.CLIENT_LEFT
            return Ending.COMPLETE if down.done() and not down.exception() else Ending.UPSTREAM_CUT
        finally:
            for task in (up, down, idle):
                task.cancel()
            await asyncio.gather(up, down, idle, return_exceptions=True)

    async def _up(self) -> None:
        while data := await self._tunnel.read():
            self._moved_at = self._clock()
            await self._response.write(data)

    async def _down(self) -> None:
        try:
            while data := await self._response.read():
                self._moved_at = self._clock()
                await self._tunnel.write(data)
        except UpstreamCut:
            log_cut()
            raise

    async def _idle(self) -> None:
        # Sleeps instead of waiting for an event: bytes move too often to set one.
        while (left_s := self._moved_at + self._idle_s - self._clock()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_s)
        telemetry.log.info("tunnel.idle", seconds=self._idle_s)


# ---------------------------------------------------------------- log: never what either side said
def log_refused(status: int, headers: Headers) -> None:
    """Log an answer of 400 or more, with the id that its provider asks for; a warning unless it is mostly the
    client's own fault."""
    log = telemetry.log.warning if status == 429 or status >= 500 else telemetry.log.info
    given = request_id_in(headers)
    log("upstream.refused", status=status, **({"upstream_request_id": given} if given else {}))


def log_failed(error: UpstreamError) -> None:
    """Log that there was no answer."""
    below = type(error.__cause__).__name__ if error.__cause__ else "answer"
    telemetry.log.warning("upstream.failed", error=error.code, cause=error.cause or below)


def log_cut() -> None:
    """Log that the answer broke off."""
    telemetry.log.warning("upstream.cut")
