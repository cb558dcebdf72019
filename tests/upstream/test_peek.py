"""Looking at an answer before it is passed on."""

import pytest

from proxy.domain.errors import UpstreamCut
from proxy.upstream.client import Upstream
from tests.support.upstream import Exchange, ScriptedUpstream
from tests.upstream.test_client import drain


@pytest.mark.parametrize("limit", [1, 5, 1_000])
async def test_what_was_peeked_is_read_again(limit: int) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.stream(b"one ", b"two ", b"three")

    async with ScriptedUpstream(script) as server, Upstream(server.url) as upstream:
        opened = await upstream.open("GET", b"/v1/x", [])
        assert len(await opened.peek(limit)) >= min(limit, 13)
        assert await drain(opened) == b"one two three"


async def test_a_body_that_is_cut_while_being_peeked_is_cut_for_its_reader() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"half")
        exchange.reset()

    async with ScriptedUpstream(script) as server, Upstream(server.url) as upstream:
        opened = await upstream.open("GET", b"/v1/x", [])
        assert await opened.peek(100) in (b"half", b"")
        with pytest.raises(UpstreamCut):
            await drain(opened)
