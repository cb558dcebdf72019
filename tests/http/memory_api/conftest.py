"""The memory API on a real socket, over real SQLite and the real embedder, without the rest of the proxy."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.middleware.exceptions import ExceptionMiddleware

from proxy.admit.gate import Gate
from proxy.domain.changes import EvolutionPolicy
from proxy.domain.errors import ProxyError
from proxy.http.asgi import answer
from proxy.http.auth.identity import Caller
from proxy.http.memory_api.app import MemoryApi
from proxy.http.memory_api.documents import DocumentEndpoints
from proxy.http.memory_api.inspection import (
    CallerEndpoints,
    QuarantineEndpoints,
    ReceiptEndpoints,
    SessionEndpoints,
    TimelineEndpoints,
)
from proxy.http.memory_api.memories import DerivedEndpoints, EvolutionEndpoints, MemoryEndpoints
from proxy.http.memory_api.recall import RecallEndpoints
from proxy.http.memory_api.response_schemas import MemoryShaper
from proxy.http.memory_api.transfer import TransferEndpoints
from proxy.http.turns import Zones
from proxy.learn.contradictions import Contradictions
from proxy.learn.documents import DocumentIngester
from proxy.learn.edits import MemoryEditor
from proxy.learn.evolution import DecayStep, Evolution, UseJudge, UseStep
from proxy.models.embedder import OnnxEmbedder
from proxy.models.load import load_embedder
from proxy.models.tokens import Tokens
from proxy.recall.documents import Shelf
from proxy.recall.pack import Budget
from proxy.recall.prepare import RecallTools
from proxy.recall.search import Searcher
from proxy.storage.sqlite import SqliteStores
from proxy.upstream.client import Credentials
from proxy.wire.extensions import take_header_extensions
from tests.e2e.conftest import models_dir
from tests.support.judge import ScriptedJudge, one_value
from tests.support.serving import serving

__all__ = ["models_dir"]


@pytest.fixture(scope="session")
def embedder(models_dir):
    loaded = load_embedder(models_dir)
    assert loaded.embedder is not None
    yield loaded.embedder
    loaded.embedder.close()


def answering_errors(app: Any) -> ExceptionMiddleware:
    """Return the app with its errors answered, as the whole application does."""
    return ExceptionMiddleware(app, handlers={ProxyError: answer})


@dataclass
class Bench:
    """What a test can reach: the API over HTTP, the stores behind it, and who is calling."""

    http: httpx2.AsyncClient
    origin: str
    stores: Any
    edits: MemoryEditor
    callers: list[Caller] = field(default_factory=lambda: [Caller("default")])
    woken: list[bool] = field(default_factory=list)
    credentials: Credentials = field(default_factory=Credentials)

    def call_as(self, caller: Caller) -> None:
        """Let the following requests come from this caller."""
        self.callers[:] = [caller]

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


@contextlib.asynccontextmanager
async def opened(data_dir: Path, embedder: OnnxEmbedder) -> AsyncIterator[Bench]:
    stores = SqliteStores(data_dir)
    await stores.open()
    try:
        await stores.memories.stamp_model(embedder.model)
        async with served(stores, embedder) as bench:
            yield bench
    finally:
        await stores.close()


@contextlib.asynccontextmanager
async def served(stores: SqliteStores, embedder: OnnxEmbedder) -> AsyncIterator[Bench]:
    shelf = Shelf(stores.passages, stores.memories, embedder)
    recall = RecallTools(
        searcher=Searcher(stores.memories, embedder, time.time), sessions=stores.sessions, notes=stores.notes,
        shelf=shelf, budget=Budget(Tokens()), clock=time.time,
    )  # fmt: skip
    callers: list[Caller] = [Caller("default")]
    woken: list[bool] = []
    credentials = Credentials()
    gate = Gate(stores.memories, embedder, judge=ScriptedJudge(relation=one_value))
    edits = MemoryEditor(gate, stores.quarantine, time.time)
    zones = Zones(stores.sessions, "UTC", time.time)
    steps = (UseStep(stores.evolution, UseJudge(None)), DecayStep(stores.evolution))
    evolution = Evolution(stores.evolution, steps, EvolutionPolicy(reflect=False), time.time)
    shape = MemoryShaper(evolution.policy_of, time.time)
    api = MemoryApi(
        lambda request: replace(
            callers[0],
            named=request.headers.get("x-memory-user-id"),
            project=request.headers.get("x-memory-project-id"),
            timezone=take_header_extensions(request.scope["headers"]).timezone,
        ),
        MemoryEndpoints(stores.memories, edits, zones, time.time, credentials.forget, shape),
        RecallEndpoints(recall, zones, time.time, shape),
        TransferEndpoints(stores.memories, edits, zones, time.time),
        TimelineEndpoints(stores.timeline, stores.entities, zones, time.time, shape),
        DerivedEndpoints(
            stores.memories, stores.derivation, Contradictions(gate, stores.derivation), time.time, shape
        ),
        EvolutionEndpoints(edits, evolution, time.time, shape),
        SessionEndpoints(stores.sessions, stores.jobs, lambda: woken.append(True), time.time),
        QuarantineEndpoints(stores.quarantine, edits, shape),
        ReceiptEndpoints(stores.receipts),
        DocumentEndpoints(
            DocumentIngester(stores.documents, stores.passages, embedder, time.time), time.time
        ),
        CallerEndpoints("open", "1.2.3"),
    )
    async with (
        serving(answering_errors(api)) as origin,
        httpx2.AsyncClient(base_url=f"{origin}/v1", timeout=120) as http,
    ):
        yield Bench(http, origin, stores, edits, callers, woken, credentials)


@pytest.fixture
async def bench(tmp_path, embedder):
    async with opened(tmp_path / "data", embedder) as running:
        yield running
