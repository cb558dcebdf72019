"""An answer that the upstream has begun, from its first byte to its last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from aiohttp import ClientError
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage, StreamWriter
from aiohttp.streams import StreamReader

from proxy.errors import UpstreamBroken, UpstreamCut
from proxy.upstream.headers import response_headers
from proxy.upstream.link import Link

Body = bytes | AsyncIterator[bytes] | None

# What aiohttp raises when a connection fails or speaks nonsense.
WIRE_ERRORS = (ClientError, HttpProcessingError, TimeoutError, OSError)

_SWITCHING_PROTOCOLS = 101


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase may take. There is no limit to the whole: an answer may stream for hours."""

    connect_s: float = 5.0
    headers_s: float = 600.0  # from the request's last byte to the status
    read_s: float = 600.0  # between two pieces of the answer, and for the upstream to take one of ours


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of everything."""

    connections: int = 0  # at once; 0: no limit
    keepalive_s: float = 15.0  # how long an idle connection is kept
    header_bytes: int = 65536  # of one line
    headers: int = 512
    buffer_bytes: int = 65536  # held of one answer; twice that stops reading from the upstream


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be written. A body that is an iterator can be sent once only."""

    method: str
    head: bytes
    body: Body
    chunked: bool


class Opened:
    """The upstream's answer: status and headers, then its raw bytes as they come.

    Use it in a `with` block: leaving it before the end of the body breaks the connection off at once.
    """

    def __init__(self, connection: Connection) -> None:
        link = connection.protocol
        assert isinstance(link, Link)
        self.link = link
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._connection: Connection | None = connection
        self._upload: asyncio.Task[None] | None = None
        self._body: StreamReader
        self._until_close = False  # the body's end is the connection's
        self._peeked: list[bytes] = []  # read ahead, and not yet handed out

    async def start(self, request: Request, timeouts: Timeouts, limits: Limits) -> None:
        """Send the request and wait for status and headers. Raises UpstreamBroken or one of WIRE_ERRORS."""
        self.link.set_response_params(
            skip_payload=request.method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=timeouts.headers_s,
            read_bufsize=limits.buffer_bytes,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
        )
        try:
            self._send(request, timeouts.read_s)
            message = await self._final_answer()
        finally:
            self.link.dismiss_witness()
        self.status = message.code
        self.headers = response_headers(message.raw_headers, message.code)
        self._until_close = not message.chunked and "content-length" not in message.headers
        self._body.on_eof(self._complete)
        if not self._body.is_eof():
            self.link.read_timeout = timeouts.read_s
            if self.link.reading:
                self.link.start_timeout()

    async def peek(self, limit_bytes: int) -> bytes:
        """Return the body as far as it goes, or at least `limit_bytes` of it; `read` returns it all again."""
        size = 0
        with suppress(UpstreamCut):  # `read` will tell
            while size < limit_bytes and not self._body.at_eof() and (chunk := await self._take()):
                self._peeked.append(chunk)
                size += len(chunk)
        return b"".join(self._peeked)

    async def read(self) -> bytes:
        """Return what has come of the body since the last call, b"" at its end.

        Raises UpstreamCut if the upstream broke off; all that had arrived has been returned before.
        """
        return self._peeked.pop(0) if self._peeked else await self._take()

    async def _take(self) -> bytes:
        body = self._body
        try:
            chunk = await body.readany()
        except WIRE_ERRORS as error:
            # aiohttp raises before it hands out what it holds. There is no public way to that.
            if body._buffer:
                return body._read_nowait(-1)
            raise UpstreamCut("The upstream broke off its answer.") from error
        if not chunk and self._torn:
            raise UpstreamCut("The upstream broke off its answer.")
        return chunk

    @property
    def at_end(self) -> bool:
        """True once the whole body has been read."""
        return not self._peeked and self._body.at_eof() and not self._torn

    def close(self) -> None:
        """Break off whatever is not complete yet, at once. What is complete is not touched."""
        if self._upload is not None:
            self._upload.cancel()
        if (connection := self._connection) is None:
            return
        self._connection = None
        if connection.transport is not None:
            connection.transport.abort()  # close() would first wait for an upstream that takes nothing
        connection.close()

    def __enter__(self) -> "Opened":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _torn(self) -> bool:
        return self._until_close and self.link.reset

    def _send(self, request: Request, stall_s: float) -> None:
        if isinstance(request.body, bytes | None):
            self.link.send(request.head, request.body or b"")
            self.link.start_timeout()
            return
        self.link.send(request.head, b"")
        self._upload = asyncio.create_task(self._send_stream(request.body, request.chunked, stall_s))
        self._upload.add_done_callback(self._upload_ended)

    async def _send_stream(self, body: AsyncIterator[bytes], chunked: bool, stall_s: float) -> None:
        """Send the body as fast as the upstream takes it, and no faster."""
        writer = StreamWriter(self.link, asyncio.get_running_loop())
        if chunked:
            writer.enable_chunking()
        try:
            async for chunk in body:
                async with asyncio.timeout(stall_s):
                    await writer.write(chunk)
            await writer.write_eof()
        except ClientError:
            return  # the connection is gone: an answer that came before that still counts
        self.link.start_timeout()

    def _upload_ended(self, upload: asyncio.Task[None]) -> None:
        """End the wait for an answer to a request that will never be whole."""
        if not upload.cancelled() and (error := upload.exception()) is not None:
            self.link.set_exception(error)

    async def _final_answer(self) -> RawResponseMessage:
        while True:
            message, body = await self.link.read()
            if message.code == _SWITCHING_PROTOCOLS:
                raise UpstreamBroken("The upstream switched protocols unasked.")
            if message.code >= 200:
                self._body = body
                return message

    def _complete(self) -> None:
        """Give the connection back; one that was uploading is of no use to anyone else."""
        if self._upload is not None:
            self.close()
        elif self._connection is not None:
            connection, self._connection = self._connection, None
            connection.release()
