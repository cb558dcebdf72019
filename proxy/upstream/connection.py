"""One connection to the upstream, which can prove that a failed request may safely be sent again.

An idle connection may be closed by the upstream just as the next request is written to it. Such a request
was lost on the way and may be sent again; no other may. The proof is TCP's own: if the connection ends
without one byte of an answer, and our kernel then has not one byte more acknowledged than before the
request, the upstream's application has not read it.

- Closed before the request arrived: the FIN acknowledges what had come before it, which excludes the request.
- Closed with the request unread: a reset, and no acknowledgement either.
- Read, then closed: the FIN acknowledges it.
- Read, then reset: here the acknowledgement could be late (delayed ACK, 40 ms). So a request over a used
  connection goes out in two pushed segments: reading the second makes Linux acknowledge both at once.

Where TCP_INFO cannot be asked, nothing is proved and nothing sent again.
"""

import asyncio
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import httptools

from proxy.domain.errors import UpstreamBroken, UpstreamCut
from proxy.wire.http import Headers, response_headers

# tcpi_bytes_acked, a u64 in the kernel's struct tcp_info since Linux 4.1
_ACKED = struct.Struct("120x Q")
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_NEVER = float("inf")


class UpstreamConnection(asyncio.Protocol):
    """A connection. `response` receives the answer under way; data without one was not asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """`sock`: what the transport is made of; it belongs to the transport."""
        self.transport: asyncio.Transport | None = None
        self.response: UpstreamResponse | None = None
        self.on_end: Callable[[UpstreamConnection], None] | None = None  # of an idle connection
        self.used = False  # an earlier request went over it
        self.connected = False
        self.idle_since = 0.0
        self._loop, self._sock, self._is_tls = loop, sock, False
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._witness: socket.socket | None = None  # a duplicate, which outlives a TLS transport's socket
        self._acked_before: int | None = None
        self._acked_at_end: int | None = None
        self._heard = False  # something of an answer to the last request
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None  # while the peer takes no more
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._silence_s = _NEVER

    # ------------------------------------------------------------ asyncio's calls
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.connected = cast(asyncio.Transport, transport), True
        self._is_tls = transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        if self.response is None:
            self.abort()  # an answer that no request asked for
            return
        self._heard = True
        if self._deadline != _NEVER:
            self._deadline = self._loop.time() + self._silence_s
        self.response.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._acked_at_end = self._bytes_acked()
        self._end(exc)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # ------------------------------------------------------------ requests
    def reusable(self) -> bool:
        """False if the upstream has closed it, or sent what no request asked for."""
        try:
            return self.connected and not self._readable.poll(0)
        except OSError:
            return False

    def send(self, head: bytes, body: bytes) -> None:
        """Write the request, or its head; on a used connection in two segments, see above."""
        transport = self.transport
        assert transport is not None
        if not self.used:  # on a fresh connection the question does not arise
            self.used = True
            transport.writelines([head, body])
            return
        first, second = (head, body) if body else (head[:-2], head[-2:])
        self._heard = False
        if self._is_tls:
            self._witness = _duplicate(self._sock)
            self._acked_before = self._bytes_acked()
            transport.write(first)
            # The loop flushes once a round; what is written in the next one is a segment of its own.
            self._loop.call_soon(self._write, second)
            return
        self._acked_before = self._bytes_acked()
        try:
            sent = self._sock.send(first)  # the transport holds nothing: the connection was idle
        except OSError:
            sent = 0  # the transport will find out, too
        transport.write(first[sent:] + second if sent < len(first) else second)

    def dismiss_witness(self) -> None:
        """To be called when the answer has begun, or will not: the socket can close only then."""
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def never_reached(self) -> bool:
        """True only if the connection ended without an answer, and the upstream had not read the request."""
        if self._acked_before is None or self._heard:
            return False
        return self._acked_before == self._acked_at_end

    async def write(self, data: bytes) -> None:
        """Write, and wait while the peer takes no more. Raises ConnectionResetError at the end."""
        if not self.connected or self.transport is None:
            raise ConnectionResetError("the connection has ended")
        self.transport.write(data)
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if not self.connected:
            raise ConnectionResetError("the connection has ended")

    def expect(self, silence_s: float) -> None:
        """End the connection with TimeoutError once nothing has come for so long."""
        self._silence_s = silence_s
        self._deadline = self._loop.time() + silence_s
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._check_silence)

    def expect_nothing(self) -> None:
        """Wait as long as it takes."""
        self._deadline = _NEVER

    def pause_reading(self) -> None:
        """Take no more from the upstream for now."""
        if not self._reading_paused and self.connected and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take more; a silence is measured from here."""
        if self._reading_paused and self.transport is not None:
            self._reading_paused = False
            if self._deadline != _NEVER:
                self._deadline = self._loop.time() + self._silence_s
            if self.connected:
                self.transport.resume_reading()

    def abort(self) -> None:
        """Break the connection off at once; close() would first wait for a peer that takes nothing."""
        self.dismiss_witness()
        if self.transport is not None:
            self.transport.abort()
        self._end(None)

    # ------------------------------------------------------------ inside
    def _write(self, data: bytes) -> None:
        if self.connected and self.transport is not None:
            self.transport.write(data)

    def _check_silence(self) -> None:
        """End the connection if it has been silent for too long, else look again."""
        self._timer = None
        now = self._loop.time()
        if self._deadline == _NEVER or not self.connected:
            return
        if self._reading_paused:
            self._deadline = now + self._silence_s  # the client is slow, not the upstream
        if now < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_silence)
            return
        self._end(TimeoutError("the upstream is silent"))
        self.abort()

    def _end(self, error: Exception | None) -> None:
        was_connected, self.connected = self.connected, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()
        response, self.response = self.response, None
        if response is not None:
            response.ended(error)
        if was_connected and self.on_end is not None:
            self.on_end(self)

    def _bytes_acked(self) -> int | None:
        """Return how many bytes the peer's kernel has acknowledged; None if our kernel cannot be asked."""
        asked = self._witness or self._sock
        if _TCP_INFO is None or asked.family == socket.AF_UNIX:
            return None
        try:
            (acked,) = _ACKED.unpack(asked.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ACKED.size))
        except (OSError, struct.error):
            return None
        return int(acked)


