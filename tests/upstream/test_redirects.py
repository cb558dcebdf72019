"""Redirects of the upstream: followed within its origin, never a way past the proxy."""

from collections.abc import AsyncIterator

import pytest

from proxy.domain.base_url import parse_base_url
from proxy.domain.errors import UpstreamBroken
from proxy.upstream.client import MAX_REDIRECTS, Upstream, redirect_target
from tests.support.upstream import Exchange, ScriptedUpstream
from tests.upstream.test_client import drain


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("absolute", [True, False])
async def test_within_the_origin_the_same_request_is_sent_again(status: int, absolute: bool) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.request.target == b"/v1/chat/completions/?a=1":
            await exchange.reply(b"there")
            return
        origin = scripted.origin.encode() if absolute else b""
        await exchange.reply(b"", status, [(b"location", origin + b"/v1/chat/completions/?a=1")])

    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url, api_key="k") as upstream:
        opened = await upstream.open("POST", b"/v1/chat/completions?a=1", [(b"x-a", b"1")], b"{}")
        assert await drain(opened) == b"there"
    first, second = scripted.requests
    assert (second.method, second.body, second.headers) == (b"POST", b"{}", first.headers)
    assert len(scripted.connections) == 1


async def test_a_circle_of_redirects_ends_in_an_error() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(b"", 308, [(b"location", b"/v1/x")])

    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:
        with pytest.raises(UpstreamBroken, match="without end"):
            await upstream.open("POST", b"/v1/x", [], b"{}")
    assert len(scripted.requests) == MAX_REDIRECTS


async def test_an_upload_is_not_sent_twice() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def script(exchange: Exchange) -> None:
        await exchange.reply(b"", 308, [(b"location", b"/v1/x")])

    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:
        with pytest.raises(UpstreamBroken, match="cannot be sent twice"):
            await upstream.open("POST", b"/v1/x", [], body())
        await scripted.until_closed()
    assert len(scripted.requests) == 1


HTTPS = parse_base_url("https://api.example.com/v1")


@pytest.mark.parametrize(
    ("status", "location", "says"),
    [
        (308, b"https://elsewhere.example/v1/x?sig=hush", "set upstream.base_url to it"),
        (307, b"//elsewhere.example/v1/x", "https://elsewhere.example"),
        (307, b"https://u:hush@api.example.com:8443/v1/x", "https://api.example.com:8443"),
        (301, b"/v1/x/", "with another method"),
        (303, b"/v1/x/", "with another method"),
    ],
)
def test_no_request_goes_elsewhere_or_changes_its_method(status: int, location: bytes, says: str) -> None:
    with pytest.raises(UpstreamBroken, match=str(status)) as refused:
        redirect_target(HTTPS, "POST", b"/v1/x", status, location)
    assert says in refused.value.message
    assert "hush" not in refused.value.message


@pytest.mark.parametrize(
    ("status", "location", "target"),
    [
        (302, b"https://storage.example/signed?x=1", None),  # a download: passed on
        (301, b"/v1/y", b"/v1/y"),
        (307, b"http://api.example.com/v1/x/", b"/v1/x/"),  # named by a server behind a balancer with TLS
        (308, b"y?a", b"/v1/y?a"),
    ],
)
def test_what_is_only_read_may_be_elsewhere(status: int, location: bytes, target: bytes | None) -> None:
    assert redirect_target(HTTPS, "GET", b"/v1/x", status, location) == target


async def test_a_status_that_http_does_not_have_is_an_error() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(b"?", 600)

    async with ScriptedUpstream(script) as scripted, Upstream(scripted.url) as upstream:
        with pytest.raises(UpstreamBroken, match="600"):
            await upstream.open("GET", b"/v1/x", [])
