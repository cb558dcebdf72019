"""The whole proxy behind a forward proxy, at documented addresses, and its error messages."""

import httpx2
import pytest

from proxy.cli import doctor
from proxy.upstream.network import Network
from tests.e2e.conftest import until
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange, ScriptedUpstream
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
        async with (
            house(upstream_extra={"base_url": url}, upstream_url=url, external_models=[roles]) as h,
            httpx2.AsyncClient(timeout=30, trust_env=False) as http,
        ):
            answer = await http.post(f"{h.base_url}/chat/completions?a=1", json=CHAT, headers=ALICE)
            assert answer.status_code == 200

            async def asked():
                return [request.target for request in upstream.requests]

            targets = await until(asked, lambda targets: len(targets) > 1)
    assert targets[:2] == [b"/api/v3/chat/completions?a=1&api-version=7", b"/v1beta/openai/chat/completions"]
    assert [head.split(b" ")[1].split(b":")[1] for head in forward.heads[:2]] == [
        b"//model.internal",
        b"//small.internal",
    ]


async def test_a_client_reads_why_its_upstream_cannot_be_reached(house):
    async with ScriptedUpstream() as stopped:
        url = stopped.url
    async with (
        house(upstream_extra={"base_url": url}, upstream_url=url) as h,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        for path in ("chat/completions", "embeddings"):
            answer = await http.post(f"{h.base_url}/{path}", json=CHAT, headers=ALICE)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (502, "upstream_unreachable")
            assert "connection was refused: nothing listens there" in error["message"]


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
async def test_an_impossible_status_and_a_redirect_elsewhere_are_errors_in_openais_shape(house, path):
    async def script(exchange):
        if exchange.request.header(b"x-case") == b"status":
            await exchange.reply(b"{}", 999)
        else:
            await exchange.reply(b"", 308, [(b"location", b"https://elsewhere.example/v1/x?sig=hush")])

    async with house(upstream_extra=None) as h, httpx2.AsyncClient(timeout=30) as http:
        h.upstream.script = script
        for case, said in (("status", "999"), ("redirect", "https://elsewhere.example")):
            answer = await http.post(f"{h.base_url}/{path}", json=CHAT, headers={**ALICE, "x-case": case})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (502, "upstream_invalid_response")
            assert said in error["message"]
            assert "hush" not in answer.text


async def test_a_timeout_names_its_setting(house):
    async with (
        house(upstream_extra={"response_timeout_seconds": 0.1}) as h,
        httpx2.AsyncClient(timeout=30) as http,
    ):
        h.upstream.script = Exchange.client_left
        answer = await http.post(f"{h.base_url}/chat/completions", json=CHAT)
    assert answer.status_code == 504
    assert "upstream.response_timeout_seconds" in answer.json()["error"]["message"]


# ---------------------------------------------------------------- start and doctor


async def test_the_doctor_names_the_cause_and_a_missing_v1():
    async def script(exchange):
        is_there = exchange.request.target == b"/v1/models"
        await exchange.reply(b'{"data": []}' if is_there else b"{}", 200 if is_there else 404)

    async with ScriptedUpstream(script) as scripted:
        found = await doctor._upstream("upstream", doctor.Probe(None, scripted.origin, None, Network()))
        assert (found.mark, "add /v1 to the URL" in found.text) == (doctor.BAD, True)
        assert (
            await doctor._upstream("upstream", doctor.Probe(None, scripted.url, None, Network()))
        ).mark == doctor.GOOD
    network = Network.of({"HTTP_PROXY": f"http://u:hush@127.0.0.1:{scripted.port}"})
    probe = doctor.Probe(None, "http://model.internal/v1?key=hush", None, network)
    found = await doctor._upstream("upstream", probe)
    assert found.mark == doctor.BAD
    assert "through the proxy" in found.text
    assert "connection was refused" in found.text
    assert "hush" not in found.text
