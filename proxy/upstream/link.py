"""One connection to the upstream, which can prove that a failed request may safely be sent again.

An idle connection may be closed by the upstream just as the next request is written to it. Such a request
was lost on the way and may be sent again; no other may. The proof is TCP's own: if the connection ends
without one byte of an answer, and our kernel then has not one byte more acknowledged than before the
request, the upstream's application has not read it.

- Closed before the request arrived: the FIN acknowledges what had come before it, which is nothing of ours.
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
from collections.abc import Callable
from typing import Protocol, cast

# tcpi_bytes_acked, a u64 in the kernel's struct tcp_info since Linux 4.1
_ACKED = struct.Struct("120x Q")
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_NEVER = float("inf")


class Receiver(Protocol):
    """What the bytes of a connection are given to."""

    def received(self, data: bytes) -> None:
        """Take what has come."""

    def ended(self, error: Exception | None) -> None:
        """Nothing more comes; without an error the peer closed in order."""


class Link(asyncio.Protocol):
    """A connection. `receiver` gets the answer under way; data without one was not asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """`sock`: what the transport is made of; it belongs to the transport."""
        self.transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self.on_end: Callable[[Link], None] | None = None  # of an idle connection
        self.used = False  # an earlier request went over it
        self.connected = False
        self.idle_since = 0.0
        self._loop, self._sock, self._is_tls = loop, sock, False
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
        if self.receiver is None:
            self.abort()  # an answer that no request asked for
            return
        self._heard = True
        if self._deadline != _NEVER:
            self._deadline = self._loop.time() + self._silence_s
        self.receiver.received(data)

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
        """False where the upstream has closed it, or sent what no request asked for."""
        return self.connected and not _readable(self.transport)

    def send(self, head: bytes, body: bytes) -> None:
        """Write the request, or its head; on a used connection in two segments, see above."""
        transport = self.transport
        assert transport is not None
        if not self.used:  # on a fresh connection the question does not arise
            self.used = True
            transport.write(head + body if len(body) < 65536 else head)
            if len(body) >= 65536:
                transport.write(body)
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
        """From now on the connection ends with TimeoutError where nothing comes for so long."""
        self._silence_s = silence_s
        self._deadline = deadline = self._loop.time() + silence_s
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look)
        elif self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)

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

    def _look(self) -> None:
        """End the connection if it has been silent for too long, else look again."""
        self._timer = None
        now = self._loop.time()
        if self._deadline == _NEVER or not self.connected:
            return
        if self._reading_paused:
            self._deadline = now + self._silence_s  # the client is slow, not the upstream
        if now < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look)
            return
        receiver, self.receiver = self.receiver, None
        self.abort()
        if receiver is not None:
            receiver.ended(TimeoutError("the upstream is silent"))

    def _end(self, error: Exception | None) -> None:
        was_connected, self.connected = self.connected, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.ended(error)
        if was_connected and self.on_end is not None:
            self.on_end(self)

    def _bytes_acked(self) -> int | None:
        """Return how many bytes the peer's kernel has acknowledged; None where our kernel cannot be asked."""
        asked = self._witness or self._sock
        if _TCP_INFO is None or asked.family == socket.AF_UNIX:
            return None
        try:
            (acked,) = _ACKED.unpack(asked.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ACKED.size))
        except (OSError, struct.error):
            return None
        return int(acked)


def _readable(transport: asyncio.Transport | None) -> bool:
    """Return True if the socket has something to read: on an idle connection, its end."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return True
    poll = select.poll()
    try:
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _duplicate(sock: socket.socket) -> socket.socket | None:
    if _TCP_INFO is None or sock.family == socket.AF_UNIX:
        return None
    try:
        return socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
    except OSError:
        return None
