"""One small document from one address."""

import pytest

from proxy.domain.errors import UpstreamError
from proxy.upstream import httpx_transport as module
from proxy.upstream.httpx_transport import fetch
from tests.support.upstream import Exchange, ScriptedUpstream


async def test_no_redirect_is_followed() -> None:
    async with ScriptedUpstream() as elsewhere:

        async def script(exchange: Exchange) -> None:
            await exchange.reply(b"", 302, [(b"location", elsewhere.origin.encode())])

        async with ScriptedUpstream(script) as issuer:
            with pytest.raises(UpstreamError):
                await fetch(issuer.origin)
        assert elsewhere.requests == []


async def test_what_is_not_a_document_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)

    async def refusal(exchange: Exchange) -> None:
        await exchange.reply(b"{}", 404)

    async def endless(exchange: Exchange) -> None:
        await exchange.reply(b"x" * 101)

    async def cut(exchange: Exchange) -> None:
        exchange.reset()

    async def silent(exchange: Exchange) -> None:
        await exchange.client_left()

    for script in (refusal, endless, cut, silent):
        async with ScriptedUpstream(script) as issuer:
            with pytest.raises(UpstreamError):
                await fetch(issuer.origin, timeout_s=0.2)
    with pytest.raises(UpstreamError):
        await fetch(issuer.origin)
