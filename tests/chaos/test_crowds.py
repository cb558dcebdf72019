"""Clients that cost more than they should: many that say nothing, one that reads nothing, one that sends too
much. And a store that is slow. Whoever else asks gets an answer as fast as before."""

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.storage.sql.memories import SqlMemories
from tests.e2e.conftest import Houses, house, until
from tests.support.model import ScriptedModel
from tests.support.process import Serving, serving_process
from tests.support.serving import connected
from tests.support.upstream import Exchange, ScriptedUpstream

__all__ = ["house"]

IDLE = 2_000


class Talkative(ScriptedModel):
    """Streams as much as anybody takes, if asked for much."""

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
async def serving(
    tmp_path: Path, models_dir: Path, **environ: str
) -> AsyncIterator[tuple[Serving, Talkative]]:
    model = Talkative()
    async with (
        ScriptedUpstream(model) as upstream,
        serving_process(
            tmp_path / "data", "--upstream", upstream.url, models_dir=models_dir, **environ
        ) as served,
    ):
        yield served, model


def body(content: str = "Good morning", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


async def answers(served: Serving, *, within_s: float) -> None:
    """An answer is there in time; memory, which may miss its floor on a busy machine, follows by itself."""

    async def stored() -> str:
        async with asyncio.timeout(within_s):
            answer = await http.post(
                f"{served.base_url}/chat/completions", json=body(memory_context={"user_id": "anna"})
            )
        assert answer.status_code == 200
        return answer.headers["x-memory-store"]

    async with httpx2.AsyncClient(timeout=within_s) as http:
        await until(stored, lambda told: told == "queued", within_s=40)


def memory_of(served: Serving) -> int:
    """Bytes in memory of the process."""
    pages = Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many connections may be open here, and in the server that is started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_two_thousand_idle_connections_are_in_nobodys_way(
    tmp_path: Path, models_dir: Path, many_files: None
) -> None:
    async with serving(tmp_path, models_dir) as (served, _), AsyncExitStack() as crowd:
        await answers(served, within_s=20)
        before = memory_of(served)
        idle = [await crowd.enter_async_context(connected(served.origin)) for _ in range(IDLE)]
        await idle[0].send(b"GET /health HTTP/1.1\r\n")  # and some that began to speak
        await answers(served, within_s=10)
        assert memory_of(served) - before < IDLE * 20_000


async def test_a_client_that_does_not_read_holds_up_its_upstream_and_nobody_else(
    tmp_path: Path, models_dir: Path
) -> None:
    async with serving(tmp_path, models_dir) as (served, model), connected(served.origin) as reader:
        sent = json.dumps(body("much", stream=True)).encode()
        await reader.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(sent) + sent
        )
        await reader.head()

        async def stands_still() -> bool:
            before = model.sent
            await asyncio.sleep(0.5)
            return model.sent == before

        await until(stands_still, within_s=20)
        assert model.sent < 100_000_000
        await answers(served, within_s=10)


async def test_a_body_that_is_too_large_is_refused_before_it_is_all_there(
    tmp_path: Path, models_dir: Path
) -> None:
    async with serving(
        tmp_path, models_dir, MEMORY_PROXY__SERVER__MAX_BODY_BYTES="1000000"
    ) as (served, _), connected(served.origin) as client:  # fmt: skip
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"
        await client.send(head + b"transfer-encoding: chunked\r\n\r\n")
        before = memory_of(served)
        answered = asyncio.create_task(client.head())
        for _ in range(40):
            if answered.done():
                break
            await client.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        assert b" 413 " in await answered
        assert memory_of(served) - before < 20_000_000
        await answers(served, within_s=10)


async def test_a_slow_store_costs_a_request_its_deadline_and_soon_nothing(
    house: Houses, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleeps(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(3_600)

    async with house(memory={"deadline_ms": 1_000}) as h, httpx2.AsyncClient(timeout=20) as http:
        for read in ("snapshot", "search"):
            monkeypatch.setattr(SqlMemories, read, sleeps)
        reasons, took = [], []
        for _ in range(8):
            began = time.monotonic()
            answer = await http.post(
                f"{h.base_url}/chat/completions",
                json=body("Which tea do I like?", memory_context={"user_id": "anna"}),
            )
            took.append(time.monotonic() - began)
            assert answer.status_code == 200
            reasons.append((answer.headers["x-memory-status"], answer.headers["x-memory-reason"]))
            if took[-1] < 1.0:  # left out for a moment: a request whose turn comes then waits for nothing
                break
        assert set(reasons) == {("degraded", "deadline")}
        assert took[-1] < 1.0
        health = (await http.get(f"{h.origin}/health")).json()
        assert (health["status"], health["memory"]["reason"]) == ("degraded", "deadline")
