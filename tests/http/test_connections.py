"""Connections that keep the proxy waiting, and clients of HTTP/1.0, over real sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.http import connections
from proxy.http.connections import CONNECTIONS, ClientLimits, Connections, RawTargetProtocol
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import when
from tests.support.serving import RawClient, ask, connected, serving

GET = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"


class Echo:
    """An ASGI app that answers with the body that it got, once `go` is set, and notes clients that left."""

    def __init__(self, limits: ClientLimits) -> None:
        self.limits, self.ended = limits, list[str]()
        self.go, self.left, self.reached = asyncio.Event(), 0, 0
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"][CONNECTIONS] = Connections(self.limits, self.ended.append)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.reached += 1
        body, more = b"", True
        await self.go.wait()
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left += 1
                return
            body, more = body + message["body"], message["more_body"]
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(connections, "_SWEEP_S", 0.1)


@contextlib.asynccontextmanager
async def limited(**limits: Any) -> AsyncIterator[tuple[Echo, str]]:
    app = Echo(ClientLimits(**limits))
    async with asyncio.timeout(60), serving(app, http=RawTargetProtocol, lifespan="on") as origin:
        yield app, origin


async def error(client: RawClient) -> tuple[bytes, str]:
    """Return the status and the code of an error answer, which ends the connection."""
    head, body = await client.head(), await client.rest()
    return head.split()[1], json.loads(body)["error"]["code"]


# ---------------------------------------------------------------- time
async def test_half_a_head_and_half_a_body_end_with_an_answer():
    async with limited(head_s=0.5, body_s=0.5) as (app, origin), connected(origin) as head:
        async with connected(origin) as body, connected(origin) as second, connected(origin) as silent:
            await head.send(b"GET / HTTP/1.1\r\nx:")
            await body.send(POST + b"12")
            await second.send(GET)
            assert b" 200 " in await second.head()
            await second.send(GET[:9])
            assert await error(head) == (b"408", "timeout")
            assert await error(body) == (b"408", "timeout")
            assert await error(second) == (b"408", "timeout")
            assert await silent.rest() == b"", "a browser opens connections in advance: no answer to nothing"
        assert sorted(app.ended) == ["body_timeout", *["head_timeout"] * 3]
        await when(lambda: app.left)


async def test_a_slow_upload_that_continues_is_fine():
    async with limited(head_s=0.3, body_s=0.8) as (_, origin), connected(origin) as client:
        await client.send(POST)
        for digit in b"12345":
            await asyncio.sleep(0.25)
            await client.send(bytes([digit]))
        assert b" 200 " in await client.head()


async def test_a_request_that_is_being_answered_has_all_the_time():
    async with limited(head_s=0.3, body_s=0.3) as (app, origin), connected(origin) as client:
        app.go.clear()
        await client.send(GET)
        await asyncio.sleep(0.8)
        app.go.set()
        assert b" 200 " in await client.head()
        assert app.ended == []


# ---------------------------------------------------------------- room
@pytest.mark.parametrize("sent", [b"", POST + b"12", GET])
async def test_connections_that_wait_for_their_client_make_room(sent):
    async with limited(most=20) as (app, origin), contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(connected(origin)) for _ in range(100)]
        for client in crowd:
            with contextlib.suppress(ConnectionError):
                await client.send(sent)
        async with connected(origin) as client:
            await client.send(GET)
            assert b" 200 " in await client.head()
        assert app.ended.count("displaced") >= 80
        assert "refused" not in app.ended


async def test_the_peer_that_has_most_makes_room():
    room, closed = Connections(ClientLimits(most=3)), list[str]()

    class One:
        def __init__(self, name):
            self.name = name

        def is_late(self, now, limits):
            return ""

        def end(self, reason):
            closed.append(self.name)

    for name, peer in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("b3", "b")):
        assert room.admit(One(name), peer)
    assert closed == ["b1", "a1"]
    assert len(room) == 3


async def test_a_connection_is_refused_only_if_all_are_busy():
    async with limited(most=4, most_of_peer=3) as (app, origin), contextlib.AsyncExitStack() as stack:
        app.go.clear()
        busy = [await stack.enter_async_context(connected(origin)) for _ in range(3)]
        for client in busy:
            await client.send(GET)
        await when(lambda: app.reached == 3)
        async with connected(origin) as client:
            assert await error(client) == (b"503", "too_many_connections")
        assert app.ended == ["refused"]
        app.go.set()
        assert all([b" 200 " in await client.head() for client in busy])
        async with connected(origin) as client:
            await client.send(GET)
            assert b" 200 " in await client.head()


def test_limits_leave_room_for_the_upstream():
    def of(most, of_peer, files):
        limits = ClientLimits.of(1, 1, most, of_peer, files)
        return limits.most, limits.most_of_peer

    assert of(0, 0, 1024) == (480, 240)
    assert of(0, 0, None) == (0, 0)
    assert of(100, 0, 1024) == (100, 50)
    assert of(100, 100, 1024) == (100, 100)


# ---------------------------------------------------------------- HTTP/1.0, and Expect
@pytest.mark.parametrize(("stream", "keep_alive"), [(False, b""), (True, b"connection: keep-alive\r\n")])
async def test_a_client_of_http_1_0_gets_what_it_can_read(house, stream, keep_alive):
    async with house(ChatOnly("All is well.")) as h, connected(h.origin) as client:
        asked = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hello"}]}
        body = json.dumps(asked).encode()
        line = b"POST /v1/chat/completions HTTP/1.0\r\nexpect: 100-continue\r\n" + keep_alive
        await client.send(line + b"content-length: %d\r\n\r\n" % len(body) + body)
        head, answer = await client.head(), await client.rest()
        assert b" 200 " in head
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        if stream:
            assert answer.startswith(b"data: {")
            assert answer.endswith(b"data: [DONE]\n\n")
        else:
            assert json.loads(answer)["choices"][0]["message"]["content"] == "All is well."


async def test_a_client_that_expects_to_be_asked_for_its_body_is_asked(house):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    async with asyncio.timeout(30), house() as h, connected(h.origin) as client:
        line = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
        await client.send(line + b"content-length: %d\r\n\r\n" % len(body))
        assert await client.head() == b"HTTP/1.1 100 Continue"
        await client.send(body)
        assert b" 200 " in await client.head()
        assert h.upstream.requests[-1].header(b"expect") is None


async def test_malformed_http_is_refused_in_openai_s_shape(house):
    async with house() as h:
        head, body = await ask(h.origin, b"GET /v1/models\x00", ())
        assert (head.split()[1], json.loads(body)["error"]["code"]) == (b"400", "invalid_http")
