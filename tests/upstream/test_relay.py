"""A client, uvicorn, the relay, an upstream: all on real sockets."""

import asyncio
import functools
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.domain.errors import UpstreamError
from proxy.http.asgi import send_error
from proxy.upstream.client import Upstream
from proxy.upstream.connection import Timeouts
from proxy.upstream.relay import (
    CLIENT_CONNECTION,
    ClientConnection,
    Downstream,
    Ending,
    Tap,
    passthrough,
    relay,
)
from tests.support.examples import examples
from tests.support.serving import ask, connected, serving
from tests.support.upstream import Exchange, ScriptedUpstream, completion_events, head, split

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Proxy:
    """A passthrough proxy in front of the scripted upstream, and how its requests ended."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.endings: asyncio.Queue[Ending] = asyncio.Queue()
        self.origin = ""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        try:
            self.endings.put_nowait(await passthrough(scope, receive, send, self.upstream))
        except UpstreamError as error:  # what the application's handlers do
            self.endings.put_nowait(Ending.UPSTREAM_CUT)
            await send_error(send, error)

    async def ending(self) -> Ending:
        async with asyncio.timeout(30):
            return await self.endings.get()


@asynccontextmanager
async def proxy_of(scripted: ScriptedUpstream, **options: Any) -> AsyncIterator[Proxy]:
    async with Upstream(scripted.url, **options) as upstream:
        proxy = Proxy(upstream)
        async with serving(proxy) as proxy.origin:
            yield proxy


def dechunk(raw: bytes) -> tuple[bytes, bool]:
    """Return the body of a chunked answer and whether it was complete."""
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        if size == b"0":
            return body, True
        body += raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]
    return body, False


# ---------------------------------------------------------------- bytes
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(0, 2000), max_size=12), chunked=st.booleans())
async def test_a_stream_arrives_byte_for_byte_wherever_it_is_split(cuts, chunked):
    body = b"".join(completion_events("Grüße, 世界 🌍", "\n\ndata: no", "é" * 400))
    pieces = list(split(body, cuts))

    async def script(exchange):
        if chunked:
            await exchange.stream(*pieces)
        else:
            await exchange.send(head(200, [(b"content-length", b"%d" % len(body))]), *pieces)

    async with ScriptedUpstream(script) as scripted, proxy_of(scripted) as proxy:
        _, raw = await ask(proxy.origin, b"POST /v1/chat/completions", (), b"{}")
        assert await proxy.ending() == Ending.COMPLETE
    assert (dechunk(raw) if chunked else (raw, True)) == (body, True)


async def test_each_piece_arrives_before_the_next_is_sent():
    step = asyncio.Semaphore(0)

    async def script(exchange):
        await exchange.start_stream()
        for piece in (b"one", "ü".encode()[:1], "ü".encode()[1:]):
            await exchange.chunk(piece)
            await step.acquire()
        await exchange.end()

    async with (
        ScriptedUpstream(script) as scripted,
        proxy_of(scripted) as proxy,
        connected(proxy.origin) as client,
        asyncio.timeout(30),
    ):
        await client.send(b"GET /v1/x HTTP/1.1\r\nhost: h\r\n\r\n")
        await client.head()
        for piece in (b"one", "ü".encode()[:1], "ü".encode()[1:]):
            assert await client.reader.readuntil(b"\r\n") == b"%x\r\n" % len(piece)
            assert await client.reader.readexactly(len(piece) + 2) == piece + b"\r\n"
            step.release()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_any_status_passes_with_its_body_and_headers(status):
    body = b'{"error": {"message": "n\xc3\xb6", "odd": 1.0}}\n'
    own = [(b"retry-after", b"3"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-latin", b"\xe9")]

    async def script(exchange):
        await exchange.reply(body, status, [*own, (b"connection", b"x-hop"), (b"x-hop", b"1")])

    async with ScriptedUpstream(script) as scripted, proxy_of(scripted) as proxy:
        answer, received = await ask(proxy.origin, b"POST /v1/x", (b"authorization: Bearer k",), b"{}")
    lines = answer.split(b"\r\n")
    assert (int(lines[0].split()[1]), received) == (status, body)
    passed = [b": ".join(header) for header in own]
    assert lines[1:] == [*passed, b"content-length: %d" % len(body), b"connection: close"]
    assert scripted.requests[0].header(b"authorization") == b"Bearer k"


async def test_multipart_and_binary_pass_byte_for_byte():
    upload = (
        b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n" + os.urandom(300_000) + b"\r\n--b--\r\n"
    )
    download = os.urandom(2_000_000)

    async def script(exchange):
        await exchange.reply(download, 200, [(b"content-type", b"audio/mpeg")])

    async with ScriptedUpstream(script) as scripted, proxy_of(scripted) as proxy:
        kind = b"content-type: multipart/form-data; boundary=b"
        _, received = await ask(proxy.origin, b"POST /v1/files", (kind,), upload)
    assert received == download
    assert scripted.requests[0].body == upload
    assert scripted.requests[0].header(b"content-type") == b"multipart/form-data; boundary=b"
    assert scripted.requests[0].header(b"content-length") == b"%d" % len(upload)


async def test_an_upload_of_50_mb_is_never_held_in_memory():
    piece = os.urandom(1 << 20)
    digest = hashlib.sha256()
    go_on = asyncio.Event()
    taken = 0

    async def script(exchange):
        nonlocal taken
        exchange.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go_on.wait()
        exchange.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async for part in exchange.body():
            digest.update(part)
            taken += len(part)
        await exchange.reply(b"thanks")

    async def upload():
        sent = 0
        for _ in range(50):
            await client.send(piece)
            sent += len(piece)
            progress.append(sent)
        return sent

    progress: list[int] = []
    async with (
        ScriptedUpstream(script, read_body=False) as scripted,
        proxy_of(scripted) as proxy,
        connected(proxy.origin) as client,
        asyncio.timeout(60),
    ):
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (50 << 20))
        uploading = asyncio.create_task(upload())
        await scripted.until_requests(1)
        await asyncio.sleep(0.2)  # time enough for all of it, if anyone held it
        held = progress[-1] if progress else 0
        go_on.set()
        assert await uploading == 50 << 20
        assert b"200" in await client.head()
    assert held < 25 << 20  # what the kernel's socket buffers take, and no more
    assert digest.digest() == hashlib.sha256(piece * 50).digest()


async def test_many_streams_at_once_all_arrive_whole():
    pieces = [b"data: %d\n\n" % number for number in range(16)]

    async def script(exchange):
        await exchange.start_stream()
        for piece in pieces:
            await exchange.chunk(piece)
            await asyncio.sleep(0)
        await exchange.end()

    async def one():
        async with connected(proxy.origin) as client:
            await client.send(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
            await client.head()
            return dechunk(await client.rest())

    async with ScriptedUpstream(script) as scripted, proxy_of(scripted) as proxy, asyncio.timeout(60):
        answers = await asyncio.gather(*[one() for _ in range(64)])
    assert answers == [(b"".join(pieces), True)] * 64


async def test_a_client_that_reads_slowly_holds_the_upstream_up():
    sent = 0

    async def script(exchange):
        nonlocal sent
        await exchange.start_stream()
        while sent < 200 << 20:
            await exchange.chunk(bytes(65536))
            sent += 65536

    async with ScriptedUpstream(script) as scripted, proxy_of(scripted) as proxy:
        async with connected(proxy.origin) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(b"GET /v1/x HTTP/1.1\r\nhost: h\r\n\r\n")
            before = -1
            while not sent or before != sent:  # until it has begun, and nothing moves any more
                before = sent
                await asyncio.sleep(0.1)
        await scripted.until_closed()
    assert 0 < sent < 30 << 20


# ---------------------------------------------------------------- endings
GET = b"GET /v1/x HTTP/1.1\r\nhost: h\r\n\r\n"


class TooLate(AssertionError):
    """The upstream was closed more than 100 ms after its client had left."""


def one_of_five(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Try again what came too late: a busy machine delays some tries, a proxy that waits delays all."""

    @functools.wraps(test)
    async def tried(*arguments: Any, **named: Any) -> None:
        for _ in range(4):
            with suppress(TooLate):
                return await test(*arguments, **named)
        return await test(*arguments, **named)

    return tried


