"""Feed the upstream's bytes, in whatever form it answered, to the translation of one response. Sans-I/O.

Send the answer of a translated request to the client: as events, as one object, or not at all.

The last event, and the whole object, are sent after the response is saved: clients may continue it at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from proxy.domain.errors import UpstreamBroken, UpstreamCut
from proxy.http.asgi import Header, Message, Send, send_bytes
from proxy.http.responses.response_store import BackgroundResponse
from proxy.http.turns import OFF_LOOP
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.relay import log_cut
from proxy.wire.answers import (
    LIMIT_BYTES,
    Problem,
    Values,
    is_openai_error,
    lenient,
    problem_of,
    problem_of_text,
)
from proxy.wire.body import LARGE_BYTES, dump, dump_large
from proxy.wire.http import unpacked, with_ours
from proxy.wire.translation.response import Translation, encode

Event = dict[str, Any]

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


class AnswerParser:
    """Feeds one translation. `broken` says why there is no answer, if the upstream sent none."""

    def __init__(
        self,
        translation: Translation,
        content_type: str,
        content_encoding: str,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.broken = ""
        self.ended = False
        self.cut = False
        self._translation = translation
        self._values = Values(content_type, content_encoding, limit_bytes)

    @property
    def is_heavy(self) -> bool:
        """True if the next bytes may take long."""
        return self._values.is_heavy

    def feed(self, chunk: bytes) -> list[Event]:
        if self.ended:
            return []
        events = [event for value in self._values.feed(chunk) for event in self._translation.feed(value)]
        if self._values.trouble or self._values.done:  # the connection may stay open for long
            events += self._finish(cut=False)
        return self._ending(events)

    def end(self, *, cut: bool) -> list[Event]:
        """The upstream's answer is over, or was cut: return what is left, the terminal event last."""
        self.cut = cut
        if self.ended:
            return []
        values = self._values.end(cut=cut)
        events = [event for value in values for event in self._translation.feed(value)]
        return self._ending(events + self._finish(cut=cut))

    def _finish(self, *, cut: bool) -> list[Event]:
        values = self._values
        if values.trouble:
            return self._translation.fail(values.trouble)
        return self._translation.finish(ended_well=values.over, cut=cut or values.ragged)

    def _ending(self, events: list[Event]) -> list[Event]:
        self.ended = self.ended or any(event["type"] in TERMINAL for event in events)
        if self.ended and self._translation.status == "failed":
            self.broken = self._translation.response["error"]["message"]
        return events


# What describes the upstream's body, which the client does not get.
_OF_THE_BODY = frozenset(
    b"accept-ranges content-digest content-encoding content-length content-md5 content-type digest etag"
    b" last-modified location vary".split()
)
Save = Callable[[], Awaitable[None]]
IN_THREAD_BYTES = 256 * 1024  # a document of this size takes some 5 ms to translate
LARGE_ANSWER_BYTES = 4 * 1024 * 1024  # from here on, each chunk is parsed in a thread
PORTION = 512 * 1024  # bytes that are sent at a time
Weigh = Callable[[], int]
COMMENT = b": keep-alive\n\n"
_MOST_TEXT_BYTES = 256 * 1024  # of a refusal, decoded


async def read_events(opened: UpstreamResponse, parser: AnswerParser) -> AsyncIterator[list[Event]]:
    """Yield the events of an upstream's answer, to its end. Work that takes long is done in a thread."""
    size, cut = 0, False
    while not parser.ended and not opened.at_end:
        try:
            chunk = await opened.read()
        except UpstreamCut:
            log_cut()
            cut = True
            break
        size += len(chunk)
        feed = partial(parser.feed, chunk)
        if events := await _in_thread(feed) if parser.is_heavy or size > LARGE_ANSWER_BYTES else feed():
            yield events
    in_thread = size > IN_THREAD_BYTES and not parser.ended
    finish = partial(parser.end, cut=cut)
    if events := await _in_thread(finish) if in_thread else finish():
        yield events


async def _in_thread(work: Callable[[], list[Event]]) -> list[Event]:
    """Return the work's result; if the client leaves, wait for its end first."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def header_values(headers: Sequence[Header]) -> tuple[str, str]:
    """Return content type and content encoding, "" if there is none."""
    values = {name: value.decode("latin-1") for name, value in headers}
    return values.get(b"content-type", ""), values.get(b"content-encoding", "")


async def encoded(events: Sequence[Event], size: int) -> list[bytes]:
    """Return the events as bytes. `size`: about how many bytes the response has, which the events at the end
    of an item, and of all, repeat."""
    made = [(len(e["delta"]) if "delta" in e else size) >= LARGE_BYTES for e in events]
    if not any(made):
        return list(map(encode, events))
    return await OFF_LOOP.run(max(size, LARGE_BYTES), lambda: [encode(event, dump_large) for event in events])


def for_client(upstream: Sequence[Header], ours: Sequence[Header]) -> list[Header]:
    """Return the upstream's headers that do not describe its body, and ours."""
    return with_ours((header for header in upstream if header[0] not in _OF_THE_BODY), ours)


@dataclass(frozen=True, slots=True)
class ClientRefusal:
    """An upstream's answer that is an error. `body`: what the client gets instead of its bytes; None where
    those have OpenAI's shape and pass unchanged."""

    status: int
    problem: Problem
    code: str  # of a response that fails by it
    body: bytes | None


