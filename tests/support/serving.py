"""An ASGI app behind uvicorn, as in production, on a free port of this machine and in the test's loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from proxy.http.connections import RawTargetProtocol


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.stop = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.stop.wait()  # uvicorn's own looks ten times a second

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, without its pauses of 0.1 s."""
        state, limit_s = self.server_state, self.config.timeout_graceful_shutdown
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while state.connections or state.tasks:  # noqa: ASYNC110 as uvicorn does
                    await asyncio.sleep(0.002)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are pytest's


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve the app and give its origin, http://127.0.0.1:port."""
    with socket.socket() as listener:
        # asyncio sets it only where the protocol is named; Nagle and delayed ACK cost 45 ms a request.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", 0))
        settings: dict[str, Any] = {
            "http": RawTargetProtocol,
            "ws": "none",
            "lifespan": "off",
            "access_log": False,
            "log_level": "critical",
            "server_header": False,
            "date_header": False,
            "timeout_graceful_shutdown": 1,
        }
        server = _Server(uvicorn.Config(app, **(settings | options)))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with asyncio.timeout(60):
                await server.ready.wait()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop.set()
            await task


class RawClient:
    """A client that writes bytes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def head(self) -> bytes:
        """Return status line and headers of the next answer, without the empty line."""
        return (await self.reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        return await self.reader.read()

    def leave(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def connected(origin: str) -> AsyncIterator[RawClient]:
    """Connect to the server; leave at the end of the block."""
    where = urlsplit(origin)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1 << 24)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        client.leave()


async def ask(origin, line, headers=(), body=b""):
    """Send one request on a connection of its own; return the answer's head and raw body."""
    async with asyncio.timeout(60), connected(origin) as client:
        framing = (b"content-length: %d" % len(body),) if body else ()
        lines = (line + b" HTTP/1.1", b"host: localhost", b"connection: close", *headers, *framing)
        await client.send(b"\r\n".join((*lines, b"", b"")) + body)
        return await client.head(), await client.rest()
