"""What the upstream sees of a request, and what the proxy makes of its answers and failures."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

import pytest

from proxy.domain.base_url import parse_base_url
from proxy.domain.errors import UpstreamBroken, UpstreamCut
from proxy.upstream.client import Upstream, redirect_target
from proxy.upstream.connection import Timeouts, UpstreamResponse
from tests.support.upstream import Exchange, ScriptedUpstream

TARGETS = [
    b"/v1/models", b"/v1/models/", b"/v1", b"/v1?", b"/v1/files?", b"/v1/files?a=1&a=2&b",
    b"/v1/files?q=%2A%zz+%20*~'", b"/v1/a%2Fb/%41/%zz/%", b"/v1//double//slash", b"/v1/../up/./here/..",
    b"/v1/files#fragment", b"/v1/files?a=1#fragment?b", b"/v1/\xc3\xa9\xff",
    b"/v1/a;b=c,d:e@f!$&'()*+=[]|\\^`{}\"<>", b'/v1/vectors?filter=[{"a":1}]',
]  # fmt: skip


async def drain(opened: UpstreamResponse) -> bytes:
    """Read the answer to its end."""
    with opened:
        chunks = []
        while chunk := await opened.read():
            chunks.append(chunk)
        return b"".join(chunks)


@contextlib.asynccontextmanager
async def upstream_of(scripted: ScriptedUpstream, **options: object) -> AsyncIterator[Upstream]:
    async with Upstream(scripted.url, **options) as upstream:  # type: ignore[arg-type]
        yield upstream


# ---------------------------------------------------------------- the request
@pytest.mark.parametrize("prefix", ["", "/some/prefix%2Fx"])
async def test_the_target_reaches_the_upstream_to_the_byte(prefix):
    async with ScriptedUpstream(prefix=prefix) as scripted, upstream_of(scripted) as upstream:
        for target in TARGETS:
            await drain(await upstream.open("GET", target, []))
    assert [request.target for request in scripted.requests] == [prefix.encode() + t for t in TARGETS]


async def test_headers_reach_the_upstream_to_the_byte_and_none_is_added():
    headers = [(b"x-utf8", "é".encode()), (b"x-latin", b"\xe9\xff"), (b"x-two", b"1"), (b"x-two", b"2")]
    async with ScriptedUpstream() as scripted, upstream_of(scripted) as upstream:
        await drain(await upstream.open("POST", b"/v1/x", headers, b"body"))
    expected = [(b"host", scripted.origin.removeprefix("http://").encode()), *headers]
    assert scripted.requests[0].headers == [*expected, (b"content-length", b"4")]


@pytest.mark.parametrize("length", [9, None])
async def test_a_streamed_body_arrives_whole_with_its_length_or_chunked(length):
    async def body():
        for piece in (b"one", b"", b"two", b"six"):
            yield piece

    async with ScriptedUpstream() as scripted, upstream_of(scripted) as upstream:
        await drain(await upstream.open("POST", b"/v1/x", [], body(), content_length=length))
    request = scripted.requests[0]
    assert request.body == b"onetwosix"
    assert request.header(b"content-length") == (b"9" if length else None)
    assert request.header(b"transfer-encoding") == (None if length else b"chunked")


@pytest.mark.parametrize("bad", [b"/v1/a\r\nx: y", b"/v1/a\nb", b"/other"])
async def test_a_target_that_would_break_the_head_is_refused(bad):
    async with Upstream("http://127.0.0.1:1/v1") as upstream:
        with pytest.raises(ValueError, match="target"):
            await upstream.open("GET", bad, [])
        with pytest.raises(ValueError, match="header"):
            await upstream.open("GET", b"/v1", [(b"a", b"b\r\nc: d")])


# ---------------------------------------------------------------- the answer
async def test_an_answer_is_raw_its_duplicates_and_compression_untouched():
    async def script(exchange):
        await exchange.reply(b"\x1f\x8bnot really gzip", 418, [(b"Set-Cookie", b"a"), (b"Set-Cookie", b"b")])

    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream:
        opened = await upstream.open("GET", b"/v1/x", [])
        assert (opened.status, await drain(opened)) == (418, b"\x1f\x8bnot really gzip")
    assert opened.headers == [(b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"17")]


async def one(upstream: Upstream) -> bytes:
    return await drain(await upstream.open("POST", b"/v1/x", [], b"hello"))


# ---------------------------------------------------------------- failures


async def test_an_answer_that_stops_is_cut_after_the_read_timeout():
    async def script(exchange):
        await exchange.start_stream()
        await exchange.chunk(b"half")
        await exchange.client_left()

    timeouts = Timeouts(headers_s=10, read_s=0.05)
    async with ScriptedUpstream(script) as scripted, upstream_of(scripted, timeouts=timeouts) as upstream:
        opened = await upstream.open("GET", b"/v1/x", [])
        with opened:
            assert await opened.read() == b"half"
            with pytest.raises(UpstreamCut):
                await opened.read()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
)
async def test_nonsense_before_a_status_is_broken(nonsense):
    async def script(exchange):
        await exchange.send(nonsense)
        exchange.close()

    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream, asyncio.timeout(30):
        with pytest.raises(UpstreamBroken):
            await one(upstream)


BEGUN = {
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
    "until close": b"HTTP/1.1 200 OK\r\n\r\nhello",
}


@pytest.mark.parametrize("framing", BEGUN)
@pytest.mark.parametrize("how", [Exchange.close, Exchange.reset])
async def test_what_arrived_of_an_answer_cut_short_is_delivered(framing, how):
    async def script(exchange):
        await exchange.send(BEGUN[framing])
        await read_first.wait()
        how(exchange)  # type: ignore[operator]

    read_first = asyncio.Event()
    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream, asyncio.timeout(30):
        opened = await upstream.open("GET", b"/v1/x", [])
        read_first.set()
        for _ in range(1000):  # rounds of the loop, until the end has come too
            await asyncio.sleep(0)
            if not opened.connection.connected:
                break
        with opened:
            assert await opened.read() == b"hello"
            if framing == "until close" and how is Exchange.close:
                assert await opened.read() == b""  # that is how such an answer ends
                return
            with pytest.raises(UpstreamCut):
                await opened.read()
            assert not opened.at_end


# ---------------------------------------------------------------- connections that went stale


async def test_no_request_is_lost_to_an_upstream_that_closes_idle_connections():
    pace = random.Random(4)
    async with ScriptedUpstream(idle_close_s=0.004) as scripted, upstream_of(scripted) as upstream:
        for _ in range(100):
            assert await one(upstream) == b"ok"
            await asyncio.sleep(pace.uniform(0.003, 0.0052))
    assert len(scripted.requests) == 100
    assert len(scripted.connections) > 1


async def test_a_request_lost_in_the_race_is_sent_once_more(monkeypatch):
    """The race made certain: the connection is used although its end has already come."""
    monkeypatch.setattr("proxy.upstream.connection.UpstreamConnection.reusable", lambda self: self.connected)

    async def script(exchange):
        await exchange.reply(b"ok")
        exchange.close()

    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream:
        for _ in range(20):
            opened = await upstream.open("POST", b"/v1/x", [], b"hello")
            while not opened.at_end:
                await opened.read()
            time.sleep(0.002)  # noqa: ASYNC251 - so that our loop does not see the end before it writes
    assert [request.body for request in scripted.requests] == [b"hello"] * 20


@pytest.mark.parametrize("how", [Exchange.close, Exchange.reset])
async def test_a_request_that_was_read_is_never_sent_again(how):
    async def script(exchange):
        if exchange.request.connection.exchanges == 1:
            await exchange.reply(b"ok")
        else:
            how(exchange)  # type: ignore[operator]

    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream:
        await one(upstream)
        with pytest.raises(UpstreamBroken):
            await upstream.open("POST", b"/v1/x", [], b"only once")
        with pytest.raises(UpstreamBroken):
            await one(upstream) and await upstream.open("GET", b"/v1/x", [])
    assert [request.body for request in scripted.requests].count(b"only once") == 1
    assert [request.method for request in scripted.requests].count(b"GET") == 1


async def test_an_unrequested_answer_is_not_given_to_the_next_request():
    async def script(exchange):
        await exchange.reply(exchange.request.body)
        if exchange.request.body == b"one":
            await idle.wait()
            await exchange.reply(b"unasked", 408)

    idle = asyncio.Event()
    async with ScriptedUpstream(script) as scripted, upstream_of(scripted) as upstream:
        for body in (b"one", b"two", b"three"):
            assert await drain(await upstream.open("POST", b"/v1/x", [], body)) == body
            idle.set()
            for _ in range(5):  # rounds of the loop, each of which looks at the sockets
                await asyncio.sleep(0)


CHAT = b"/v1/chat/completions"


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        ("/v1", CHAT, CHAT),
        ("/v1/openai", b"/v1/models?a", b"/v1/openai/models?a"),  # DeepInfra
        ("", CHAT, b"/chat/completions"),  # Perplexity
        (
            "/openai/deployments/d?api-version=1",
            CHAT,
            b"/openai/deployments/d/chat/completions?api-version=1",
        ),
        ("/o?api-version=1", b"/v1/x?after=%20b&after=c", b"/o/x?after=%20b&after=c&api-version=1"),
        ("/o?api-version=1&k=2", b"/v1/x?api-version=3", b"/o/x?api-version=3&k=2"),
    ],
)
async def test_what_is_behind_v1_goes_behind_the_base_url(base, ours, theirs):
    async with ScriptedUpstream() as scripted, Upstream(scripted.origin + base) as upstream:
        await drain(await upstream.open("POST", ours, [], b"{}"))
    assert scripted.requests[0].target == theirs


@pytest.mark.parametrize(("base", "theirs"), [("", CHAT), (":/api?v=1", b"/api/chat/completions?v=1")])
async def test_an_upstream_at_a_unix_socket(tmp_path, base, theirs):
    url = f"unix:{tmp_path}/m.sock{base}"
    async with ScriptedUpstream(unix=tmp_path / "m.sock") as scripted, Upstream(url) as upstream:
        for _ in range(2):
            assert await drain(await upstream.open("POST", CHAT, [], b"{}")) == b"ok"
    assert [request.target for request in scripted.requests] == [theirs] * 2
    assert scripted.requests[0].header(b"host") == b"localhost"
    assert len(scripted.connections) == 1


def test_a_base_url_is_shown_without_what_may_be_a_key():
    assert parse_base_url("https://h/v1?api-version=7&key=hush").shown == "https://h/v1?api-version=7&key=…"
    assert parse_base_url("unix:/m.sock:/b").shown == "unix:/m.sock:/b"


@pytest.mark.parametrize(
    ("base", "header"), [("/v1", b"authorization"), ("/openai/deployments/d?api-version=1", b"api-key")]
)
async def test_the_servers_key_goes_where_the_provider_reads_it(base, header):
    async with ScriptedUpstream() as scripted, Upstream(scripted.origin + base, api_key="sk-1") as upstream:
        await drain(await upstream.open("GET", CHAT, []))
        await drain(await upstream.open("GET", CHAT, [(b"api-key", b"own")]))
    first, second = scripted.requests
    assert (first.header(header) or b"").endswith(b"sk-1")
    assert b"sk-1" not in second.head


@pytest.mark.parametrize(("status", "absolute"), [(307, True), (308, False)])
async def test_within_the_origin_the_same_request_is_sent_again(status, absolute):
    async def script(exchange):
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


async def test_an_upload_is_not_sent_twice():
    async def body():
        yield b"one"
        yield b"two"

    async def script(exchange):
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
def test_no_request_goes_elsewhere_or_changes_its_method(status, location, says):
    with pytest.raises(UpstreamBroken, match=str(status)) as refused:
        redirect_target(HTTPS, "POST", b"/v1/x", status, location)
    assert says in refused.value.message
    assert "hush" not in refused.value.message
