"""What an operator finds in the log of requests that the upstream did not serve."""

from contextlib import suppress
from typing import Any

import httpx2
import structlog

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import house, models_dir
from tests.storage.recording import recorded
from tests.support.upstream import Exchange, Script, completion_events

__all__ = ["house", "models_dir"]

CHAT = {"model": "m", "messages": [{"role": "user", "content": "my diary"}]}


def refusing(status: int, request_id: bytes = b"") -> Script:
    async def script(exchange: Exchange) -> None:
        headers = [(b"x-request-id", request_id)] if request_id else []
        await exchange.reply(b'{"error": {"message": "your diary"}}', status, headers)

    return script


async def breaking_off(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.chunk(completion_events("Dear", "diary")[0])
    exchange.close()


async def silent(exchange: Exchange) -> None:
    exchange.close()


class Upstream(ChatOnly):
    """Has one more route than chat completions, which is not intercepted."""

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/v1/embeddings":
            await self.converse(exchange)
        else:
            await super().__call__(exchange)


BROKEN = {"error": "upstream_invalid_response", "cause": "ConnectionResetError"}
CASES: list[tuple[str, Script, str, dict[str, Any]]] = [
    ("chat/completions", refusing(400), "refused", {"status": 400}),
    ("embeddings", refusing(500, b"a\tb"), "refused", {"status": 500}),
    ("responses", refusing(429, b"up-1"), "refused", {"status": 429, "upstream_request_id": "up-1"}),
    ("chat/completions", breaking_off, "cut", {}),
    ("embeddings", silent, "failed", BROKEN),
]  # fmt: skip


async def test_each_failure_is_one_line_that_names_the_request_and_quotes_no_text(house, monkeypatch):
    model = Upstream()
    async with house(model) as h, httpx2.AsyncClient(timeout=30) as http:
        lines = recorded(monkeypatch, lambda facts: structlog.contextvars.get_contextvars() | facts)
        await http.post(f"{h.base_url}/responses", json={"model": "m", "input": "Hi"})
        assert not [
            line for line in lines if line[0].startswith("upstream.")
        ]  # a missing route is not a failure
        for path, model._script, event, facts in CASES:
            lines.clear()
            body = {"model": "m", "input": "my diary", "stream": True} if path == "responses" else CHAT
            with suppress(httpx2.RemoteProtocolError):
                await http.post(f"{h.base_url}/{path}", json=body, headers={"X-Request-Id": "gw-1"})
            route = {"chat/completions": "chat", "embeddings": "passthrough"}.get(path, path)
            of_upstream = [(name, given) for name, given in lines if name.startswith("upstream.")]
            assert of_upstream == [(f"upstream.{event}", {"request_id": "gw-1", "route": route, **facts})]
            assert "diary" not in str(lines)
