"""Clients that cost more than they should, and a slow store: all other requests are answered as before."""

import asyncio
import json
import resource
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.storage.sql.memories import SqlMemories
from tests.e2e.conftest import house, until
from tests.support.model import ScriptedModel
from tests.support.process import Serving, serving_process
from tests.support.serving import connected
from tests.support.upstream import Exchange, ScriptedUpstream

__all__ = ["house"]

IDLE = 2_000
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"


class Talkative(ScriptedModel):
    """Streams up to 400 MB if asked for "much"."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    async def converse(self, exchange: Exchange) -> None:
        if exchange.request.json["messages"][-1]["content"] != "much":
            await super().converse(exchange)
            return
        event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n'
        await exchange.start_stream()
        while self.sent < 400_000_000:
            await exchange.chunk(event)
            self.sent += len(event)
        await exchange.end()


@asynccontextmanager
async def serving(tmp_path, models_dir, **environ):
    model, data = Talkative(), tmp_path / "data"
    async with ScriptedUpstream(model) as upstream:
        flags = ("--upstream", upstream.url)
        async with serving_process(data, *flags, models_dir=models_dir, **environ) as served:
            yield served, model


def body(content: str = "Good morning", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


async def answers(served: Serving) -> None:
    """Fail unless a request is answered in time, and in the end stored."""

    async def store() -> str:
        request = body(memory_context={"user_id": "anna"})
        answer = await http.post(f"{served.base_url}/chat/completions", json=request)
        assert answer.status_code == 200
        return answer.headers["x-memory-store"]

    async with httpx2.AsyncClient(timeout=15) as http:
        await until(store, lambda value: value == "queued", within_s=40)


def memory_of(served: Serving) -> int:
    """Return the resident memory of the process in bytes."""
    pages = Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@pytest.fixture
def many_files():
    """Allow enough open files here and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_two_thousand_idle_connections_do_not_disturb_requests(tmp_path, models_dir, many_files):
    async with serving(tmp_path, models_dir) as (served, _), AsyncExitStack() as crowd:
        await answers(served)
        before = memory_of(served)
        idle = [await crowd.enter_async_context(connected(served.origin)) for _ in range(IDLE)]
        await idle[0].send(b"GET /health HTTP/1.1\r\n")
        await answers(served)
        assert memory_of(served) - before < IDLE * 20_000


async def test_a_client_that_does_not_read_holds_up_only_its_own_upstream(tmp_path, models_dir):
    async with serving(tmp_path, models_dir) as (served, model), connected(served.origin) as reader:
        sent = json.dumps(body("much", stream=True)).encode()
        await reader.send(HEAD + b"content-length: %d\r\n\r\n" % len(sent) + sent)
        await reader.head()

        async def has_stopped():
            before = model.sent
            await asyncio.sleep(0.5)
            return model.sent == before

        await until(has_stopped, within_s=20)
        assert model.sent < 100_000_000
        await answers(served)


async def test_a_body_that_is_too_large_is_refused_before_it_is_complete(tmp_path, models_dir):
    limit = {"MEMORY_PROXY__SERVER__MAX_BODY_BYTES": "1000000"}
    async with serving(tmp_path, models_dir, **limit) as (served, _), connected(served.origin) as client:
        await client.send(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        before = memory_of(served)
        answered = asyncio.create_task(client.head())
        for _ in range(40):
            if answered.done():
                break
            await client.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        assert b" 413 " in await answered
        assert memory_of(served) - before < 20_000_000
        await answers(served)


async def test_a_slow_store_costs_the_deadline_a_few_times_and_then_nothing(house, monkeypatch):
    is_over = asyncio.Event()

    async def hangs(*_, **__):
        await is_over.wait()
        raise TimeoutError

    async with house(memory={"deadline_ms": 500}) as h, httpx2.AsyncClient(timeout=20) as http:
        for read in ("snapshot", "search"):
            monkeypatch.setattr(SqlMemories, read, hangs)
        request = body("Which tea do I like?", memory_context={"user_id": "anna"})
        took_s = 1.0
        for _ in range(8):
            began = time.monotonic()
            answer = await http.post(f"{h.base_url}/chat/completions", json=request)
            took_s = time.monotonic() - began
            said = answer.headers
            assert (answer.status_code, said["x-memory-status"], said["x-memory-reason"]) == (
                200, "degraded", "deadline"
            )  # fmt: skip
            if took_s < 0.5:  # memory is skipped for a moment
                break
        assert took_s < 0.5
        health = (await http.get(f"{h.origin}/health")).json()
        assert (health["status"], health["memory"]["reason"]) == ("degraded", "deadline")
        is_over.set()
