"""The whole proxy in the test's event loop: real sockets, SQLite and embedder, a scripted upstream."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import TypeVar

import pytest
from openai import AsyncOpenAI

from proxy.app.reloadable import App
from proxy.config import load
from proxy.http.connections import RawTargetProtocol
from proxy.models import load as loading
from proxy.models.load import load_embedder
from tests.support.model import ScriptedModel
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

T = TypeVar("T")
_encoder_of = functools.cache(loading._from_installer)  # 0.1 s for each proxy; its session has no state


async def until(get, done=bool, *, within_s=30):
    """Ask until the answer is as wanted, and return it; fails with the last answer."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not done(value := await get()):
        assert asyncio.get_running_loop().time() < deadline, f"still {value!r}"
        await asyncio.sleep(0.01)
    return value


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory):
    """The packed weights, made once for all tests."""
    directory = tmp_path_factory.mktemp("models")
    loaded = load_embedder(directory)
    if loaded.embedder is None:
        pytest.skip(f"no embedding model here: {'; '.join(loaded.notes)}")
    loaded.embedder.close()
    return directory


class House:
    """A running proxy and the upstream behind it."""

    def __init__(self, app: App, origin: str, upstream: ScriptedUpstream, model: ScriptedModel) -> None:
        self.app, self.origin, self.upstream, self.model = app, origin, upstream, model
        self.base_url = f"{origin}/v1"

    def client(self, key: str = "sk-test") -> AsyncOpenAI:
        """Return the real SDK, pointed at the proxy, without its own retries."""
        return AsyncOpenAI(base_url=self.base_url, api_key=key, max_retries=0)


Houses = Callable[..., contextlib.AbstractAsyncContextManager[House]]


@pytest.fixture
def house(tmp_path, models_dir, monkeypatch):
    """Open a proxy: `async with house(script, memory={…}) as h`. The same data directory each time."""
    monkeypatch.setattr(loading, "_from_installer", _encoder_of)

    @contextlib.asynccontextmanager
    async def opened(
        model=None, *, data_dir=None, port=0, upstream_extra=None, upstream_url=None, ws="none", **sections
    ):
        model = model or ScriptedModel()
        directory = data_dir or tmp_path / "data"
        directory.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (directory / "models").symlink_to(models_dir)
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
