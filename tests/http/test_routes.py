"""What the router does for all that lies behind it."""

from typing import Any

import httpx2
import pytest

from proxy.http.intercept import Intercept
from proxy.http.memory_api.app import MemoryApi
from tests.e2e.conftest import House, Houses
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange


@pytest.mark.parametrize(
    ("broken", "step", "method", "path"),
    [
        (MemoryApi, "_answer", "GET", "/memory?user_id=anna"),
        (Intercept, "_exchange", "POST", "/chat/completions"),
    ],
)
async def test_what_nobody_foresaw_is_an_error_in_openai_s_shape(
    house: Houses, monkeypatch: pytest.MonkeyPatch, broken: type, step: str, method: str, path: str
) -> None:
    async def fails(*_: object) -> None:
        raise KeyError("Anna's diary")

    monkeypatch.setattr(broken, step, fails)
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.request(method, f"{h.base_url}{path}", json={} if method == "POST" else None)
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "diary" not in answer.text
        assert answer.headers["x-request-id"].startswith("req_")
        assert _counted(h) == 1.0


def _counted(h: House) -> float:
    registry = h.app.routes.metrics.registry
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "memory_proxy_requests_total" and sample.labels["status"] == "5xx"
    )


HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def test_every_answer_tells_the_id_that_the_log_has_for_its_request(house: Houses) -> None:
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/health", None),
        ("GET", "/openapi.json", None),
        ("GET", "/ui", None),
        ("GET", "/nothing", None),
        ("GET", "/v1//memory", None),  # refused as misspelt
        ("GET", "/v1/memory", None),  # names no user
        ("GET", "/v1/memory/export?user_id=anna", None),
        ("POST", "/v1/chat/completions", HELLO | {"memory_config": 1}),
        ("POST", "/v1/chat/completions", HELLO),
        ("POST", "/v1/chat/completions", HELLO | {"stream": True}),
    ]
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        for method, path, body in asked:
            answer = await http.request(method, h.origin + path, json=body)
            assert answer.headers.get_list("x-request-id")[0].startswith("req_"), path
            answer = await http.request(method, h.origin + path, json=body, headers={"X-Request-Id": "gw-1"})
            assert answer.headers.get_list("x-request-id") == ["gw-1"], path


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
async def test_so_does_one_that_the_upstream_owes_us(house: Houses, path: str) -> None:
    async with house(_Silent()) as h, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(h.base_url + path, json=HELLO, headers={"X-Request-Id": "gw-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (502, "gw-1")


class _Silent(ScriptedModel):
    async def __call__(self, exchange: Exchange) -> None:
        exchange.close()


class _Naming(ScriptedModel):
    async def converse(self, exchange: Exchange) -> None:
        await exchange.reply(b"{}", 200, [(b"x-request-id", b"theirs")])


async def test_the_id_that_the_upstream_gave_its_answer_stays(house: Houses) -> None:
    async with house(_Naming()) as h, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(
            f"{h.base_url}/chat/completions", json=HELLO, headers={"X-Request-Id": "gw-1"}
        )
    assert answer.headers.get_list("x-request-id") == ["theirs"]


MEANT = [
    ("POST /v1//chat/completions", "/v1/chat/completions"),
    ("POST //v1/chat/completions", "/v1/chat/completions"),
    ("POST /v1/chat/completions/", "/v1/chat/completions"),
    ("POST /chat/completions", "/v1/chat/completions"),
    ("POST /Chat/Completions/", "/v1/chat/completions"),
    ("POST /v1/v1/chat/completions", "/v1/chat/completions"),
    ("POST /v1/v1/v1/responses", "/v1/responses"),
    ("POST /v1/chat/completions/chat/completions", "/v1/chat/completions"),
    ("POST /v1/chat/completions/v1/chat/completions", "/v1/chat/completions"),
    ("POST /v1/chat/completions/responses", "/v1/responses"),
    ("POST /v1/responses/chat/completions", "/v1/chat/completions"),
    ("POST /v1/responses/responses", "/v1/responses"),
    ("GET /v1/chat/completions/models", "/v1/models"),
    ("POST /chat/completions/chat/completions", "/v1/chat/completions"),
    ("POST /responses", "/v1/responses"),
    ("POST /responses/", "/v1/responses"),
    ("GET /models", "/v1/models"),
    ("GET /v1/v1/models", "/v1/models"),
    ("POST /embeddings", "/v1/embeddings"),
    ("GET /memory", "/v1/memory"),
    ("POST /V1/chat/completions", "/v1/chat/completions"),
    ("POST /v1/Chat/completions", "/v1/chat/completions"),
    ("POST /v1/CHAT/COMPLETIONS", "/v1/chat/completions"),
    ("POST /v1/RESPONSES", "/v1/responses"),
    ("POST /api/v1/chat/completions", "/v1/chat/completions"),
    ("POST /openai/deployments/gpt/chat/completions", "/v1/chat/completions"),
]


async def test_a_wrong_base_url_is_named_with_the_right_path(house: Houses) -> None:
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        for wrong, right in MEANT:
            method, path = wrong.split(" ")
            answer = await http.request(method, h.origin + path, json=HELLO if method == "POST" else None)
            assert answer.status_code == 404, wrong
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("path", "unknown_url"), wrong
            assert f" {method} {right}, " in error["message"], wrong
        assert h.upstream.requests == []


async def test_a_path_that_reads_like_chat_and_is_another_says_that_it_has_no_memory(house: Houses) -> None:
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(
            f"{h.base_url}/openai/deployments/m/chat/completions?api-version=1", json=HELLO
        )
        said = answer.headers
        assert (said["x-memory-status"], said["x-memory-reason"]) == ("off", "other_path")
        assert h.upstream.requests[-1].target.endswith(
            b"/openai/deployments/m/chat/completions?api-version=1"
        )
        assert "x-memory-reason" not in (await http.post(f"{h.base_url}/embeddings", json=HELLO)).headers
