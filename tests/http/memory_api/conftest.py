"""The memory API as the proxy serves it, over real SQLite and the real embedder, with a scripted judge.
Nothing works in the background: what is queued stays queued."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from proxy.app import http as app_http
from proxy.app import services
from proxy.app.services import Services
from proxy.config import load
from proxy.http.auth.identity import Auth, Caller, Identified
from proxy.models import load as loading
from tests.e2e.conftest import encoder_of, furnish, models_dir
from tests.support.judge import ScriptedJudge, one_value
from tests.support.serving import serving

__all__ = ["models_dir"]


class Chosen:
    """Identifies every request as that of the caller that the test chose."""

    ambient, only_caller = False, None

    def __init__(self) -> None:
        self.caller = Caller("default")

    async def identify(self, scope: Any) -> Identified:
        return Identified(self.caller, scope["headers"])


@dataclass
class Bench:
    """What a test can reach: the API over HTTP, the stores behind it, and who is calling."""

    http: httpx2.AsyncClient
    origin: str
    services: Services
    chosen: Chosen

    @property
    def stores(self) -> Any:
        return self.services.stores

    def call_as(self, caller: Caller) -> None:
        """Let the following requests come from this caller."""
        self.chosen.caller = caller

    async def add(self, content: str, user: str = "alice", **more: Any) -> dict[str, Any]:
        answer = await self.http.post("/memory", json={"user_id": user, "content": content, **more})
        assert answer.status_code in (200, 201), answer.text
        memory: dict[str, Any] = answer.json()
        return memory

    async def found(self, query: str, user: str = "alice", **more: Any) -> list[dict[str, Any]]:
        answer = await self.http.post("/memory/search", json={"user_id": user, "query": query, **more})
        assert answer.status_code == 200, answer.text
        matches: list[dict[str, Any]] = answer.json()["data"]
        return matches

    async def listed(self, user: str = "alice", **params: str) -> dict[str, Any]:
        answer = await self.http.get("/memory", params={"user_id": user, **params})
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    async def export(self, **params: Any) -> bytes:
        answer = await self.http.get("/memory/export", params=params)
        assert answer.status_code == 200, answer.text
        return answer.content

    async def bring_in(self, lines: bytes, **params: Any) -> dict[str, Any]:
        answer = await self.http.post(
            "/memory/import", content=lines, params=params, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status_code == 200, answer.text
        counts: dict[str, Any] = answer.json()
        return counts


@pytest.fixture
async def bench(tmp_path, models_dir, monkeypatch):
    chosen, judge = Chosen(), ScriptedJudge(relation=one_value)
    monkeypatch.setattr(loading, "our_encoder", encoder_of)
    monkeypatch.setattr(services, "load_judge", lambda *_: SimpleNamespace(judge=judge, note=""))
    monkeypatch.setattr(app_http, "auth_of", lambda *_: Auth(chosen))
    url, data_dir = "http://127.0.0.1:9/v1", furnish(tmp_path / "data", models_dir)
    paths = {"storage": {"data_dir": data_dir}, "upstream": {"base_url": url}}
    settings = load(None, {}, {**paths, "evolution": {"reflect": False}})
    async with AsyncExitStack() as stack:
        running = await Services.open(settings, url, stack, time.time)
        origin = await stack.enter_async_context(serving(app_http.routes(running)))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=f"{origin}/v1", timeout=120))
        yield Bench(http, origin, running, chosen)
