"""Looking at an answer before it is passed on."""

from proxy.domain.errors import UpstreamCut
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from tests.support.upstream import Exchange, ScriptedUpstream


async def rest(opened: UpstreamResponse) -> bytes:
    pieces = []
    while not opened.at_end:
        pieces.append(await opened.read())
    return b"".join(pieces)


async def test_what_was_peeked_is_read_again() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.stream(b"one ", b"two ", b"three")

    async with ScriptedUpstream(script) as server, Upstream(server.url) as upstream:
        for limit in (1, 5, 1_000):
            with await upstream.open("GET", b"/v1/x", []) as opened:
                seen = await opened.peek(limit)
                assert len(seen) >= min(limit, 13)
                assert not opened.at_end
                assert await rest(opened) == b"one two three"
        assert len(server.connections) == 1


async def test_an_empty_body_can_be_peeked() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(b"", 404)

    async with ScriptedUpstream(script) as server, Upstream(server.url) as upstream:
        with await upstream.open("GET", b"/v1/x", []) as opened:
            assert (await opened.peek(10), opened.at_end) == (b"", True)


async def test_a_body_that_is_cut_while_being_peeked_is_cut_for_its_reader() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"half")
        exchange.reset()

    async with ScriptedUpstream(script) as server, Upstream(server.url) as upstream:
        with await upstream.open("GET", b"/v1/x", []) as opened:
            assert await opened.peek(100) in (b"half", b"")
            try:
                await rest(opened)
            except UpstreamCut:
                return
            raise AssertionError("it was not told")
