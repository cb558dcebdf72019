"""Client connections: their limits, and the protocols that uvicorn runs on them.

A connection that waits for its client (nothing sent yet, half a head, a stalled body, idle between requests)
costs a file descriptor. Two rules prevent such connections from locking out others:

- Time: a head has `head_s` from its first byte, and a body `body_s` for its next bytes. A slow upload that
  makes progress is fine. Idle connections between two requests have the server's keep-alive limit.
- Room: if a new connection finds no room, the one that has waited longest is closed, of the peer (address)
  with the most of them. Only if all are busy with requests is the new one refused.

`RawTargetProtocol` is uvicorn's HTTP protocol with these differences:

- The request target is available as it came over the wire: ASGI's path and query lose bytes (a `?` with
  nothing behind it).
- Upgrade offers other than WebSocket are removed before parsing (Java's client offers HTTP/2): the parser
  would take them for the end of the message.
- Trailers are dropped: the parser reports them like headers, after authentication has read the headers.
- A head without end is refused before it fills the memory.
- A client of HTTP/1.0 gets no chunks and no 100 Continue; the connection closes after the answer.

`WebSocketProtocol` takes a connection over from uvicorn (`ws=`). The request passes the ASGI application like
any other, as scope type `http` with the tunnel in `scope["tunnel"]`. An application that sends status 101
gets the tunnel; any other status is an ordinary answer, after which the connection closes.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
import orjson
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from proxy import telemetry
from proxy.domain.errors import error_body
from proxy.http.asgi import ASGIScope, Header, Message
from proxy.upstream.relay import CLIENT_CONNECTION, ClientConnection

_SWEEP_S = 1.0
_SPARE_FILES = 64  # the store, the log, listening sockets


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """0: no limit."""

    head_s: float = 20.0
    body_s: float = 60.0
    most: int = 0
    most_of_peer: int = 0

    @classmethod
    def of(
        cls, head_s: float, body_s: float, most: int, most_of_peer: int, files: int | None
    ) -> "ClientLimits":
        """Return the limits. 0 for `most`: half of the `files` that the process may open, since each may need
        another connection to the upstream. 0 for `most_of_peer`: half of that."""
        if most == 0 and files is not None:
            most = max(32, (files - _SPARE_FILES) // 2)
        return cls(head_s, body_s, most, most_of_peer or most // 2)


class Waiting(Protocol):
    """A connection in the register."""

    def is_late(self, now: float, limits: ClientLimits) -> str:
        """Return what the client was too slow for, "" if it has time left."""
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

    def __init__(self, limits: ClientLimits, ended: Callable[[str], None] = lambda reason: None) -> None:
        """`ended` is called with the reason for each connection that is refused or closed here."""
        self.limits, self._ended = limits, ended
        self._peers: dict[str, _Peer] = {}
        self._of: dict[Waiting, str] = {}
        self._seldom = telemetry.ThrottledLog()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._of)

    def admit(self, connection: Waiting, address: str) -> bool:
        """Register a connection, which waits for its client; False if there is no room. Connections without
        an address (a Unix socket) belong to no peer."""
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
        """Its request is complete: now the client waits."""
        if (address := self._of.get(connection)) is not None:
            self._peers[address].waiting.pop(connection, None)

    def heard(self, connection: Waiting) -> None:
        """It waits for its client, which was just heard or answered."""
        if (address := self._of.get(connection)) is not None:
            waiting = self._peers[address].waiting
            waiting[connection] = None
            waiting.move_to_end(connection)

    def release(self, connection: Waiting) -> None:
        """It is closed, or taken over by another protocol."""
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


# ---------------------------------------------------------------- HTTP
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


def raw_answer(status: bytes, message: str, code: str) -> bytes:
    """Return a whole answer in OpenAI's shape, for a request that reaches no application."""
    body = orjson.dumps(error_body(message, "invalid_request_error", None, code))
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, len(body)) + body


_TOO_LONG = raw_answer(
    b"431 Request Header Fields Too Large",
    f"Request line and headers are longer than {MAX_HEAD_BYTES} bytes.",
    "headers_too_large",
)
_ENDED = {
    "head_timeout": raw_answer(
        b"408 Request Timeout", "The request's head took too long (server.head_timeout_seconds).", "timeout"
    ),
    "body_timeout": raw_answer(
        b"408 Request Timeout", "The request's body stopped coming (server.body_timeout_seconds).", "timeout"
    ),
    "displaced": raw_answer(
        b"503 Service Unavailable", "Too many connections (server.max_connections).", "too_many_connections"
    ),
}


