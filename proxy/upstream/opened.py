"""An answer that the upstream has begun, from its first byte to its last."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import httptools

from proxy.domain.errors import UpstreamBroken, UpstreamCut
from proxy.upstream.headers import Headers, response_headers
from proxy.upstream.link import Link

Body = bytes | AsyncIterator[bytes] | None

_SWITCHING_PROTOCOLS = 101
_STATUSES = range(200, 600)  # what an HTTP server may answer with (RFC 9110, section 15)
_MOST_HEAD_BYTES = 1 << 20  # of all lines and interim answers; also of what frames a body, between two pieces


class Malformed(Exception):
    """The upstream sent what is no HTTP/1.1, or more of it than the limits allow."""


WIRE_ERRORS = (Malformed, OSError)
"""What a connection ends with, TimeoutError included."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase may take. There is no limit to the whole: an answer may stream for hours."""

    connect_s: float = 5.0
    headers_s: float = 1800.0  # from the request's last byte to the status
    read_s: float = 1800.0  # between two pieces of the answer, and for the upstream to take one of ours


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
    upgrades: bool = False  # 101 is an answer


class Opened:
    """The upstream's answer: status and headers, then its raw bytes as they come.

    Use it in a `with` block: leaving it before the end of the body breaks the connection off at once.
    After 101 the body is what the upstream says on the tunnel, and `write` answers.
    """

    def __init__(self, link: Link, limits: Limits, release: Callable[[Link, bool], None]) -> None:
        """`release(link, reusable)` is called once, when the connection is no longer needed."""
        self.link = link
        self.status = 0
        self.headers: Headers = []
        self._limits, self._release = limits, release
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # As other clients do: bare line feeds, control characters in values, a space behind a chunk's size.
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
        self._upload: asyncio.Task[None] | None = None
        self._released = False

    # ------------------------------------------------------------ for the reader
    async def start(self, request: Request, timeouts: Timeouts) -> None:
        """Send the request and wait for status and headers. Raises UpstreamBroken or one of WIRE_ERRORS."""
        link = self.link
        link.receiver = self
        self._is_head, self._upgrades = request.method == "HEAD", request.upgrades
        if isinstance(request.body, bytes | None):
            link.send(request.head, request.body or b"")
            link.expect(timeouts.headers_s)
        else:
            link.send(request.head, b"")
            self._upload = asyncio.create_task(self._send_stream(request, request.body, timeouts))
            self._upload.add_done_callback(self._upload_ended)
        try:
            while not self._has_head and not self._ended:
                await self._wait()
        finally:
            link.dismiss_witness()
        if not self._has_head:
            raise self._error or ConnectionResetError("closed before an answer")
        if self.status not in _STATUSES and not self._switched:
            raise UpstreamBroken(_impossible(self.status), cause="status")
        self.headers = response_headers(self._raw_headers, self.status)
        if not self._complete:
            link.expect(timeouts.read_s)

    async def peek(self, limit_bytes: int) -> bytes:
        """Return the body as far as it goes, or at least `limit_bytes` of it; `read` returns it all again."""
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
            self.link.resume_reading()
        return chunk

    async def write(self, data: bytes) -> None:
        """Send bytes on a tunnel, as fast as the upstream takes them. Raises UpstreamCut at its end."""
        try:
            await self.link.write(data)
        except OSError as error:
            raise UpstreamCut("The upstream closed the tunnel.") from error

    @property
    def at_end(self) -> bool:
        """True once the whole body has been read."""
        return self._complete and not self._chunks

    @property
    def switched(self) -> bool:
        """True where the upstream has agreed to another protocol (101)."""
        return self._switched

    def wait_without_limit(self) -> None:
        """A silence no longer ends the answer: its reader watches over it."""
        self.link.expect_nothing()

    def close(self) -> None:
        """Break off whatever is not complete yet, at once. What is complete is not touched."""
        if self._upload is not None:
            self._upload.cancel()
        self._let_go(reusable=False)

    def __enter__(self) -> "Opened":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ for the link
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
            if self._head_bytes > _MOST_HEAD_BYTES:
                self._fail(Malformed("a head without end"))
                return
        if self._complete:
            self._settle()
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
        if (
            len(name) + len(value) > self._limits.header_bytes
            or len(self._raw_headers) >= self._limits.headers
        ):
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
        """Hold a piece of the body, and stop reading where its reader is slow."""
        if self._is_head:
            self._keep_alive = False
            return
        self._chunks.append(data)
        self._size += len(data)
        if self._size > 2 * self._limits.buffer_bytes:
            self.link.pause_reading()

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
        link, self._released = self.link, True
        self._parser = None  # which holds us: the garbage collector has no work with it
        link.receiver = None
        link.expect_nothing()
        link.resume_reading()
        link.dismiss_witness()
        if self._upload is not None:
            self._upload.cancel()
        self._release(link, reusable)

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

    async def _send_stream(self, request: Request, body: AsyncIterator[bytes], timeouts: Timeouts) -> None:
        """Send the body as fast as the upstream takes it, and no faster."""
        with suppress(
            ConnectionError
        ):  # the connection is gone: an answer that came before that still counts
            async for chunk in body:
                if chunk:
                    async with asyncio.timeout(timeouts.read_s):
                        await self.link.write(
                            b"%x\r\n%b\r\n" % (len(chunk), chunk) if request.chunked else chunk
                        )
            if request.chunked:
                await self.link.write(b"0\r\n\r\n")
            if not self._has_head:
                self.link.expect(timeouts.headers_s)

    def _upload_ended(self, upload: asyncio.Task[None]) -> None:
        """End the wait for an answer to a request that will never be whole."""
        if not upload.cancelled() and (error := upload.exception()) is not None and not self._complete:
            self._fail(error if isinstance(error, Exception) else ConnectionAbortedError())


def _impossible(status: int) -> str:
    return f"The upstream answered with status {status}, which HTTP does not have."
