"""An upstream whose every byte a test decides: a raw HTTP/1.1 server on a real socket.

async def script(exchange):
    await exchange.stream(b"data: one\n\n", b"data: two\n\n")
    exchange.reset()

async with ScriptedUpstream(script) as upstream:
    ... upstream.url, upstream.requests, upstream.connections
"""

import asyncio
import json
import select
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Header = tuple[bytes, bytes]
_REASONS = {200: "OK", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized"}


@dataclass
class Connection:
    """One connection of a client to the upstream."""

    number: int
    opened_at: float
    closed_at: float | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    exchanges: int = 0


@dataclass
class Received:
    """One request as it came over the wire."""

    head: bytes  # request line and headers, without the empty line
    connection: Connection
    body: bytes = b""

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def method(self) -> bytes:
        return self.line.split(b" ")[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ", 1)[1].rsplit(b" ", 1)[0]

    @property
    def headers(self) -> list[Header]:
        lines = self.head.split(b"\r\n")[1:]
        pairs = (line.split(b":", 1) for line in lines)
        return [(name.lower(), value.strip(b" \t")) for name, value in pairs]

    def header(self, name: bytes) -> bytes | None:
        """Return the header's value, joined by commas if it came several times, None if it did not."""
        values = [value for key, value in self.headers if key == name]
        return b", ".join(values) if values else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """One request and the means to answer it, or not."""

    def __init__(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Send bytes as they are, each piece in a write of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def reply(self, body: bytes = b"", status: int = 200, headers: Iterable[Header] = ()) -> None:
        """Answer with a body of known length. A HEAD gets the headers only."""
        length = [(b"content-length", str(len(body)).encode())]
        await self.send(head(status, [*headers, *length]) + (b"" if self.request.method == b"HEAD" else body))

    async def json(self, value: Any, status: int = 200) -> None:
        await self.reply(json.dumps(value).encode(), status, [(b"content-type", b"application/json")])

    async def start_stream(self, status: int = 200, headers: Iterable[Header] = ()) -> None:
        """Begin a chunked answer; `chunk` and `end` continue it."""
        sse = [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")]
        await self.send(head(status, [*sse, *headers]))

    async def chunk(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def stream(self, *pieces: bytes) -> None:
        """Answer with a chunked stream of these pieces, complete."""
        await self.start_stream()
        await self.chunk(*pieces)
        await self.end()

    def close(self) -> None:
        """Close the connection in order: what was sent arrives, then its end."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection off with a RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def client_left(self) -> None:
        """Wait, silent, until the client of this connection has left."""
        while await self.reader.read(65536):
            pass

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body as it comes, for scripts of an upstream with `read_body=False`."""
        async for piece in _body(self.request, self.reader):
            yield piece


Script = Callable[[Exchange], Awaitable[None]]


async def ok(exchange: Exchange) -> None:
    """Answer every request alike."""
    await exchange.reply(b"ok")


class ScriptedUpstream:
    """A server that reads each request, notes it, and lets the script answer."""

    def __init__(
        self,
        script=ok,
        *,
        idle_close_s=None,
        read_body=True,
        port=0,
        prefix="",
        host="127.0.0.1",
        unix=None,
        tls=None,
    ):
        """`idle_close_s`: close a connection that has been idle for so long, as busy servers do."""
        self.script = script
        self.requests: list[Received] = []
        self.connections: list[Connection] = []
        self.port = port
        self._idle_close_s = idle_close_s
        self._read_body = read_body
        self._prefix, self._host, self._unix, self._tls = prefix, host, unix, tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base_url."""
        return f"{self.origin}{self._prefix}/v1"

    async def __aenter__(self) -> "ScriptedUpstream":
        if self._unix is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._unix, limit=1 << 20)
            return self
        self._server = await asyncio.start_server(
            self._serve, self._host, self.port, limit=1 << 20, backlog=1024, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_requests(self, count: int, within_s: float = 30) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(within_s):
            while len(self.requests) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def until_closed(self, connection: int = 0, within_s: float = 30) -> float:
        """Wait until the connection has ended and return when that was, by time.monotonic."""
        async with asyncio.timeout(within_s):
            await self.connections[connection].closed.wait()
        closed_at = self.connections[connection].closed_at
        assert closed_at is not None
        return closed_at

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(len(self.connections), time.monotonic())
        self.connections.append(connection)
        try:
            while (request := await self._next(connection, reader, writer)) is not None:
                connection.exchanges += 1
                self.requests.append(request)
                self._arrived.set()
                await self.script(Exchange(request, reader, writer))
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            connection.closed_at = time.monotonic()
            connection.closed.set()
            writer.close()

    def _close_when_idle(self, reader, writer):
        def close() -> None:
            # A request that was read must be answered. One in the kernel's buffer would be lost by any server
            # that closes now, which is not what these tests are about.
            waiting, _, _ = select.select([writer.get_extra_info("socket")], [], [], 0)
            if not waiting and not reader._buffer:  # type: ignore[attr-defined]
                writer.transport.abort()
                reader.feed_eof()

        if self._idle_close_s is None:
            return None
        return asyncio.get_running_loop().call_later(self._idle_close_s, close)

    async def _next(self, connection, reader, writer):
        idle = self._close_when_idle(reader, writer) if connection.exchanges else None
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        finally:
            if idle is not None:
                idle.cancel()
        request = Received(raw.removesuffix(b"\r\n\r\n"), connection)
        if self._read_body:
            request.body = b"".join([piece async for piece in _body(request, reader)])
        return request


async def _body(request: Received, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    if b"chunked" in (request.header(b"transfer-encoding") or b""):
        while size := int(await reader.readline(), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
        return
    left = int(request.header(b"content-length") or b"0")
    while left:
        piece = await reader.read(min(left, 65536))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


def head(status: int, headers: Iterable[Header]) -> bytes:
    """Return a status line and headers, the empty line included."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}".encode()]
    lines += (name + b": " + value for name, value in headers)
    return b"\r\n".join((*lines, b"", b""))


def completion(content: str, model: str = "scripted") -> dict[str, Any]:
    """Return a chat completion, not streamed."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def completion_events(*deltas: str, model: str = "scripted") -> list[bytes]:
    """Return a streamed chat completion: the SSE events of these deltas, the stop and [DONE]."""

    def event(delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        text = json.dumps(body | {"choices": [choice]}, ensure_ascii=False)
        return b"data: " + text.encode() + b"\n\n"

    first = event({"role": "assistant", "content": ""}, None)
    said = [event({"content": delta}, None) for delta in deltas]
    return [first, *said, event({}, "stop"), b"data: [DONE]\n\n"]


def split(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """Cut the bytes at these positions, wherever they fall: inside characters, lines, events."""
    start = 0
    for cut in sorted({min(max(cut, 0), len(data)) for cut in cuts} | {len(data)}):
        if cut > start:
            yield data[start:cut]
            start = cut
