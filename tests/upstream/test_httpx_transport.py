"""httpx.AsyncClient over the relay's own client, and one small document from one address."""

import asyncio

import httpx
import pytest

from proxy.domain.errors import UpstreamError
from proxy.upstream import httpx_transport as module
from proxy.upstream.connection import Timeouts
from proxy.upstream.httpx_transport import Transport, fetch
from tests.support.upstream import Exchange, ScriptedUpstream


async def test_a_client_of_httpx_reads_answers_and_uses_connections_again():
    async def script(exchange):
        await exchange.stream(b"one ", exchange.request.body)

    async def body():
        yield b"stre"
        yield b"amed"

    async with ScriptedUpstream(script) as scripted, httpx.AsyncClient(transport=Transport()) as client:
        for _ in range(2):
            answer = await client.post(f"{scripted.origin}/a%20b?c=%2A", content=b"two", headers={"x-a": "1"})
            assert (answer.status_code, answer.text) == (200, "one two")
        assert (await client.post(scripted.origin, content=body())).text == "one streamed"
        async with client.stream("GET", scripted.origin):
            pass  # left unread: the connection is broken off
        await scripted.until_closed(0)
    first = scripted.requests[0]
    assert first.target == b"/a%20b?c=%2A"
    assert first.header(b"host") == scripted.origin.removeprefix("http://").encode()
    assert [name for name, _ in first.headers].count(b"content-length") == 1
    assert scripted.requests[1].connection is first.connection


async def test_failures_are_those_of_httpx():
    async def cut(exchange):
        await exchange.start_stream()
        await exchange.chunk(b"half")
        exchange.close()

    async def nonsense(exchange):
        await exchange.send(b"SSH-2.0-x\r\n\r\n")

    kinds = {
        Exchange.client_left: httpx.ReadTimeout,
        cut: httpx.ReadError,
        nonsense: httpx.RemoteProtocolError,
    }
    transport = Transport(timeouts=Timeouts(headers_s=0.1))
    async with asyncio.timeout(30), httpx.AsyncClient(transport=transport) as client:
        for script, kind in kinds.items():
            async with ScriptedUpstream(script) as scripted:
                with pytest.raises(kind):
                    await client.get(scripted.origin)
        with pytest.raises(httpx.ConnectError, match="nothing listens there"):
            await client.get(scripted.origin)
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/x")


async def test_no_redirect_is_followed():
    async with ScriptedUpstream() as elsewhere:

        async def script(exchange):
            await exchange.reply(b"", 302, [(b"location", elsewhere.origin.encode())])

        async with ScriptedUpstream(script) as issuer:
            with pytest.raises(UpstreamError):
                await fetch(issuer.origin)
        assert elsewhere.requests == []


async def test_what_is_not_a_document_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 100)

    async def refusal(exchange):
        await exchange.reply(b"{}", 404)

    async def endless(exchange):
        await exchange.reply(b"x" * 101)

    async def silent(exchange):
        await exchange.client_left()

    for script in (refusal, endless, silent):
        async with ScriptedUpstream(script) as issuer:
            with pytest.raises(UpstreamError):
                await fetch(issuer.origin, timeout_s=0.2)
    with pytest.raises(UpstreamError):
        await fetch(issuer.origin)
