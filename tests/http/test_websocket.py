"""WebSockets through the whole proxy: a real client, a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response

from proxy.http.connections import WebSocketProtocol
from tests.e2e.conftest import House, Houses

OFFERS: list[Any] = ["realtime"]


class Realtime:
    """An upstream that echoes, and notes the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closed = asyncio.Event()
        self.url = ""

    async def echo(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.requests.append(connection.request)
        try:
            async for message in connection:
                await connection.send(message)
        finally:
            self.closed.set()

    def refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        if "refused" not in request.path:
            return None
        response = connection.respond(403, "not today")
        response.headers["x-why"] = "because"
        return response


@contextlib.asynccontextmanager
async def realtime() -> AsyncIterator[Realtime]:
    made = Realtime()
    async with serve(
        made.echo, "127.0.0.1", 0, subprotocols=OFFERS, process_request=made.refuse, max_size=None
    ) as server:
        made.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/base"
        yield made


@contextlib.asynccontextmanager
async def through(house: Houses, **sections: Any) -> AsyncIterator[tuple[Realtime, House, str]]:
    async with realtime() as upstream:
        extra = {"base_url": upstream.url, **sections.pop("upstream", {})}
        async with house(
            upstream_extra=extra, upstream_url=upstream.url, ws=WebSocketProtocol, **sections
        ) as h:
            yield upstream, h, f"ws{h.origin.removeprefix('http')}/v1/realtime"


async def test_messages_pass_both_ways_text_binary_and_large(house):
    headers = {"X-Memory-User-Id": "alice", "Authorization": "Bearer sk-own", "OpenAI-Beta": "realtime=v1"}
    async with through(house) as (upstream, _, url):
        async with connect(
            url + "?model=m%20x", additional_headers=headers, subprotocols=OFFERS, max_size=None
        ) as client:
            assert client.subprotocol == "realtime"
            for message in ("é", b"\x00\xff", "x" * 3_000_000, b"y" * 3_000_000):
                await client.send(message)
                assert await client.recv() == message
            await client.ping()
        await asyncio.wait_for(upstream.closed.wait(), 10)
    (request,) = upstream.requests
    assert request.path == "/base/realtime?model=m%20x"
    assert request.headers["authorization"] == "Bearer sk-own"
    assert request.headers["openai-beta"] == "realtime=v1"
    assert "x-memory-user-id" not in request.headers


async def test_a_refusal_passes_and_foreign_pages_and_routes_with_memory_have_no_websocket(house):
    foreign: Any = "https://evil.example"
    async with through(house) as (upstream, h, _):

        async def refused(path, **options):
            with pytest.raises(InvalidStatus) as error:
                await connect(f"ws{h.origin.removeprefix('http')}/v1/{path}", **options)
            return error.value.response

        theirs = await refused("refused")
        assert (theirs.status_code, theirs.headers["x-why"]) == (403, "because")
        assert b"not today" in (theirs.body or b"")
        assert (await refused("realtime", origin=foreign)).status_code == 403
        for path in ("responses", "chat/completions", "responses/resp_1"):
            ours = await refused(path)
            assert (ours.status_code, b"upgrade_refused" in (ours.body or b"")) == (426, True)
    assert not upstream.requests


async def test_a_key_among_the_subprotocols_is_a_credential(house):
    """Our own keys, too, come this way from a browser, and are none of the upstream's."""
    offers: list[Any] = ["realtime", "openai-insecure-api-key.sk-1"]
    async with through(house) as (upstream, _, url), connect(url, subprotocols=offers):
        pass
    (request,) = upstream.requests
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["sec-websocket-protocol"] == "realtime"
    async with through(house, identity={"mode": "keys"}) as (upstream, _, url):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, subprotocols=offers)
    assert refused.value.response.status_code == 401
    assert not upstream.requests


async def test_a_client_that_vanishes_ends_the_upstreams_side(house, monkeypatch):
    monkeypatch.setattr("proxy.upstream.relay._LAST_WORDS_S", 0.2)
    async with through(house) as (upstream, _, url):
        client = await connect(url, subprotocols=OFFERS)
        client.transport.abort()
        await asyncio.wait_for(upstream.closed.wait(), 10)


async def test_a_tunnel_in_which_nothing_moves_ends(house):
    async with through(house, upstream={"read_timeout_seconds": 0.2}) as (upstream, _, url):
        async with connect(url, ping_interval=None, subprotocols=OFFERS) as client:
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(client.recv(), 10)
        await asyncio.wait_for(upstream.closed.wait(), 10)