def refusal_of(status: int, headers: Sequence[Header], body: bytes) -> ClientRefusal:
    """Return the refusal that an answer of this status is, with its beginning as `body`.

    The status stays, but that of a redirection: a client that followed it would go past the proxy.
    """
    kind, coding = header_values(headers)
    text = unpacked(body, coding, _MOST_TEXT_BYTES)
    ours = status if status >= 400 else 502
    code = "rate_limit_exceeded" if status == 429 else "server_error"
    try:
        value = lenient(text)
    except (ValueError, RecursionError):
        value = None
    problem = problem_of(value)
    if is_openai_error(value) and problem is not None and text == body and status >= 400:
        return ClientRefusal(status, problem, code, None)
    if status < 400:
        problem = Problem(f"The upstream redirects (status {status}): set upstream.base_url to where it is.")
    elif problem is None:
        is_json = value is not None or "json" in kind.lower()
        problem = problem_of_text("" if is_json else text.decode("utf-8", "replace"), status)
    return ClientRefusal(ours, problem, code, dump(problem.body(ours)))


class KeepAlive:
    """A `send` that writes an SSE comment where nothing was sent for `silence_s` seconds; 0: it never does.

    Balancers and clients cut connections that are silent, and a model may think for minutes.
    """

    def __init__(self, send: Send, silence_s: float) -> None:
        self._send, self._silence_s = send, silence_s
        self._sent_at = monotonic()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, message: Message) -> None:
        self._sent_at = monotonic()
        await self._send(message)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin, behind the answer's head."""
        if self._silence_s and self._task is None:
            self._task = tasks.create_task(self._comment())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _comment(self) -> None:
        while True:
            await asyncio.sleep(max(self._sent_at + self._silence_s - monotonic(), 0.01))
            if monotonic() - self._sent_at >= self._silence_s:
                await self({"type": "http.response.body", "body": COMMENT, "more_body": True})


class StreamOutlet:
    def __init__(
        self, send: Send, save: Save, weigh: Weigh, tasks: asyncio.TaskGroup, silence_s: float
    ) -> None:
        """`tasks` own what keeps the connection alive, until `stop`, or `close`."""
        self._send, self._save, self._weigh = KeepAlive(send, silence_s), save, weigh
        self._tasks = tasks
        self.started, self._open = False, True
        self._memory: list[Header] = []  # memory headers that the client has received

    async def start(self, headers: Sequence[Header]) -> None:
        """Send the head, once. If the memory headers have changed since, send the new ones in a comment."""
        before, self._memory = self._memory, [h for h in headers if h[0].startswith(b"x-memory-")]
        if self.started:
            if self._memory != before:
                lines = [b": %s: %s\n" % (name.title(), value) for name, value in self._memory]
                body = b"".join(lines) + b"\n"
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
            return
        self.started = True
        own = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            *((name, value) for name, value in headers if name != b"cache-control"),
            (b"cache-control", b"no-cache"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": own})
        self._send.start(self._tasks)

    async def emit(self, events: Sequence[Event]) -> None:
        if events[-1]["type"] in TERMINAL:
            self.stop()
            await self._save()
        made = await encoded(events, self._weigh())
        # In portions that the server sends without holding up the event loop.
        for piece in made if sum(map(len, made)) > PORTION else (b"".join(made),):
            for start in range(0, len(piece), PORTION):
                body = piece[start : start + PORTION]
                await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self, parser: AnswerParser) -> None:
        await self.close()

    async def close(self) -> None:
        self.stop()
        if self._open:
            self._open = False
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def stop(self) -> None:
        self._send.stop()


class JsonOutlet:
    def __init__(self, send: Send, save: Save, weigh: Weigh, translation: Translation) -> None:
        self._send, self._save, self._weigh, self._translation = send, save, weigh, translation
        self._headers: Sequence[Header] = ()

    async def start(self, headers: Sequence[Header]) -> None:
        self._headers = headers

    async def emit(self, events: Sequence[Event]) -> None:
        """Nothing: all of it is in the object."""

    async def finish(self, parser: AnswerParser) -> None:
        response = self._translation.response
        if response["status"] == "failed":
            raise UpstreamBroken(parser.broken or response["error"]["message"])
        await self._save()
        body = await OFF_LOOP.run(self._weigh(), dump_large, response)
        await send_bytes(self._send, 200, body, b"application/json", self._headers)


class BackgroundOutlet:
    """Events for later streams; `stream` is that of the client that asked, if it wants one."""

    def __init__(
        self, live: BackgroundResponse, save: Save, weigh: Weigh, stream: StreamOutlet | None
    ) -> None:
        self._live, self._save, self._weigh, self._stream = live, save, weigh, stream

    async def start(self, headers: Sequence[Header]) -> None:
        """The client has been answered: only what changed is news."""
        if self._stream is not None:
            await self._stream.start(headers)

    async def emit(self, events: Sequence[Event]) -> None:
        if events[-1]["type"] in TERMINAL:
            await self._save()
        for event in await encoded(events, self._weigh()):
            self._live.add(event)
        if self._stream is not None:
            await self._stream.emit(events)

    async def finish(self, parser: AnswerParser) -> None:
        if self._stream is not None:
            await self._stream.finish(parser)


Outlet = StreamOutlet | JsonOutlet | BackgroundOutlet
"""Where the events of one response go. `start`: the upstream has begun to answer. `emit`: pass on events, one
at least. `finish`: there are no more. Raises UpstreamBroken if the client has no status yet."""