async def closed_in_time(scripted: ScriptedUpstream, left_at: float) -> None:
    if await scripted.until_closed() - left_at >= 0.1:
        raise TooLate


@pytest.mark.parametrize("moment", ["before the answer", "silent stream", "silent body", "torrent", "upload"])
@one_of_five
async def test_a_client_leaving_closes_the_upstream_within_100_ms(moment):
    async def script(exchange):
        if moment == "upload":
            async for _ in exchange.body():
                arrived.set()
        elif moment == "silent body":
            await exchange.send(head(200, [(b"content-length", b"1000")]))
        elif moment != "before the answer":
            await exchange.start_stream()
            while moment == "torrent":
                await exchange.chunk(bytes(30_000))
        await exchange.client_left()

    async def until(client):
        if moment == "before the answer":
            await scripted.until_requests(1)
        elif moment == "upload":
            await arrived.wait()
        else:
            await client.head()

    arrived = asyncio.Event()
    upload = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n" + bytes(1000)
    is_upload = moment == "upload"
    async with ScriptedUpstream(script, read_body=not is_upload) as scripted, proxy_of(scripted) as proxy:
        async with connected(proxy.origin) as client:
            await client.send(upload if is_upload else GET)
            await until(client)
            left_at = time.monotonic()
        await closed_in_time(scripted, left_at)
        assert await proxy.ending() == Ending.CLIENT_LEFT


