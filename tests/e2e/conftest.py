"""The whole proxy in the test's event loop: real sockets, SQLite and embedder, a scripted upstream."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from proxy.app.reloadable import App
from proxy.config import load
from proxy.http.connections import RawTargetProtocol
from proxy.models import load as loading
from proxy.models.load import load_embedder
from proxy.storage.sqlite import SqliteStores
from tests.support.model import ScriptedModel
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

Json = dict[str, Any]
encoder_of = functools.cache(loading.our_encoder)  # 0.1 s for each proxy; its session has no state


async def until(get, done=bool, *, within_s=30):
    """Ask until the answer is as wanted, and return it; fails with the last answer."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not done(value := await get()):
        assert asyncio.get_running_loop().time() < deadline, f"still {value!r}"
        await asyncio.sleep(0.01)
    return value


async def when(done: Callable[[], Any]) -> None:
    """Return when `done` is true."""

    async def get():
        return done()

    await until(get)


def context(user: str = "alice", **more: str) -> Json:
    """Return the body's field that names a user."""
    return {"memory_context": {"user_id": user, **more}}


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory):
    """The packed weights, made once for all tests."""
    directory = tmp_path_factory.mktemp("models")
    loaded = load_embedder(directory)
    if loaded.embedder is None:
        pytest.skip(f"no embedding model here: {'; '.join(loaded.notes)}")
    loaded.embedder.close()
    return directory


def furnish(directory: Path, models_dir: Path) -> Path:
    """Make the data directory, with the packed weights; return it."""
    directory.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (directory / "models").symlink_to(models_dir)
    return directory


class House:
    """A running proxy and the upstream behind it."""

    def __init__(self, app: App, origin: str, upstream: ScriptedUpstream, model: ScriptedModel) -> None:
        self.app, self.origin, self.upstream, self.model = app, origin, upstream, model
        self.base_url = f"{origin}/v1"

    def client(self, key: str = "sk-test", user: str = "") -> AsyncOpenAI:
        """Return the real SDK, pointed at the proxy, without its own retries; it may name a user."""
        named = {"X-Memory-User-Id": user} if user else None
        return AsyncOpenAI(base_url=self.base_url, api_key=key, max_retries=0, default_headers=named)

    def http(self, key: str = "", **headers: str) -> httpx2.AsyncClient:
        """Return a client of /v1 that adds nothing, with our key if one is given."""
        if key:
            headers["authorization"] = f"Bearer {key}"
        return httpx2.AsyncClient(base_url=self.base_url, headers=headers, timeout=30)

    async def post(self, path: str, body: Json, key: str = "", **headers: str) -> httpx2.Response:
        """Send one JSON body on a connection of its own."""
        async with self.http(key) as http:
            return await http.post(path, json=body, headers=headers)

    async def complete(self, body: Json, key: str = "", **headers: str) -> httpx2.Response:
        """Send one chat completion."""
        return await self.post("/chat/completions", {"model": "m"} | body, key, **headers)

    async def tell(
        self, said: Any, user="alice", *, extra: Json | None = None, **headers: str
    ) -> httpx2.Response:
        """Send one chat completion of a user: one message, or all messages of a conversation."""
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        return await self.complete({"messages": messages} | context(user) | (extra or {}), **headers)

    async def get(self, path: str, key: str = "", **params: Any) -> Any:
        """Return what a GET answers, which must be 200."""
        async with self.http(key) as http:
            answer = await http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def memories(self, user: str | None = "alice", key: str = "", **params: Any) -> list[Json]:
        """Return a user's current memories as the API shows them; `user` None: the key's."""
        named = {"user_id": user} if user is not None else {}
        rows: list[Json] = (await self.get("/memory", key, limit=100, **named, **params))["data"]
        return rows

    async def listed(self, user: str | None = "alice", key: str = "", **params: Any) -> list[str]:
        """Return the contents of a user's current memories."""
        return [memory["content"] for memory in await self.memories(user, key, **params)]

    async def add(self, *contents: str, user: str = "alice", **more: Any) -> list[str]:
        """Store memories by the memory API; return their ids."""
        made = [await self.post("/memory", {"user_id": user, "content": c, **more}) for c in contents]
        assert {answer.status_code for answer in made} <= {200, 201}, [answer.text for answer in made]
        return [answer.json()["id"] for answer in made]

    async def forget(self, user: str = "alice", **params: str) -> Json:
        """Forget a user, or what the parameters narrow it to; return the counts."""
        async with self.http() as http:
            answer = await http.delete("/memory", params={"user_id": user, **params})
        assert answer.status_code == 200, answer.text
        counts: Json = answer.json()
        return counts

    async def begun(self, user: str = "alice") -> int:
        """Return how many of a user's exchanges are stored, answered or not."""
        sessions = (await self.get("/memory/sessions", user_id=user))["data"]
        return sum(session["exchanges"] for session in sessions)

    async def jobs(self) -> dict[str, int]:
        """Return the number of jobs by state."""
        counts: dict[str, int] = (await self.get(f"{self.origin}/health"))["jobs"]
        return counts

    async def quiet(self) -> None:
        """Return when no job is queued or running."""
        await until(self.jobs, lambda counts: counts["running"] + counts["queued"] == 0, within_s=60)

    @property
    def block(self) -> str:
        """What was injected into the last conversation request: its system messages."""
        return "\n".join(m["content"] for m in self.model.last_messages if m["role"] == "system")


Houses = Callable[..., contextlib.AbstractAsyncContextManager[House]]


@pytest.fixture
async def stores(tmp_path):
    """The stores of the house's data directory, as another process opens them."""
    made = SqliteStores(tmp_path / "data")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def keys(stores):
    """The API keys of the house: `memory-proxy keys` is another process, too."""
    return stores.keys


@pytest.fixture
def house(tmp_path, models_dir, monkeypatch):
    """Open a proxy: `async with house(script, memory={…}) as h`. The same data directory each time."""
    monkeypatch.setattr(loading, "our_encoder", encoder_of)

    @contextlib.asynccontextmanager
    async def opened(
        model=None, *, data_dir=None, port=0, upstream_extra=None, upstream_url=None, ws="none", **sections
    ):
        model = model or ScriptedModel()
        directory = furnish(data_dir or tmp_path / "data", models_dir)
        sections = {"memory": {}, **sections}
        # A deadline that a busy machine keeps: what happens at the real one has tests of its own.
        defaults = {"extraction_batch_size": 1, "deadline_ms": 5_000}
        sections["memory"] = defaults | sections["memory"]
        async with ScriptedUpstream(model, port=port) as upstream:
            settings = load(
                None,
                {},
                {
                    "storage": {"data_dir": directory},
                    "upstream": {"base_url": upstream.url, **(upstream_extra or {})},
                    **sections,
                },
            )
            async with (
                App.open(settings, upstream_url or upstream.url) as app,
                serving(app.routes, http=RawTargetProtocol, ws=ws) as origin,
            ):
                yield House(app, origin, upstream, model)

    return opened