class OldCycle(RequestResponseCycle):
    """The answer to a client of HTTP/1.0: without chunks; if its length is not known, it ends with the
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
        """Register the connection, or refuse it if there is no room."""
        super().connection_made(transport)
        self._client_connection = ClientConnection(self._push)
        self._since = self.loop.time()
        connections: Connections | None = self.app_state.get(CONNECTIONS)
        if connections is None:
            return
        if connections.admit(self, str(self.client[0]) if self.client else ""):
            self._connections = connections
        else:
            self._answer_and_close(_ENDED["displaced"])

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its place, and notify the request under way."""
        self._release()
        super().connection_lost(exc)
        self._client_connection.closed()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to WebSocketProtocol."""
        self._release()
        super().handle_websocket_upgrade()

    def is_late(self, now: float, limits: ClientLimits) -> str:
        """See Waiting. A body that the application does not read yet is not the client's fault."""
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
        """See Waiting."""
        begun = self._phase in (Phase.HEAD, Phase.BODY)
        answered = self._phase is Phase.BODY and self.cycle.response_started
        if begun and not answered and not self.pipeline:
            self._answer_and_close(_ENDED[reason])
        else:
            self.transport.close()

    def _push(self, data: bytes) -> bool:
        """See ClientConnection: what uvicorn's `send` does with a piece of a body, if it need not wait."""
        cycle = self.cycle  # of the last request: it has not started while the one before is answered
        is_usual = type(cycle) is RequestResponseCycle and cycle.response_started
        if not is_usual or cycle.response_complete or cycle.disconnected or self.flow.write_paused:
            return False
        if cycle.chunked_encoding:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        elif len(data) <= cycle.expected_content_length:
            cycle.expected_content_length -= len(data)
            self.transport.write(data)
        else:
            return False
        return True

    def _answer_and_close(self, answer: bytes) -> None:
        if self._phase is Phase.BODY:  # tell the application that its client has left
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
        """Parse what came, without the upgrade offers of a request's head."""
        if not self._in_body:  # never in a body: one byte less, and framing is lost
            head, end, rest = data.partition(_END_OF_HEAD)
            if (offers := _OFFER.findall(head)) and not self._opens_a_tunnel(head, offers):
                data = _OFFER.sub(b"", head) + end + rest
            self._head_bytes += len(head)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()
                return
        super().data_received(data)
        if self._in_body:
            self._enter(Phase.BODY)
        elif not self._head_bytes:
            has_answer = self.cycle is None or self.cycle.response_complete  # None: an upgrade, see above
            self._enter(Phase.IDLE if has_answer else Phase.ANSWER)
        elif self._phase in (Phase.NEW, Phase.IDLE):
            self._enter(Phase.HEAD)

    def _opens_a_tunnel(self, head: bytes, offers: list[bytes]) -> bool:
        """True for what uvicorn hands over to WebSocketProtocol."""
        asks = len(offers) == 1 and offers[0].partition(b":")[2].strip().lower() == b"websocket"
        return asks and head.startswith(b"GET ") and self.ws_protocol_class is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but no trailer. Called for every header, so it does not call uvicorn's."""
        if not self._in_body:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Complete the scope; the application's task first runs after that."""
        self._in_body, self._head_bytes = True, 0
        super().on_headers_complete()
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]
        self.scope[CLIENT_CONNECTION] = self._client_connection  # type: ignore[literal-required]
        if self.scope["http_version"] == "1.0" and self.cycle is not None:
            self.cycle.__class__ = OldCycle  # uvicorn makes it and starts its task, which has not run yet
            self.cycle.waiting_for_100_continue = False

    def on_message_complete(self) -> None:
        """The next bytes are the next request's."""
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if self._phase is Phase.ANSWER and not self.pipeline:
            self._enter(Phase.HEAD if self._head_bytes else Phase.IDLE)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in OpenAI's shape."""
        self.transport.write(raw_answer(b"400 Bad Request", msg, "invalid_http"))
        self.transport.close()


# ---------------------------------------------------------------- WebSockets
_CHUNK_BYTES = 64 * 1024
_CLOSE_WITHIN_S = 10.0  # for a client that does not read what is left
_KEY_PROTOCOL = b"openai-insecure-api-key."  # how browsers send a key: they set no header on a WebSocket
_SWITCHING_PROTOCOLS = 101