@pytest.mark.parametrize("how", [Exchange.close, Exchange.reset])
async def test_an_upstream_dying_mid_stream_ends_the_client_s_answer_uncleanly(how):
    async def script(exchange):
        await exchange.start_stream()
        await exchange.chunk(b"data: one\n\n", "data: ü".encode()[:-1])
        await client_has_it.wait()
        how(exchange)

    client_has_it = asyncio.Event()
    async with (
        ScriptedUpstream(script) as scripted,
        proxy_of(scripted) as proxy,
        connected(proxy.origin) as client,
        asyncio.timeout(30),
    ):
        await client.send(GET)
        await client.head()
        begin = await client.reader.readuntil(b"\xc3\r\n")
        client_has_it.set()
        body, complete = dechunk(begin + await client.rest())
        assert (body, complete) == (b"data: one\n\n" + "data: ü".encode()[:-1], False)
        assert await proxy.ending() == Ending.UPSTREAM_CUT


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("closes", 502, "upstream_invalid_response"),
        ("is silent", 504, "upstream_timeout"),
        ("is gone", 502, "upstream_unreachable"),
    ],
)
async def test_an_upstream_that_gives_no_answer_is_reported_in_openai_s_shape(how, status, code):
    async def script(exchange):
        if how == "closes":
            exchange.close()
        else:
            await exchange.client_left()

    async with (
        ScriptedUpstream(script) as scripted,
        proxy_of(scripted, timeouts=Timeouts(headers_s=0.05)) as proxy,
    ):
        if how == "is gone":
            await scripted.__aexit__()
        answer, body = await ask(proxy.origin, b"POST /v1/x", (), b"{}")
    assert b" %d " % status in answer
    assert b"content-type: application/json" in answer
    error = orjson.loads(body)["error"]
    assert (error["code"], error["param"], bool(error["message"])) == (code, None, True)


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("chunked", [True, False])
async def test_each_piece_of_a_stream_is_passed_on_at_once_and_copied(chunked, pipelined):
    request = b"GET /v1/x HTTP/1.1\r\nhost: localhost\r\n\r\n"
    pieces, taken = [b"one", b"two", b"three"], asyncio.Event()
    taps = []

    async def script(exchange):
        begin = (b"content-length", b"11") if not chunked else (b"transfer-encoding", b"chunked")
        await exchange.send(head(200, [begin]))
        for piece in pieces:
            await (exchange.chunk(piece) if chunked else exchange.send(piece))
            async with asyncio.timeout(30):
                await taken.wait()
            taken.clear()
        if chunked:
            await exchange.end()

    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:

        async def app(scope, receive, send):
            async with Downstream(receive, scope[CLIENT_CONNECTION]) as downstream:
                await downstream.body()
                taps.append(Tap())
                await relay(await upstream.open("GET", b"/v1/x", []), downstream, send, tap=taps[-1])

        async with serving(app) as origin, connected(origin) as client:
            await client.send(request * 2 if pipelined else request)
            for number in range(2):  # the connection is as good as before
                if number == 1 and not pipelined:
                    await client.send(request)
                await client.head()
                for piece in pieces:
                    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                    assert await client.reader.readexactly(len(framed)) == framed
                    taken.set()
                if chunked:
                    assert await client.reader.readexactly(5) == b"0\r\n\r\n"
    assert [b"".join(tap.chunks) for tap in taps] == [b"onetwothree"] * 2


async def test_a_client_that_leaves_ends_its_latest_request_although_the_one_before_is_still_ending():
    connection, noticed = ClientConnection(), asyncio.Event()

    async def serve(begun, may_end):
        async with Downstream(whole_body, connection) as downstream:
            await downstream.body()
            begun.set()
            await may_end.wait()
        if downstream.left:
            noticed.set()

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        answered = asyncio.Event()
        for may_end in (answered, asyncio.Event()):
            begun = asyncio.Event()
            tasks.create_task(serve(begun, may_end))
            await begun.wait()
        answered.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.closed()
        await noticed.wait()


async def whole_body():
    return {"type": "http.request", "body": b"", "more_body": False}


# ---------------------------------------------------------------- the pieces by themselves
def test_a_tap_holds_what_fits_and_then_nothing():
    tap = Tap()
    for chunk in (b"one", b"two", bytes(8 << 20), b"d"):
        tap.add(chunk)
    assert (b"".join(tap.chunks), tap.size, tap.truncated) == (b"onetwo", 6, True)
