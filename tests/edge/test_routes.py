"""What the router does for all that lies behind it."""

from typing import Any

import httpx2
import pytest

from proxy.edge.intercept import Intercept
from proxy.edge.memory_api.app import MemoryApi
from tests.e2e.conftest import House, Houses
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange


@pytest.mark.parametrize(
    ("broken", "step", "method", "path"),
    [
        (MemoryApi, "_answer", "GET", "/memory?user_id=anna"),
        (Intercept, "_understand", "POST", "/chat/completions"),
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
