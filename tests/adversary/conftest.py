"""The whole proxy of tests/e2e, and clients that behave badly."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.storage.sqlite import SqliteStores
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, house, models_dir, until
from tests.support.model import known
from tests.support.upstream import Exchange

__all__ = ["house", "models_dir", "until"]

Json = dict[str, Any]
TEA = ("oolong", "User likes oolong tea.")
KEYS: Json = {"identity": {"mode": "keys"}, "upstream_extra": {"api_key": "sk-server"}}


@pytest.fixture
async def keys(tmp_path):
    """The keys of the house's data directory."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    yield stores.keys
    await stores.close()


def context(user: str = "alice", **more: str) -> Json:
    return {"memory_context": {"user_id": user, **more}}


def client(h: House, key: str = "") -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx2.AsyncClient(base_url=h.base_url, headers=headers, timeout=30)


async def post(h: House, body: Json, **headers: str) -> httpx2.Response:
    """Send one chat completion without the SDK's help."""
    async with client(h) as http:
        return await http.post("/chat/completions", json={"model": "m"} | body, headers=headers)


async def tell(h, text, user="alice", *, extra=None, **headers):
    """Send one user message in a conversation of its own."""
    message = {"messages": [{"role": "user", "content": text}]}
    return await post(h, message | context(user) | (extra or {}), **headers)


async def listed(h: House, user: str = "alice", **params: str) -> list[str]:
    """Return the contents of a user's current memories."""
    async with client(h) as http:
        answer = await http.get("/memory", params={"user_id": user, "limit": 100, **params})
    assert answer.status_code == 200, answer.text
    return [m["content"] for m in answer.json()["data"]]


async def add(h: House, *contents: str, user: str = "alice", **more: str) -> None:
    """Store memories by the memory API."""
    async with client(h) as http:
        for content in contents:
            answer = await http.post("/memory", json={"user_id": user, "content": content, **more})
            assert answer.status_code == 201, answer.text


async def forget(h: House, user: str = "alice", **params: str) -> Json:
    async with client(h) as http:
        answer = await http.delete("/memory", params={"user_id": user, **params})
    assert answer.status_code == 200, answer.text
    counts: Json = answer.json()
    return counts


async def begun(h: House, user: str = "alice") -> int:
    """Return how many of a user's exchanges are stored, answered or not."""
    async with client(h) as http:
        answer = await http.get("/memory/sessions", params={"user_id": user})
    return sum(session["exchanges"] for session in answer.json()["data"])


async def jobs(h: House) -> dict[str, int]:
    """Return the number of jobs by state."""
    async with client(h) as http:
        counts: dict[str, int] = (await http.get(f"{h.origin}/health")).json()["jobs"]
    return counts


async def quiet(h: House) -> None:
    """Return when no job is queued or running."""
    await until(lambda: jobs(h), lambda counts: counts["running"] + counts["queued"] == 0, within_s=60)


async def when(done: Callable[[], bool]) -> None:
    """Return when `done` is true."""

    async def get() -> bool:
        return done()

    await until(get)


def files_with(directory: Path, text: str) -> list[str]:
    """Return the files under the directory that contain the text."""
    files = (f for f in directory.rglob("*") if f.is_file() and not f.is_symlink())
    return [f.name for f in files if "models" not in f.parts and text.encode() in f.read_bytes()]


class Gated(ChatOnly):
    """Extracts a fact if its cue was said; waits with extraction and answers while a gate is closed."""

    def __init__(self, fact: tuple[str, str] = TEA, answer: str = "All right.") -> None:
        super().__init__(answer, facts=known(fact))
        self.may_extract, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_extract.set()
        self.may_answer.set()
        self.extracting, self.answering = asyncio.Event(), asyncio.Event()
        self.extraction_error = 0  # a status; 0: none

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b""):
            self.extracting.set()
            await self.may_extract.wait()
            if self.extraction_error:
                await exchange.json({"error": {"message": "no"}}, self.extraction_error)
                return
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        streams = exchange.request.json.get("stream") and not self.may_answer.is_set()
        if streams:
            await exchange.start_stream()
            delta = {"choices": [{"index": 0, "delta": {"content": self.answer}}]}
            await exchange.chunk(b"data: %s\n\n" % json.dumps(delta).encode())
        self.answering.set()
        await self.may_answer.wait()
        if streams:
            await exchange.end()
        else:
            await super().converse(exchange)
