"""Client connections: limits on their number and on waiting time, and uvicorn's HTTP protocol adjusted.

A connection that waits for its client (nothing sent yet, half a head, a stalled body, idle between requests)
costs a file descriptor. Two rules prevent such connections from locking out others:

- Time: a head has `head_s` from its first byte, and a body `body_s` for its next bytes. A slow upload that
  makes progress is fine. Idle connections between two requests have the server's keep-alive limit.
- Room: if a new connection finds no room, the one that has waited longest is closed, of the peer (address)
  with the most of them. Only if all are busy with requests is the new one refused.

`RawTargetProtocol` is uvicorn's protocol with these differences:

- The request target is available as it came over the wire: ASGI's path and query lose bytes (a `?` with
  nothing behind it).
- Upgrade offers other than WebSocket are removed before parsing (Java's client offers HTTP/2): the parser
  would take them for the end of the message.
- Trailers are dropped: the parser reports them like headers, after authentication has read the headers.
- A head without end is refused before it fills the memory.
- A client of HTTP/1.0 gets no chunks and no 100 Continue; the connection closes after the answer.
- Each connection registers with the `Connections` of the process, found in the lifespan's state.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy import telemetry
from proxy.domain.errors import error_body

_SWEEP_S = 1.0
_SPARE_FILES = 64  # the store, the log, listening sockets


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """0: no limit."""

    head_s: float = 20.0
    body_s: float = 60.0
    most: int = 0
    most_of_peer: int = 0

    @classmethod
    def of(
        cls, head_s: float, body_s: float, most: int, most_of_peer: int, files: int | None
    ) -> "ConnectionLimits":
        """Return the limits. 0 for `most`: half of the `files` that the process may open, since each may need
        another connection to the upstream. 0 for `most_of_peer`: half of that."""
        if most == 0 and files is not None:
            most = max(32, (files - _SPARE_FILES) // 2)
        return cls(head_s, body_s, most, most_of_peer or most // 2)


class Waiting(Protocol):
    """A connection, as its protocol shows it."""

    def is_late(self, now: float, limits: ConnectionLimits) -> str:
        """Return what the client took too long for, "" if it has time left."""
        ...

    def end(self, reason: str) -> None:
        """Close the connection, with an answer if a request has begun and none was given."""
        ...


@dataclass(slots=True)
class _Peer:
    count: int = 0
    waiting: "OrderedDict[Waiting, None]" = field(default_factory=OrderedDict)  # the longest silent first


class Connections:
    """The connections of one process. Belongs to one event loop."""

    def __init__(self, limits: ConnectionLimits, ended: Callable[[str], None] = lambda reason: None) -> None:
        """`ended` is called with the reason for each connection that is refused or closed here."""
        self.limits, self._ended = limits, ended
        self._peers: dict[str, _Peer] = {}
        self._of: dict[Waiting, str] = {}
        self._seldom = telemetry.ThrottledLog()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._of)

    def admit(self, connection: Waiting, address: str) -> bool:
        """Take in a connection, which waits for its client; False if there is no room for it. Connections
        without an address (a Unix socket) are of no peer."""
        if not self._has_room(address):
            self._note("refused")
            return False
        self._of[connection] = address
        peer = self._peers.setdefault(address, _Peer())
        peer.count += 1
        peer.waiting[connection] = None
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return True

    def busy(self, connection: Waiting) -> None:
        """Its request is complete: the client waits now."""
        if (address := self._of.get(connection)) is not None:
            self._peers[address].waiting.pop(connection, None)

    def heard(self, connection: Waiting) -> None:
        """It waits for its client, and has just heard from it or answered it."""
        if (address := self._of.get(connection)) is not None:
            waiting = self._peers[address].waiting
            waiting[connection] = None
            waiting.move_to_end(connection)

    def release(self, connection: Waiting) -> None:
        """It is closed, or somebody else's."""
        if (address := self._of.pop(connection, None)) is None:
            return
        peer = self._peers[address]
        peer.count -= 1
        peer.waiting.pop(connection, None)
        if not peer.count:
            del self._peers[address]

    def _has_room(self, address: str) -> bool:
        limits, peer = self.limits, self._peers.get(address)
        if address and peer is not None and 0 < limits.most_of_peer <= peer.count:
            return self._close_one(peer)
        if 0 < limits.most <= len(self._of):
            return self._close_one(max(self._peers.values(), key=lambda p: len(p.waiting)))
        return True

    def _close_one(self, peer: _Peer) -> bool:
        """Close the connection of the peer that has waited longest; False if all are busy."""
        if not peer.waiting:
            return False
        self._close(next(iter(peer.waiting)), "displaced")
        return True

    def _close(self, connection: Waiting, reason: str) -> None:
        self.release(connection)
        self._note(reason)
        connection.end(reason)

    def _note(self, reason: str) -> None:
        self._ended(reason)
        level = self._seldom.info if reason.endswith("timeout") else self._seldom.warning
        level("connection.ended", reason=reason)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [
            (connection, reason)
            for peer in self._peers.values()
            for connection in peer.waiting
            if (reason := connection.is_late(now, self.limits))
        ]
        for connection, reason in late:
            self._close(connection, reason)
        self._sweeping = loop.call_later(_SWEEP_S, self._sweep) if self._of else None


# ---------------------------------------------------------------- uvicorn's protocol
MAX_HEAD_BYTES = 128 * 1024  # request line and headers; a credential may have 16 kB

