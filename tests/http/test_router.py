"""What the application does for every route: ids, errors, and wrong paths."""

import re
from typing import Any

import httpx2
import pytest
import structlog

from proxy.domain.errors import (
    Conflict,
    EmbeddingFailed,
    NotFound,
    ProxyError,
    StoreUnavailable,
    UpstreamTimeout,
)
from proxy.http.asgi import error_of
from proxy.http.intercept import Intercept
from proxy.http.memory_api.app import MemoryApi
from proxy.http.router import give_request_id
from tests.e2e.conftest import House
from tests.storage.recording import recorded
from tests.support.upstream import Exchange


@pytest.mark.parametrize(
    ("broken", "step", "method", "path"),
    [
        (MemoryApi, "answer", "GET", "/memory?user_id=anna"),
        (Intercept, "_exchange", "POST", "/chat/completions"),
    ],
)
async def test_an_unexpected_error_is_answered_in_openai_s_shape(
    house, monkeypatch, broken, step, method, path
):
    async def fails(*_):
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


async def test_every_answer_has_the_id_of_its_request_in_the_log(house):
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


async def test_an_error_of_the_upstream_has_the_request_id_too(house):
    async with house(_silent) as h, httpx2.AsyncClient(timeout=30) as http:
        for path in ("/chat/completions", "/embeddings"):
            answer = await http.post(h.base_url + path, json=HELLO, headers={"X-Request-Id": "gw-1"})
            assert (answer.status_code, answer.headers["x-request-id"]) == (502, "gw-1")
        h.upstream.script = lambda exchange: exchange.reply(b"{}", 200, [(b"x-request-id", b"theirs")])
        answer = await h.post("/chat/completions", HELLO, **{"X-Request-Id": "gw-1"})
        assert answer.headers.get_list("x-request-id") == ["theirs"]


async def _silent(exchange: Exchange) -> None:
    exchange.close()


MEANT = [
    ("POST /v1//chat/completions", "/v1/chat/completions"),
    ("POST /v1/chat/completions/", "/v1/chat/completions"),
    ("POST /v1/v1/chat/completions", "/v1/chat/completions"),
    ("POST /v1/chat/completions/chat/completions", "/v1/chat/completions"),
    ("POST /v1/responses/chat/completions", "/v1/chat/completions"),
    ("GET /v1/chat/completions/models", "/v1/models"), ("POST /responses", "/v1/responses"),
    ("GET /models", "/v1/models"), ("GET /memory", "/v1/memory"),
    ("POST /v1/Chat/completions", "/v1/chat/completions"), ("POST /v1/RESPONSES", "/v1/responses"),
    ("POST /openai/deployments/gpt/chat/completions", "/v1/chat/completions"),
]  # fmt: skip


async def test_a_wrong_path_is_answered_with_the_right_one(house):
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        for wrong, right in MEANT:
            method, path = wrong.split(" ")
            answer = await http.request(method, h.origin + path, json=HELLO if method == "POST" else None)
            assert answer.status_code == 404, wrong
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("path", "unknown_url"), wrong
            assert f" {method} {right}, " in error["message"], wrong
        assert h.upstream.requests == []


async def test_a_path_that_reads_like_chat_and_is_another_says_that_it_has_no_memory(house):
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


# ---------------------------------------------------------------- request ids in the log
@pytest.mark.parametrize("given", [b"", b"a b", b"x" * 129, b"\xff", b"a\x1b[31m", "café".encode()])
def test_an_unprintable_request_id_is_replaced(given):
    assert re.fullmatch("req_[0-9a-f]{32}", give_request_id({"headers": [(b"x-request-id", given)]}))


async def test_every_line_about_a_request_holds_the_clients_id(house, monkeypatch):
    body = {"model": "m", "messages": [{"role": "user", "content": "What is my boat called?"}]}
    async with house(memory={"deadline_ms": 0.001}) as h, httpx2.AsyncClient(timeout=30) as http:
        lines = recorded(monkeypatch, lambda facts: structlog.contextvars.get_contextvars() | facts)
        for id_ in ("gw-1", "gw-2"):  # over one connection
            headers = {"X-Request-Id": id_, "X-Memory-User-Id": "ana"}
            await http.post(f"{h.base_url}/chat/completions", json=body, headers=headers)
    recalled = [facts for event, facts in lines if event == "memory.recalled"]
    assert [facts["request_id"] for facts in recalled] == ["gw-1", "gw-2"]
    # The next ones are counted, not logged.
    assert [f["request_id"] for event, f in lines if event == "memory.deadline"][:1] == ["gw-1"]


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("No such thing.", code="memory_not_found"), 404, "memory_not_found"),
        (UpstreamTimeout("It did not answer."), 504, "upstream_timeout"),
        (Conflict("generation 5"), 409, "conflict"),
        (EmbeddingFailed("onnx: shape [1, 7]"), 503, "embedding_failed"),
        (StoreUnavailable("/data/memory.db: SQLITE_FULL"), 503, "store_unavailable"),
        (ProxyError("inner"), 500, "internal_error"),
    ],
)
def test_every_error_has_a_status_and_a_code(error, status, code):
    found, body = error_of(error)
    assert (found, body["error"]["code"]) == (status, code)
    message = body["error"]["message"]
    assert message.endswith(".")
    assert found == 504 or code == "memory_not_found" or str(error) not in message, "nothing internal"
