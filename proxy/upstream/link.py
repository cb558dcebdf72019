"""One connection to the upstream: aiohttp's, extended to tell whether a failed request may safely be sent
again.

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
import functools
import os
import select
import socket
import ssl
import struct
from typing import Any

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler

from proxy.tcp import ask_when_silent

# tcpi_bytes_acked, a u64 in the kernel's struct tcp_info since Linux 4.1
_ACKED = struct.Struct("120x Q")
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_NO_CAUSE = Exception()


class Link(ResponseHandler):
    """aiohttp's client protocol, which also knows how the connection ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.used = False  # an earlier request went over it
        self.reset = False  # it ended by an error, not in order
        self._witness: socket.socket | None = None  # outlives the transport's, to be asked after the end
        self._acked_before: int | None = None
        self._acked_at_end: int | None = None
        self._heard = False  # something of an answer to the last request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        ask_when_silent(_socket(transport))

    def reusable(self) -> bool:
        """False where the upstream has closed it meanwhile, or sent what nobody asked for."""
        return not self.should_close and self.is_connected() and not _readable(self.transport)

    def send(self, head: bytes, body: bytes) -> None:
        """Write the request, or its head; on a used connection in two segments, see above."""
        transport = self.transport
        assert transport is not None
        if not self.used:  # on a fresh connection the question does not arise
            self.used = True
            transport.writelines((head, body))
            return
        self._witness = _duplicate(transport)
        self._acked_before = _bytes_acked(self._witness)
        self._heard = False
        transport.write(head if body else head[:-2])
        transport.write(body if body else head[-2:])

    def dismiss_witness(self) -> None:
        """To be called when the answer has begun, or will not: the socket can close only then."""
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def never_reached(self) -> bool:
        """True only if the connection ended without an answer, and nobody had read the last request."""
        if self._acked_before is None or self._heard:
            return False
        return self._acked_before == self._acked_at_end

    @property
    def reading(self) -> bool:
        """True while the upstream may send: we have not held it up ourselves."""
        return not self._reading_paused

    def data_received(self, data: bytes) -> None:
        self._heard = True
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        # Noted first: aiohttp takes a reset for the regular end of a body that lasts until the close.
        self.reset = exc is not None
        self._acked_at_end = _bytes_acked(self._witness)
        super().connection_lost(exc)

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _NO_CAUSE) -> None:
        # aiohttp does not tell the reader of a body whose chunks turn to nonsense: it would wait for ever.
        body = self._payload
        super().set_exception(exc, exc_cause)
        if body is not None and body.exception() is None and not body.is_eof():
            body.set_exception(exc)


class Connector(TCPConnector):
    """A pool whose connections are Links."""

    def __init__(self, *, tls: ssl.SSLContext | bool, limit: int = 0, keepalive_s: float | None) -> None:
        """`keepalive_s` None: no connection is used twice. `limit` 0: as many as there are requests."""
        pooling: dict[str, Any] = (
            {"force_close": True} if keepalive_s is None else {"keepalive_timeout": keepalive_s}
        )
        super().__init__(limit=limit, ssl=tls, **pooling)
        self._factory = functools.partial(Link, loop=self._loop)  # type: ignore[assignment]


def _readable(transport: asyncio.Transport | None) -> bool:
    """Return True if the socket has something to read: on an idle connection, its end."""
    poll = select.poll()
    try:
        poll.register(_socket(transport).fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _duplicate(transport: asyncio.Transport) -> socket.socket | None:
    if _TCP_INFO is None:
        return None
    try:
        original = _socket(transport)
        return socket.socket(original.family, original.type, original.proto, fileno=os.dup(original.fileno()))
    except OSError:
        return None


def _bytes_acked(witness: socket.socket | None) -> int | None:
    """Return how many bytes the peer's kernel has acknowledged; None where our kernel cannot be asked."""
    if witness is None or _TCP_INFO is None:
        return None
    try:
        (acked,) = _ACKED.unpack(witness.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ACKED.size))
    except (OSError, struct.error):
        return None
    return int(acked)


def _socket(transport: asyncio.BaseTransport | None) -> socket.socket:
    found: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    if found is None:
        raise OSError("the connection has no socket any more")
    return found
