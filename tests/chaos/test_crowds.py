"""Clients that cost more than they should, and a slow store: all other requests are answered as before."""

import asyncio
import json
import time

import httpx2

from proxy.storage.sql.memories import SqlMemories
from tests.e2e.conftest import house, models_dir
from tests.support.model import ScriptedModel
from tests.support.serving import connected
from tests.support.upstream import Exchange

__all__ = ["house", "models_dir"]


class Talkative(ScriptedModel):
    """Streams up to 400 MB if asked for "much"."""

    sent = 0

    async def converse(self, exchange: Exchange) -> None:
        if b'"much"' not in exchange.request.body:
            await super().converse(exchange)
            return
        event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n'
        await exchange.start_stream()
        while self.sent < 400_000_000:
            await exchange.chunk(event)
            self.sent += len(event)


def asking(content):
    message = {"role": "user", "content": content}
    return {"model": "m", "messages": [message], "memory_context": {"user_id": "anna"}}


async def test_a_client_that_does_not_read_holds_up_only_its_own_upstream(house):
    async with house(Talkative()) as h, connected(h.origin) as reader, httpx2.AsyncClient(timeout=20) as http:
        sent = json.dumps(asking("much") | {"stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"
        await reader.send(head + b"content-length: %d\r\n\r\n" % len(sent) + sent)
        await reader.head()
        before = -1
        async with asyncio.timeout(20):
            while before < h.model.sent:
                before = h.model.sent
                await asyncio.sleep(0.3)
        assert before < 100_000_000
        answer = await http.post(f"{h.base_url}/chat/completions", json=asking("Good morning"))
        assert (answer.status_code, answer.headers["x-memory-store"]) == (200, "queued")


async def test_a_slow_store_costs_the_deadline_a_few_times_and_then_nothing(house, monkeypatch):
    is_over = asyncio.Event()

    async def hangs(*_, **__):
        await is_over.wait()
        raise TimeoutError

    async with house(memory={"deadline_ms": 300}) as h, httpx2.AsyncClient(timeout=20) as http:
        for read in ("snapshot", "search"):
            monkeypatch.setattr(SqlMemories, read, hangs)
        took_s = 1.0
        for _ in range(8):
            began = time.monotonic()
            answer = await http.post(f"{h.base_url}/chat/completions", json=asking("Which tea do I like?"))
            took_s = time.monotonic() - began
            said = answer.headers
            assert (answer.status_code, said["x-memory-status"], said["x-memory-reason"]) == (
                200, "degraded", "deadline"
            )  # fmt: skip
            if took_s < 0.3:  # memory is skipped for a moment
                break
        assert took_s < 0.3
        health = (await http.get(f"{h.origin}/health")).json()
        assert (health["status"], health["memory"]["reason"]) == ("degraded", "deadline")
        is_over.set()