def _duplicate(sock: socket.socket) -> socket.socket | None:
    if _TCP_INFO is None or sock.family == socket.AF_UNIX:
        return None
    try:
        return socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
    except OSError:
        return None


Body = bytes | AsyncIterator[bytes] | None

_SWITCHING_PROTOCOLS = 101
_STATUSES = range(200, 600)  # what an HTTP server may answer with (RFC 9110, section 15)
_MAX_HEAD_BYTES = 1 << 20  # of all lines and interim answers; also of what frames a body, between two pieces


class Malformed(Exception):
    """The upstream sent what is not HTTP/1.1, or more of it than the limits allow."""


WIRE_ERRORS = (Malformed, OSError)  # what a connection ends with, TimeoutError included


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase may take. There is no limit to the whole: an answer may stream for hours."""

    connect_s: float = 5.0
    headers_s: float = 1800.0  # from the request's last byte to the status
    read_s: float = 1800.0  # between two pieces of the answer, and for the upstream to take one of ours


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much of everything."""

    connections: int = 0  # at once; 0: no limit
    keepalive_s: float = 15.0  # of an idle connection
    header_bytes: int = 65536  # of one line
    headers: int = 512
    buffer_bytes: int = 65536  # held of one answer; twice that stops reading from the upstream


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request, ready to be written. A body that is an iterator can be sent once only."""

    method: str
    head: bytes
    body: Body
    chunked: bool
    upgrades: bool = False  # 101 is an answer


class UpstreamResponse:
    """The upstream's answer: status and headers, then its raw bytes as they come.

    Use it in a `with` block: leaving it before the end of the body breaks the connection off at once.
    After 101 the body is what the upstream says on the tunnel, and `write` answers.
    """

    def __init__(
        self,
        connection: UpstreamConnection,
        limits: ConnectionLimits,
        release: Callable[[UpstreamConnection, bool], None],
    ) -> None:
        """`release(connection, reusable)` is called once, when the connection is no longer needed."""
        self.connection = connection
        self.status = 0
        self.headers: Headers = []
        self._limits, self._release = limits, release
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # As other clients do: bare line feeds, control characters in values, a space after a chunk's size.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._is_head = False
        self._upgrades, self._switched = False, False
        self._raw_headers: Headers = []
        self._head_bytes = 0
        self._has_head, self._complete, self._ended = False, False, False
        self._until_close = False  # the body's end is the connection's
        self._keep_alive = False
        self._error: Exception | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._push: Callable[[bytes], bool] | None = None
        self._upload: asyncio.Task[None] | None = None
        self._released = False

    # ------------------------------------------------------------ for the reader
    async def start(self, request: UpstreamRequest, timeouts: Timeouts) -> None:
        """Send the request and wait for status and headers. Raises UpstreamBroken or one of WIRE_ERRORS."""
        connection = self.connection
        connection.response = self
        self._is_head, self._upgrades = request.method == "HEAD", request.upgrades
        if isinstance(request.body, bytes | None):
            connection.send(request.head, request.body or b"")
            connection.expect(timeouts.headers_s)
        else:
            connection.send(request.head, b"")
            self._upload = asyncio.create_task(self._send_stream(request, request.body, timeouts))
            self._upload.add_done_callback(self._upload_ended)
        try:
            while not self._has_head and not self._ended:
                await self._wait()
        finally:
            connection.dismiss_witness()
        if not self._has_head:
            raise self._error or ConnectionResetError("closed before an answer")
        if self.status not in _STATUSES and not self._switched:
            text = f"The upstream answered with status {self.status}, which HTTP does not have."
            raise UpstreamBroken(text, cause="status")
        self.headers = response_headers(self._raw_headers, self.status)
        if not self._complete:
            connection.expect(timeouts.read_s)

    async def peek(self, limit_bytes: int) -> bytes:
        """Return the whole body, or at least `limit_bytes` of it; `read` returns all of it again."""
        while self._size < limit_bytes and not self._complete and not self._ended:
            await self._wait()
        return b"".join(self._chunks)

    async def read(self) -> bytes:
        """Return what has come of the body since the last call, b"" at its end.

        Raises UpstreamCut if the upstream broke off; all that had arrived has been returned before.
        """
        while not self._chunks:
            if self._complete:
                return b""
            if self._ended:
                raise self._cut()
            await self._wait()
        chunks = self._chunks
        chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks, self._size = [], 0
        if not self._complete:
            self.connection.resume_reading()
        return chunk

    def pass_on_to(self, push: Callable[[bytes], bool]) -> None:
        """From now on give pieces that come while `read` waits to `push`. Those for which it returns False,
        and the last one, are left to `read`."""
        self._push = push

    async def write(self, data: bytes) -> None:
        """Send bytes on a tunnel, as fast as the upstream takes them. Raises UpstreamCut at its end."""
        try:
            await self.connection.write(data)
        except OSError as error:
            raise UpstreamCut("The upstream closed the tunnel.") from error

    @property
    def at_end(self) -> bool:
        """True once the whole body has been read."""
        return self._complete and not self._chunks

    @property
    def switched(self) -> bool:
        """True if the upstream has agreed to another protocol (101)."""
        return self._switched

    def wait_without_limit(self) -> None:
        """A silence no longer ends the answer: its reader watches over it."""
        self.connection.expect_nothing()

    def close(self) -> None:
        """Break off whatever is not complete yet, at once. What is complete is not touched."""
        if self._upload is not None:
            self._upload.cancel()
        self._let_go(reusable=False)

    def __enter__(self) -> "UpstreamResponse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ for the connection
    def received(self, data: bytes) -> None:
        """Take bytes of the answer."""
        if self._switched:
            self.on_body(data)
            self._wake()
            return
        size_before, parser = self._size, self._parser
        if parser is None:
            return
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if not self._complete:
                own = error.__context__
                self._fail(own if isinstance(own, Malformed) else Malformed("it cannot be parsed"))
                return
            self._keep_alive = False
        if self._size == size_before and not self._complete:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._fail(Malformed("a head without end"))
                return
        if self._complete:
            self._settle()
        elif self._is_passed_on():
            self._chunks, self._size = [], 0
            self.connection.resume_reading()
            return
        self._wake()

    def ended(self, error: Exception | None) -> None:
        """The connection is over."""
        if self._ended or self._complete:
            return
        self._ended, self._error = True, error
        if self._until_close and error is None:
            self._complete = True
        if self._upload is not None:
            self._upload.cancel()
        self._settle()
        self._wake()

    # ------------------------------------------------------------ for the parser
    def on_message_begin(self) -> None:
        """Nothing may follow an answer that is complete."""
        if self._complete:
            self._keep_alive = False
            raise Malformed("two answers")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; trailers are not relayed."""
        if self._has_head:
            return
        too_long = len(name) + len(value) > self._limits.header_bytes
        if too_long or len(self._raw_headers) >= self._limits.headers:
            raise Malformed("too long a head")
        if b"\r" in value or b"\n" in value or b"\0" in value:
            raise Malformed("a line break in a header")
        self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Complete the head; of an interim answer nothing stays."""
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if 100 <= status < 200 and status != _SWITCHING_PROTOCOLS:
            self._raw_headers = []
            return
        self.status, self._has_head, self._head_bytes = status, True, 0
        self._keep_alive = parser.should_keep_alive()
        lengths = [name for name, _ in self._raw_headers if name.lower() == b"content-length"]
        codings = [value for name, value in self._raw_headers if name.lower() == b"transfer-encoding"]
        chunked = bool(codings) and codings[-1].lower().rsplit(b",")[-1].strip() == b"chunked"
        if self._is_head:
            self._complete = True  # the parser would wait for the body of which the head speaks
        elif status not in (204, 304):
            self._until_close = not chunked and (bool(codings) or not lengths)

    def on_body(self, data: bytes) -> None:
        """Hold a piece of the body, and stop reading from the upstream if its reader is slow."""
        if self._is_head:
            self._keep_alive = False
            return
        self._chunks.append(data)
        self._size += len(data)
        if self._size > 2 * self._limits.buffer_bytes:
            self.connection.pause_reading()

    def on_chunk_header(self) -> None:
        """An answer to HEAD has no chunks."""
        if self._is_head:
            self._keep_alive = False

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._has_head:
            self._complete = True

    # ------------------------------------------------------------ inside
    def _switch(self, rest: bytes) -> None:
        if not self._upgrades:
            self._fail(Malformed("switched protocols unasked"))
            return
        self._switched, self._until_close, self._complete = True, True, False
        if rest:
            self.on_body(rest)

    def _fail(self, error: Exception) -> None:
        self._ended, self._error = True, error
        self._let_go(reusable=False)
        self._wake()

    def _settle(self) -> None:
        """Give the connection back; one that was uploading, or made for a tunnel, is of no further use."""
        is_usual = self._upload is None and not self._upgrades
        self._let_go(reusable=self._complete and self._keep_alive and is_usual)

    def _let_go(self, *, reusable: bool) -> None:
        if self._released:
            return
        connection, self._released = self.connection, True
        self._parser = None  # which holds us: the garbage collector has no work with it
        connection.response = None
        connection.expect_nothing()
        connection.resume_reading()
        connection.dismiss_witness()
        if self._upload is not None:
            self._upload.cancel()
        self._release(connection, reusable)

    def _is_passed_on(self) -> bool:
        if self._push is None or self._waiter is None or not self._chunks:
            return False
        return self._push(b"".join(self._chunks))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _cut(self) -> UpstreamCut:
        if isinstance(self._error, TimeoutError):
            text = "The upstream was silent in the middle of its answer (upstream.read_timeout_seconds)."
            error = UpstreamCut(text, cause="read_timed_out")
        else:
            error = UpstreamCut("The upstream broke off its answer.", cause=type(self._error).__name__)
        error.__cause__ = self._error
        return error

    async def _send_stream(
        self, request: UpstreamRequest, body: AsyncIterator[bytes], timeouts: Timeouts
    ) -> None:
        """Send the body as fast as the upstream takes it, and no faster."""
        # After the end of the connection an answer that came before still counts.
        with suppress(ConnectionError):
            async for chunk in body:
                framed = b"%x\r\n%b\r\n" % (len(chunk), chunk) if request.chunked and chunk else chunk
                async with asyncio.timeout(timeouts.read_s):
                    await self.connection.write(framed)
            if request.chunked:
                await self.connection.write(b"0\r\n\r\n")
            if not self._has_head:
                self.connection.expect(timeouts.headers_s)

    def _upload_ended(self, upload: asyncio.Task[None]) -> None:
        """End the wait for an answer to a request that will never be whole."""
        if not upload.cancelled() and (error := upload.exception()) is not None and not self._complete:
            self._fail(error if isinstance(error, Exception) else ConnectionAbortedError())
