"""Every base URL that a provider documents, and what becomes the target there."""

from pathlib import Path

import pytest

from proxy.domain.base_url import parse_base_url
from proxy.upstream.client import Upstream
from tests.support.upstream import ScriptedUpstream
from tests.upstream.test_client import drain

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
async def test_what_is_behind_v1_goes_behind_the_base_url(base: str, ours: bytes, theirs: bytes) -> None:
    async with ScriptedUpstream() as scripted, Upstream(scripted.origin + base) as upstream:
        await drain(await upstream.open("POST", ours, [], b"{}"))
    assert scripted.requests[0].target == theirs


@pytest.mark.parametrize(("base", "theirs"), [("", CHAT), (":/api?v=1", b"/api/chat/completions?v=1")])
async def test_an_upstream_at_a_unix_socket(tmp_path: Path, base: str, theirs: bytes) -> None:
    url = f"unix:{tmp_path}/m.sock{base}"
    async with ScriptedUpstream(unix=tmp_path / "m.sock") as scripted, Upstream(url) as upstream:
        for _ in range(2):
            assert await drain(await upstream.open("POST", CHAT, [], b"{}")) == b"ok"
    assert [request.target for request in scripted.requests] == [theirs] * 2
    assert scripted.requests[0].header(b"host") == b"localhost"
    assert len(scripted.connections) == 1


async def test_an_ipv6_literal() -> None:
    async with (
        ScriptedUpstream(host="::1") as scripted,
        Upstream(f"http://[::1]:{scripted.port}/v1") as upstream,
    ):
        assert await drain(await upstream.open("GET", CHAT, [])) == b"ok"
    assert scripted.requests[0].header(b"host") == b"[::1]:%d" % scripted.port


def test_a_base_url_is_shown_without_what_may_be_a_key() -> None:
    assert parse_base_url("https://h/v1?api-version=7&key=hush").shown == "https://h/v1?api-version=7&key=…"
    assert parse_base_url("unix:/m.sock:/b").shown == "unix:/m.sock:/b"


@pytest.mark.parametrize(
    ("base", "header"),
    [("/v1", b"authorization"), ("/openai/deployments/d?api-version=1", b"api-key")],
)
async def test_the_servers_key_goes_where_the_provider_reads_it(base: str, header: bytes) -> None:
    async with ScriptedUpstream() as scripted, Upstream(scripted.origin + base, api_key="sk-1") as upstream:
        await drain(await upstream.open("GET", CHAT, []))
        await drain(await upstream.open("GET", CHAT, [(b"api-key", b"own")]))
    first, second = scripted.requests
    assert (first.header(header) or b"").endswith(b"sk-1")
    assert b"sk-1" not in second.head
