"""The client's side of a WebSocket: uvicorn hands the connection over (`ws=`), and its bytes are tunnelled.

The request passes the ASGI application like every other, as scope type `http` with the tunnel in
`scope["tunnel"]`: router, entrance and limits do not know of WebSockets. An application that sends status
101 gets the tunnel; any other status is an ordinary answer, after which the connection closes.
"""

import asyncio
from contextlib import suppress
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from proxy.http.asgi import ASGIScope, Header, Message
from proxy.http.connections import CONNECTIONS, ConnectionLimits, Connections

_HELD_BYTES = 128 * 1024  # from the client, before it is read no further
_CLOSE_WITHIN_S = 10.0  # for a client that does not take what is left
_KEY_PROTOCOL = b"openai-insecure-api-key."  # how browsers send a key: they set no header on a WebSocket
_SWITCHING_PROTOCOLS = 101


class WebSocketProtocol(asyncio.Protocol):
    """One connection on which a WebSocket was requested. Also the tunnel: `read`, `write`."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._app, self._state, self._app_state = config.loaded_app, server_state, app_state
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connections: Connections | None = None
        self._task: asyncio.Task[None] | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers = b"", list[Header]()
        self._held = bytearray()
        self._paused, self._ended, self._asked = False, False, False
        self._news = asyncio.Event()  # something to read, or the end
        self._left = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # ------------------------------------------------------------ the connection
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection from the HTTP protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections = self._app_state.get(CONNECTIONS)
        if self._connections is not None:  # which has just let it go, and so has room
            peer = get_remote_addr(self._transport)
            self._connections.admit(self, peer[0] if peer else "")
            self._connections.busy(self)
        self._state.connections.add(self)  # type: ignore[arg-type] # uvicorn names its own classes

    def data_received(self, data: bytes) -> None:
        """First the request's head, which is whole, then the tunnel's bytes."""
        if self._task is None:
            self._begin(data)
            return
        self._held += data
        self._news.set()
        if len(self._held) > _HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client says no more; what it has said is still passed on."""
        self._ended = True
        self._news.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._ended = True
        if self._connections is not None:
            self._connections.release(self)
        self._state.connections.discard(self)
        for event in (self._news, self._left, self._writable):
            event.set()

    def pause_writing(self) -> None:
        """The client takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client takes more."""
        self._writable.set()

    def shutdown(self) -> None:
        """Called by uvicorn as it stops: a tunnel has until the end of its patience, as a stream has."""

    def is_late(self, now: float, limits: ConnectionLimits) -> str:
        """As connections.Waiting says: a tunnel has limits of its own."""
        return ""

    def end(self, reason: str) -> None:
        """As connections.Waiting says."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ the tunnel
    async def read(self) -> bytes:
        """Return what the client has sent since the last call, b"" at its end."""
        while not self._held:
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        data = bytes(self._held)
        self._held.clear()
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Send to the client, as fast as it takes it. What it no longer takes is dropped."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        await self._writable.wait()

    # ------------------------------------------------------------ ASGI
    async def receive(self) -> Message:
        """There is no body; then the client's leaving."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write the answer's head, or a piece of its body, which lasts until the connection closes."""
        if message["type"] == "http.response.body":
            if body := message.get("body", b""):
                await self.write(body)
            return
        status = message["status"]
        lines = [b"HTTP/1.1 %d " % status]
        lines += [name + b": " + value for name, value in message.get("headers", ())]
        lines += (
            [b"connection: Upgrade", b"upgrade: websocket"]
            if status == _SWITCHING_PROTOCOLS
            else [b"connection: close"]
        )
        await self.write(b"\r\n".join((*lines, b"", b"")))

    # ------------------------------------------------------------ inside
    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def _begin(self, head: bytes) -> None:
        with suppress(httptools.HttpParserUpgrade):  # it ends with the head
            self._parser.feed_data(head)
        self._task = self._loop.create_task(self._serve())
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._state.tasks.discard)

    async def _serve(self) -> None:
        try:
            await self._app(self._scope(), self.receive, self.send)
        finally:
            self._close()

    def _close(self) -> None:
        if (transport := self._transport) is not None:
            transport.close()
            self._loop.call_later(_CLOSE_WITHIN_S, transport.abort)

    def _scope(self) -> ASGIScope:
        assert self._transport is not None
        parsed = httptools.parse_url(self._url)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
            "scheme": "https" if is_ssl(self._transport) else "http",
            "method": "GET",
            "root_path": "",
            "path": unquote(parsed.path.decode("ascii")),
            "raw_path": parsed.path,
            "query_string": parsed.query or b"",
            "headers": _with_credential(self._headers),
            "state": self._app_state.copy(),
            "raw_target": self._url,
            "tunnel": self,
        }


def _with_credential(headers: list[Header]) -> list[Header]:
    """Return the headers with a key that came as a subprotocol where keys stand in a request: there the
    entrance finds it, and no key of ours reaches the upstream."""
    if any(name == b"authorization" for name, _ in headers):
        return headers
    found, kept = b"", list[Header]()
    for name, value in headers:
        if name == b"sec-websocket-protocol" and _KEY_PROTOCOL in value:
            offered = [token.strip() for token in value.split(b",")]
            found = next((t for t in offered if t.startswith(_KEY_PROTOCOL)), b"") or found
            value = b", ".join(token for token in offered if not token.startswith(_KEY_PROTOCOL))
        if value or name != b"sec-websocket-protocol":
            kept.append((name, value))
    key = found.removeprefix(_KEY_PROTOCOL)
    return [*kept, (b"authorization", b"Bearer " + key)] if key else kept
