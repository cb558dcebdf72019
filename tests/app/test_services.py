"""The services of a process that has just started."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.app.http import vitals
from proxy.app.services import Services
from proxy.config import load
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable
from proxy.http import memory_work
from proxy.models.judge import load_judge
from tests.models.heads import write_heads
from tests.storage.recording import recorded

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from proxy.app.reloadable import App
from proxy.admit import secrets
from proxy.http.connections import RawTargetProtocol
from proxy.config import load
from tests.support.serving import ask, serving

LOADED_ONCE = {"vendors": secrets.vendor_keys, "shapes": secrets.shapes}

async def main(data_dir):
    storage, memory = {"data_dir": Path(data_dir)}, {"deadline_ms": 10_000}
    settings = load(None, {}, {"storage": storage, "memory": memory, "server": {"shutdown_seconds": 1}})
    async with (
        App.open(settings, "http://127.0.0.1:9/v1") as app,
        serving(app.routes, http=RawTargetProtocol) as origin,
    ):
        loaded = {name: load.cache_info().currsize for name, load in LOADED_ONCE.items()}
        await ask(origin, b"GET /ready")
        known = set(sys.modules)
        httpx = "httpx" in known
        said = "Please remember that my budget for Hawaii is $10,000. How much can I spend on my vacation?"
        body = {
            "messages": [{"role": "user", "content": said}],
            "model": "m",
            "memory_context": {"user_id": "ana"},
        }
        head, _ = await ask(
            origin,
            b"POST /v1/chat/completions",
            (b"content-type: application/json",),
            json.dumps(body).encode(),
        )
        imported = sorted(set(sys.modules) - known)
    print(json.dumps({"loaded": loaded, "imported": imported, "httpx": httpx, "head": head.decode().lower()}))

asyncio.run(main(sys.argv[1]))
"""


@asynccontextmanager
async def opened(data_dir: Path, clock: Any = time.time, **sections: Any) -> AsyncIterator[Services]:
    settings = load(None, {}, {"storage": {"data_dir": data_dir}, **sections})
    async with AsyncExitStack() as stack:
        yield await Services.open(settings, "http://127.0.0.1:9/v1", stack, clock=clock)


@pytest.fixture
def data_dir(tmp_path, models_dir):
    (tmp_path / "models").symlink_to(models_dir)
    return tmp_path


async def test_the_first_question_finds_everything_loaded(data_dir):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(data_dir), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    found = json.loads(out.splitlines()[-1])
    assert "x-memory-status: none" in found["head"]
    assert found["loaded"] == {"vendors": 1, "shapes": 1}
    assert found["imported"] == []
    assert not found["httpx"]  # 40 ms and 3 MB, which only our own LLM calls need


async def test_memory_recovers_from_an_outage_although_the_clock_was_set_back(data_dir, monkeypatch):
    async def work():
        if broken:
            raise StoreUnavailable("down")
        return "fine"

    monkeypatch.setattr(memory_work, "OPEN_S", 0.05)
    now, broken = 1e9, True
    async with opened(data_dir, clock=lambda: now) as services:
        for _ in range(memory_work.TRIP_AFTER):
            await services.fail_open.attempt("recall", work, 1)
        assert services.fail_open.resting is not None
        now, broken = now - 86_400, False
        await asyncio.sleep(0.1)
        assert await services.fail_open.attempt("recall", work, 1) == "fine"


async def test_the_read_path_and_the_write_path_use_one_judge(tmp_path, models_dir, monkeypatch):
    monkeypatch.setitem(load_judge.__kwdefaults__, "directory", write_heads(tmp_path))
    async with opened(tmp_path / "data") as services:
        assert services.models.judge is not None
        assert services.tools.searcher.judge is services.learner.gate.judge is services.models.judge
        assert vitals(services).level is Level.FULL


async def test_without_its_heads_the_proxy_starts_without_a_judge_and_logs_it(
    tmp_path, models_dir, monkeypatch
):
    monkeypatch.setitem(load_judge.__kwdefaults__, "directory", tmp_path / "nowhere")
    lines = recorded(monkeypatch, lambda facts: facts)
    async with opened(tmp_path / "data") as services:
        assert services.tools.searcher.judge is None
        assert (vitals(services).level, vitals(services).reason) == (Level.UNJUDGED, "no_judge")
    ((_, facts),) = (line for line in lines if line[0] == "judge.unavailable")
    assert "message is missing" in facts["note"]
