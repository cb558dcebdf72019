"""uvicorn's HTTP protocol, adjusted to keep what a relay must not lose and to refuse what a server must not
take.

The request target as it came over the wire: ASGI's path and query lose bytes (a `?` with nothing behind
it). The body of a request that offers an upgrade, as Java's client does for HTTP/2: the parser takes the
offer for the end of the message. All but WebSockets are declined: the offer is taken out before it is parsed.

Trailers are left out: the parser reports them like headers, and so what follows a body would name a user or
carry a credential after the entrance has looked. A head without end is refused before it fills the memory.
"""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 128 * 1024  # request line and headers; a credential may have 16 kB (identity/credential.py)

_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class RawTargetProtocol(HttpToolsProtocol):
    """Puts `raw_target` (bytes) into every request's scope; accepts no trailer, no endless head, and of
    upgrades WebSockets only."""

    _in_body = False  # a head is complete, its message is not
    _head_bytes = 0  # of a head that is not complete

    def data_received(self, data: bytes) -> None:
        """Parse what came, without the upgrade that a request's head may offer."""
        if not self._in_body:  # in a body, the same words are its own: one byte less, and framing is lost
            head, end, rest = data.partition(_END_OF_HEAD)
            if (offers := _OFFER.findall(head)) and not self._opens_a_tunnel(head, offers):
                data = _OFFER.sub(b"", head) + end + rest
            self._head_bytes += len(head)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()
                return
        super().data_received(data)

    def _opens_a_tunnel(self, head: bytes, offers: list[bytes]) -> bool:
        """True for what uvicorn hands over to the protocol of WebSockets (edge/websocket.py)."""
        asks = len(offers) == 1 and offers[0].partition(b":")[2].strip().lower() == b"websocket"
        return asks and head.startswith(b"GET ") and self.ws_protocol_class is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; a trailer is none."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Complete the scope; the application's task first runs after that."""
        self._in_body, self._head_bytes = True, 0
        super().on_headers_complete()
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        """The next bytes are the next request's."""
        self._in_body = False
        super().on_message_complete()
