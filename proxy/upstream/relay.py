"""The client's side of an exchange: its body as it arrives, and the news that it has disconnected."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol

from proxy import telemetry
from proxy.domain.errors import TooLarge, UpstreamCut, UpstreamError
from proxy.upstream.client import PREFIX, Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.headers import Headers, request_headers, request_id_in, with_ours

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientLeft(Exception):
    """The client disconnected before its request was complete."""


class Downstream:
    """What `receive` tells of the client, read in one place.

    `async with` it around all work done for the client: when the client leaves, the block is cancelled
    where it stands and ends quietly, with `left` true. uvicorn's send is silent after a disconnect; only
    receive tells. Nothing is watched before the request's body has been read to its end.
    """

    def __init__(self, receive: Receive) -> None:
        self.left = False
        self._receive = receive
        self._body_complete = False
        self._task: asyncio.Task[Any] | None = None  # whose work it is
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

    def settle(self) -> None:
        """The client has what it came for: from here on its leaving changes nothing."""
        self._task = None

    def hold(self) -> Callable[[], None]:
        """From here on the client's leaving changes nothing. What is returned ends the work in its place."""
        if self._watcher is not None:
            self._watcher.cancel()
        return self._leave

    def absorb(self) -> bool:
        """Return True if the CancelledError just caught means that the client left, and nothing else."""
        if not self._cancelled:
            return False
        self._cancelled = False
        task = asyncio.current_task()
        return task is not None and task.uncancel() == 0

    async def __aenter__(self) -> "Downstream":
        self._task = asyncio.current_task()
        self._watch_if_complete()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._task = None
        if self._watcher is not None:
            self._watcher.cancel()
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
        if self._body_complete and self._task is not None and self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

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
    opened: UpstreamResponse,
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
        log_refused(opened.status, opened.headers)
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
    async with Downstream(receive) as downstream:
        opened = await upstream.open(
            scope["method"],
            raw_target(scope),
            request_headers(scope["headers"]),
            await downstream.body(),
            content_length=_content_length(scope),
        )
        return await relay(opened, downstream, send)
    return Ending.CLIENT_LEFT


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
    """Pass an upgrade on, and then what both sides say until one of them ends. An upstream that refuses is
    relayed as on any route. Raises UpstreamError if there is no answer."""
    async with Downstream(receive) as downstream:
        await downstream.body()
        headers = request_headers(scope["headers"])
        opened = await upstream.open("GET", raw_target(scope), headers, upgrade=_UPGRADE)
        if not opened.switched:
            return await relay(opened, downstream, send)
        with opened:
            downstream.settle()  # from here on the tunnel itself shows that the client leaves
            await send({"type": "http.response.start", "status": opened.status, "headers": opened.headers})
            opened.wait_without_limit()
            return await _Exchange(opened, tunnel, upstream.idle_s).run()
    return Ending.CLIENT_LEFT


class _Exchange:
    """Both directions, and the watch over a tunnel in which nothing moves."""

    def __init__(self, opened: UpstreamResponse, tunnel: Tunnel, idle_s: float) -> None:
        self._opened, self._tunnel, self._idle_s = opened, tunnel, idle_s
        self._clock = asyncio.get_running_loop().time
        self._moved = self._clock()

    async def run(self) -> Ending:
        """Return who ended it."""
        up, down = asyncio.create_task(self._up()), asyncio.create_task(self._down())
        idle = asyncio.create_task(self._idle())
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
            self._moved = self._clock()
            await self._opened.write(data)

    async def _down(self) -> None:
        try:
            while data := await self._opened.read():
                self._moved = self._clock()
                await self._tunnel.write(data)
        except UpstreamCut:
            log_cut()
            raise

    async def _idle(self) -> None:
        while (  # noqa: ASYNC110
            left_s := self._moved + self._idle_s - self._clock()
        ) > 0:
            await asyncio.sleep(left_s)  # no event: bytes move too often to set one
        telemetry.log.info("tunnel.idle", seconds=self._idle_s)


def log_refused(status: int, headers: Headers) -> None:
    """Note an answer of 400 or more, with the id that its provider asks for. What is mostly the client's own
    fault is no warning."""
    grave = status == 429 or status >= 500
    given = request_id_in(headers)
    facts = {"upstream_request_id": given} if given else {}
    (telemetry.log.warning if grave else telemetry.log.info)("upstream.refused", status=status, **facts)


def log_failed(error: UpstreamError) -> None:
    """Note that there was no answer."""
    below = type(error.__cause__).__name__ if error.__cause__ else "answer"
    cause = error.cause or below
    telemetry.log.warning("upstream.failed", error=error.code, cause=cause)


def log_cut() -> None:
    """Note that the answer has no end."""
    telemetry.log.warning("upstream.cut")
