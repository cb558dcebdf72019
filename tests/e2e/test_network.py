"""The whole proxy behind a forward proxy, at documented addresses, and what clients read of its troubles."""

import pytest

from tests.e2e.conftest import when
from tests.support.model import ScriptedModel
from tests.support.upstream import ScriptedUpstream
from tests.upstream.test_network import ForwardProxy

CHAT = {"model": "m", "messages": [{"role": "user", "content": "My boat is called Marta."}]}
ALICE = {"X-Memory-User-Id": "alice"}


async def test_all_requests_to_models_use_the_proxy_of_the_environment(house, monkeypatch):
    async with ForwardProxy() as forward, ScriptedUpstream(ScriptedModel()) as upstream:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{forward.port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        url = f"http://model.internal:{upstream.port}/api/v3?api-version=7"
        roles = {
            "model_role": "memory_extraction",
            "llm_endpoint": f"http://small.internal:{upstream.port}/v1beta/openai",
            "llm_model_name": "small",
        }
        async with house(upstream_extra={"base_url": url}, upstream_url=url, external_models=[roles]) as h:
            answer = await h.post("/chat/completions?a=1", CHAT, **ALICE)
            assert answer.status_code == 200
            await when(lambda: len(upstream.requests) > 1)
    targets = [request.target for request in upstream.requests]
    assert targets[:2] == [b"/api/v3/chat/completions?a=1&api-version=7", b"/v1beta/openai/chat/completions"]
    assert [head.split(b" ")[1].split(b":")[1] for head in forward.heads[:2]] == [
        b"//model.internal",
        b"//small.internal",
    ]


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
async def test_what_goes_wrong_at_the_upstream_is_an_error_in_openais_shape_that_says_why(house, path):
    async def script(exchange):
        case = exchange.request.header(b"x-case")
        if case == b"status":
            await exchange.reply(b"{}", 999)
        elif case == b"redirect":
            await exchange.reply(b"", 308, [(b"location", b"https://elsewhere.example/v1/x?sig=hush")])
        else:
            await exchange.client_left()

    async with house(upstream_extra={"response_timeout_seconds": 0.3}) as h:
        h.upstream.script = script
        for case, status, code, words in (
            ("status", 502, "upstream_invalid_response", "999"),
            ("redirect", 502, "upstream_invalid_response", "https://elsewhere.example"),
            ("silence", 504, "upstream_timeout", "upstream.response_timeout_seconds"),
        ):
            answer = await h.post(path, CHAT, **ALICE, **{"x-case": case})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (status, code)
            assert words in error["message"]
            assert "hush" not in answer.text
    async with ScriptedUpstream() as stopped:
        url = stopped.url
    async with house(upstream_extra={"base_url": url}, upstream_url=url) as h:
        error = (await h.post(path, CHAT, **ALICE)).json()["error"]
        assert error["code"] == "upstream_unreachable"
        assert "connection was refused: nothing listens there" in error["message"]