_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"
CONNECTIONS = "connections"  # the key in the lifespan's state


class Phase(Enum):
    """What a connection waits for."""

    NEW = auto()  # its first byte
    HEAD = auto()  # the rest of a head
    BODY = auto()  # the rest of a body
    ANSWER = auto()  # the proxy's answer
    IDLE = auto()  # another request


def answer_of(status: bytes, message: str, code: str) -> bytes:
    """Return a whole answer in OpenAI's shape, for a request that no application sees."""
    body = orjson.dumps(error_body(message, "invalid_request_error", None, code))
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, len(body)) + body


_TOO_LONG = answer_of(
    b"431 Request Header Fields Too Large",
    f"Request line and headers are longer than {MAX_HEAD_BYTES} bytes.",
    "headers_too_large",
)
_ENDED = {
    "head_timeout": answer_of(
        b"408 Request Timeout", "The request's head took too long (server.head_timeout_seconds).", "timeout"
    ),
    "body_timeout": answer_of(
        b"408 Request Timeout", "The request's body stopped coming (server.body_timeout_seconds).", "timeout"
    ),
    "displaced": answer_of(
        b"503 Service Unavailable", "Too many connections (server.max_connections).", "too_many_connections"
    ),
}


class OldCycle(RequestResponseCycle):
    """The answer to a client of HTTP/1.0: without chunks; where the length is not known, it ends with the
    connection, which is closed after any answer."""

    _until_close = False

    async def send(self, message: Any) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            headers = [header for header in message.get("headers", ()) if header[0] != b"transfer-encoding"]
            message = {**message, "headers": headers}
            self._until_close = all(name != b"content-length" for name, _ in headers)
            self.chunked_encoding = False if self._until_close else None
        elif self._until_close:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class RawTargetProtocol(HttpToolsProtocol):
    """Puts `raw_target` (bytes) into every request's scope; accepts no trailer, no endless head, and of
    upgrades WebSockets only."""

    _in_body = False  # a head is complete, its message is not
    _head_bytes = 0  # of a head that is not complete
    _phase, _since = Phase.NEW, 0.0
    _connections: Connections | None = None

    # ------------------------------------------------------------ the connection
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in, or refuse it where there is no room."""
        super().connection_made(transport)
        self._since = self.loop.time()
        connections: Connections | None = self.app_state.get(CONNECTIONS)
        if connections is None:
            return
        if connections.admit(self, str(self.client[0]) if self.client else ""):
            self._connections = connections
        else:
            self._answer_and_close(_ENDED["displaced"])

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room."""
        self._release()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to another protocol."""
        self._release()
        super().handle_websocket_upgrade()

    def is_late(self, now: float, limits: ConnectionLimits) -> str:
        """As Waiting says. A body that the application does not read yet is not the client's fault."""
        if self.flow.read_paused:
            self._since = now
        waited_s = now - self._since
        match self._phase:
            case Phase.NEW | Phase.HEAD if 0 < limits.head_s < waited_s:
                return "head_timeout"
            case Phase.BODY if 0 < limits.body_s < waited_s:
                return "body_timeout"
        return ""

    def end(self, reason: str) -> None:
        """As Waiting says."""
        begun = self._phase in (Phase.HEAD, Phase.BODY)
        answered = self._phase is Phase.BODY and self.cycle.response_started
        if begun and not answered and not self.pipeline:
            self._answer_and_close(_ENDED[reason])
        else:
            self.transport.close()

    def _answer_and_close(self, answer: bytes) -> None:
        if self._phase is Phase.BODY:  # the application hears that its client has left
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(answer)
        self.transport.close()

    def _release(self) -> None:
        if self._connections is not None:
            self._connections.release(self)

    def _enter(self, phase: Phase) -> None:
        self._phase, self._since = phase, self.loop.time()
        if self._connections is not None:
            report = self._connections.busy if phase is Phase.ANSWER else self._connections.heard
            report(self)

    # ------------------------------------------------------------ requests
    def data_received(self, data: bytes) -> None:
        """Parse what came, without the upgrade that a request's head may offer."""
        if self._phase in (Phase.NEW, Phase.IDLE):
            self._enter(Phase.HEAD)
        elif self._phase is Phase.BODY:
            self._enter(Phase.BODY)
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
        """True for what uvicorn hands over to the protocol of WebSockets (websocket.py)."""
        asks = len(offers) == 1 and offers[0].partition(b":")[2].strip().lower() == b"websocket"
        return asks and head.startswith(b"GET ") and self.ws_protocol_class is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; a trailer is none."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Complete the scope; the application's task first runs after that."""
        self._in_body, self._head_bytes = True, 0
        self._enter(Phase.BODY)
        super().on_headers_complete()
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]
        if self.scope["http_version"] == "1.0" and self.cycle is not None:
            self.cycle.__class__ = OldCycle  # uvicorn makes it and starts its task, which has not run yet
            self.cycle.waiting_for_100_continue = False

    def on_message_complete(self) -> None:
        """The next bytes are the next request's."""
        self._in_body = False
        has_answer = self.cycle is None or self.cycle.response_complete  # None: an upgrade, see above
        self._enter(Phase.IDLE if has_answer else Phase.ANSWER)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if self._phase is Phase.ANSWER and not self.pipeline:
            self._enter(Phase.HEAD if self._head_bytes else Phase.IDLE)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in OpenAI's shape."""
        self.transport.write(answer_of(b"400 Bad Request", msg, "invalid_http"))
        self.transport.close()