class WebSocketProtocol(asyncio.StreamReaderProtocol):
    """A connection on which a WebSocket was requested."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(asyncio.StreamReader(2 * MAX_HEAD_BYTES), self._serve)
        self._app, self._state, self._app_state = config.loaded_app, server_state, app_state
        self._connections: Connections | None = app_state.get(CONNECTIONS)
        self._left = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection from the HTTP protocol, which has just freed its place."""
        if self._connections is not None:
            peer = get_remote_addr(cast(asyncio.Transport, transport))
            self._connections.admit(self, peer[0] if peer else "")
            self._connections.busy(self)
        self._state.connections.add(self)  # type: ignore[arg-type] # uvicorn names its own classes
        self._connection = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        super().connection_lost(exc)
        if self._connections is not None:
            self._connections.release(self)
        self._state.connections.discard(self)
        self._left.set()

    def shutdown(self) -> None:
        """Called by uvicorn as it stops: a tunnel has until `server.shutdown_seconds`, as a stream has."""

    def is_late(self, now: float, limits: ClientLimits) -> str:
        """See Waiting: a tunnel has limits of its own."""
        return ""

    def end(self, reason: str) -> None:
        """See Waiting."""
        self._connection.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        tunnel = ClientTunnel(reader, writer, self._left)
        try:
            head = await reader.readuntil(_END_OF_HEAD)  # uvicorn has passed on all of it
            await self._app(self._scope(head, tunnel), tunnel.receive, tunnel.send)
        finally:
            writer.close()
            asyncio.get_running_loop().call_later(_CLOSE_WITHIN_S, self._connection.abort)

    def _scope(self, head: bytes, tunnel: "ClientTunnel") -> ASGIScope:
        request = _RequestHead()
        with suppress(httptools.HttpParserUpgrade):
            httptools.HttpRequestParser(request).feed_data(head)
        target, transport = httptools.parse_url(request.url), self._connection
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "method": "GET",
            "root_path": "",
            "path": unquote(target.path.decode("ascii")),
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": _with_credential(request.headers),
            "state": self._app_state.copy(),
            "raw_target": request.url,
            "tunnel": tunnel,
        }


class ClientTunnel:
    """The client's side of a tunnel: ASGI until the answer is 101, then plain reads and writes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: asyncio.Event
    ) -> None:
        self._reader, self._writer, self._left = reader, writer, left
        self._body_sent = False

    async def read(self) -> bytes:
        """Return what the client has sent since the last call, b"" at its end."""
        try:
            return await self._reader.read(_CHUNK_BYTES)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        """Send to the client, as fast as it reads. After it has left, data are dropped."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self) -> Message:
        """Return an empty body, then the client's disconnect."""
        if not self._body_sent:
            self._body_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write the answer's head, or a piece of its body, which ends with the connection."""
        if message["type"] == "http.response.body":
            if body := message.get("body", b""):
                await self.write(body)
            return
        upgrade = [b"connection: Upgrade", b"upgrade: websocket"]
        lines = [b"HTTP/1.1 %d " % message["status"]]
        lines += [name + b": " + value for name, value in message.get("headers", ())]
        lines += upgrade if message["status"] == _SWITCHING_PROTOCOLS else [b"connection: close"]
        await self.write(b"\r\n".join((*lines, b"", b"")))


class _RequestHead:
    """What httptools parses of a request's head."""

    def __init__(self) -> None:
        self.url, self.headers = b"", list[Header]()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def _with_credential(headers: list[Header]) -> list[Header]:
    """Return the headers with a key that came as a subprotocol moved to Authorization, so that authentication
    finds it, and no key of ours reaches the upstream."""
    if any(name == b"authorization" for name, _ in headers):
        return headers
    found, others = b"", list[Header]()
    for name, value in headers:
        if name == b"sec-websocket-protocol" and _KEY_PROTOCOL in value:
            offered = [token.strip() for token in value.split(b",")]
            found = next((t for t in offered if t.startswith(_KEY_PROTOCOL)), b"") or found
            value = b", ".join(token for token in offered if not token.startswith(_KEY_PROTOCOL))
        if value or name != b"sec-websocket-protocol":
            others.append((name, value))
    key = found.removeprefix(_KEY_PROTOCOL)
    return [*others, (b"authorization", b"Bearer " + key)] if key else others
