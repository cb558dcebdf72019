"""Send the answer of a translated request to the client: as events, as one object, or not at all.

The last event, and the whole object, wait until the response is saved: whoever has it may continue it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from proxy.edge.reply import Header, Send, send_bytes
from proxy.edge.responses.background import Live
from proxy.edge.responses.listening import TERMINAL, Event, Listener
from proxy.errors import UpstreamBroken
from proxy.upstream.headers import with_ours
from proxy.wire.body import dump
from proxy.wire.translation import Translation, encode

# What describes the upstream's body, which the client does not get.
_OF_THE_BODY = frozenset(
    {
        b"accept-ranges",
        b"content-digest",
        b"content-encoding",
        b"content-length",
        b"content-md5",
        b"content-type",
        b"digest",
        b"etag",
        b"last-modified",
        b"vary",
    }
)
Save = Callable[[], Awaitable[None]]


class Outlet(Protocol):
    """Where the events of one response go."""

    async def start(self, headers: Sequence[Header]) -> None:
        """The upstream has begun to answer; the headers are for the client."""
        ...

    async def emit(self, events: Sequence[Event]) -> None:
        """Pass events on, never empty."""
        ...

    async def finish(self, listener: Listener) -> None:
        """There are no more events. Raises UpstreamBroken if the client can still be told so by a status."""
        ...


def for_client(upstream: Sequence[Header], ours: Sequence[Header]) -> list[Header]:
    """Return the upstream's headers that do not speak of its body, and ours."""
    return with_ours((header for header in upstream if header[0] not in _OF_THE_BODY), ours)


class Stream:
    """Server-sent events, as they come."""

    def __init__(self, send: Send, save: Save) -> None:
        self._send, self._save = send, save
        self._open = True

    async def start(self, headers: Sequence[Header]) -> None:
        told = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            *((name, value) for name, value in headers if name != b"cache-control"),
            (b"cache-control", b"no-cache"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": told})

    async def emit(self, events: Sequence[Event]) -> None:
        if events[-1]["type"] in TERMINAL:
            await self._save()
        body = b"".join(map(encode, events))
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self, listener: Listener) -> None:
        await self.close()

    async def close(self) -> None:
        """End the stream, if it has not ended."""
        if self._open:
            self._open = False
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class Whole:
    """One JSON object at the end."""

    def __init__(self, send: Send, save: Save, translation: Translation) -> None:
        self._send, self._save, self._translation = send, save, translation
        self._headers: Sequence[Header] = ()

    async def start(self, headers: Sequence[Header]) -> None:
        self._headers = headers

    async def emit(self, events: Sequence[Event]) -> None:
        """Nothing: all of it is in the object."""

    async def finish(self, listener: Listener) -> None:
        response = self._translation.response
        if response["status"] == "failed":
            raise UpstreamBroken(listener.broken or response["error"]["message"])
        await self._save()
        await send_bytes(self._send, 200, dump(response), b"application/json", self._headers)


class Background:
    """Events for whoever follows; `stream` is the client that asked, if it stays to listen."""

    def __init__(self, live: Live, save: Save, stream: Stream | None) -> None:
        self._live, self._save, self._stream = live, save, stream

    async def start(self, headers: Sequence[Header]) -> None:
        """Nothing: the client has been answered."""

    async def emit(self, events: Sequence[Event]) -> None:
        if events[-1]["type"] in TERMINAL:
            await self._save()
        for event in events:
            self._live.add(encode(event))
        if self._stream is not None:
            await self._stream.emit(events)

    async def finish(self, listener: Listener) -> None:
        if self._stream is not None:
            await self._stream.finish(listener)
