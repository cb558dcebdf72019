"""A process that has just started."""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.app import http
from proxy.app.maintenance import vitals
from proxy.app.parts import _NOBODYS as NOBODYS
from proxy.app.parts import Parts
from proxy.app.reloadable import App
from proxy.config import load
from proxy.domain.core import Level, Prepared, Scope, Turn
from proxy.domain.errors import StoreUnavailable
from proxy.http import failopen
from proxy.learn.budget import PAUSE_S
from proxy.recall.prepare import RecallTools, prepare
from proxy.storage.sql.documents import SqlPassages
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
    print(json.dumps({"loaded": loaded, "imported": imported, "head": head.decode().lower()}))

asyncio.run(main(sys.argv[1]))
"""


async def test_nothing_is_left_to_load_for_the_first_question(tmp_path: Path, models_dir: Path) -> None:
    (tmp_path / "models").symlink_to(models_dir)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    told = json.loads(out.splitlines()[-1])
    assert "x-memory-status: none" in told["head"]
    assert told["loaded"] == {"vendors": 1, "shapes": 1}
    assert told["imported"] == []


async def test_a_first_look_up_that_takes_its_time_is_no_trouble(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = SqlPassages.holds

    async def slow(passages: SqlPassages, scope: Scope) -> bool:
        await asyncio.sleep(0.2)
        return await holds(passages, scope)

    monkeypatch.setattr(SqlPassages, "holds", slow)
    lines = recorded(monkeypatch, lambda facts: facts)
    (tmp_path / "models").symlink_to(models_dir)
    settings = load(None, {}, {"storage": {"data_dir": tmp_path}, "server": {"shutdown_seconds": 1}})
    async with App.open(settings, "http://127.0.0.1:9/v1"):
        pass
    assert [event for event, _ in lines if event in ("documents.left_out", "memory.failed")] == []


async def test_a_clock_that_is_set_back_keeps_no_work_of_memory_away(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> str:
        if broken:
            raise StoreUnavailable("gone")
        return "fine"

    monkeypatch.setattr(failopen, "OPEN_S", 0.05)
    (tmp_path / "models").symlink_to(models_dir)
    settings, now, broken = load(None, {}, {"storage": {"data_dir": tmp_path}}), 1e9, True
    async with AsyncExitStack() as stack:
        parts = await Parts.open(settings, "http://127.0.0.1:9/v1", stack, clock=lambda: now)
        for _ in range(failopen.TRIP_AFTER):
            await parts.fail_open.attempt("recall", work, 1)
        assert parts.fail_open.resting is not None
        now, broken = now - 86_400, False
        await asyncio.sleep(0.1)
        assert await parts.fail_open.attempt("recall", work, 1) == "fine"


async def test_the_worker_gives_way_to_a_turn_that_is_prepared(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def held(turn: Turn, tools: RecallTools) -> Prepared:
        begun.set()
        await go_on.wait()
        return await prepare(turn, tools)

    monkeypatch.setattr(http, "prepare", held)
    (tmp_path / "models").symlink_to(models_dir)
    settings = load(None, {}, {"storage": {"data_dir": tmp_path}})
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        parts = await Parts.open(settings, "http://127.0.0.1:9/v1", stack, clock=time.time)
        turn = asyncio.create_task(http._interception(parts).recall(NOBODYS))
        await begun.wait()
        job = asyncio.create_task(parts.written.worker._tools.turns.pause())
        await asyncio.sleep(5 * PAUSE_S)
        assert not job.done()
        go_on.set()
        await asyncio.gather(turn, job)


@pytest.mark.parametrize(("chosen", "used"), [(None, 0.85), (0.4, 0.4), (0.0, 0.0)])
async def test_meaning_weighs_what_its_model_says_unless_the_operator_does(
    tmp_path: Path, models_dir: Path, chosen: float | None, used: float
) -> None:
    (tmp_path / "models").symlink_to(models_dir)
    read = load(None, {}, {"storage": {"data_dir": tmp_path}, "retrieval": {"dense_weight": chosen}})
    async with AsyncExitStack() as stack:
        parts = await Parts.open(read, "http://127.0.0.1:9/v1", stack, clock=time.time)
        assert parts.tools.searcher.ranking.dense_weight == used


async def test_a_directory_of_weights_that_cannot_be_used_is_said(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = recorded(monkeypatch, lambda facts: facts)
    (tmp_path / "models").symlink_to(models_dir)
    embedding = {"path": tmp_path / "mispelt"}
    settings = load(None, {}, {"storage": {"data_dir": tmp_path}, "embedding": embedding})
    async with AsyncExitStack() as stack:
        await Parts.open(settings, "http://127.0.0.1:9/v1", stack, clock=time.time)
    ((_, facts),) = (line for line in lines if line[0] == "embedding.path_unusable")
    assert facts["taken"] == "installer"
    assert "mispelt is not a directory" in facts["notes"][0]


async def test_the_judge_is_handed_to_all_who_ask_it(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.models.heads.DIRECTORY", write_heads(tmp_path))
    settings = load(None, {}, {"storage": {"data_dir": tmp_path / "data"}})
    async with AsyncExitStack() as stack:
        parts = await Parts.open(settings, "http://127.0.0.1:9/v1", stack, clock=time.time)
        assert parts.judge is not None
        assert parts.tools.searcher.judge is parts.judge
        assert parts.written.gate.judge is parts.judge
        assert parts.written.worker._tools.gate.judge is parts.judge
        assert vitals(parts).level is Level.FULL


async def test_without_its_heads_the_proxy_starts_without_a_judge_and_says_so(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.models.heads.DIRECTORY", tmp_path / "nowhere")
    lines = recorded(monkeypatch, lambda facts: facts)
    settings = load(None, {}, {"storage": {"data_dir": tmp_path / "data"}})
    async with AsyncExitStack() as stack:
        parts = await Parts.open(settings, "http://127.0.0.1:9/v1", stack, clock=time.time)
        assert parts.tools.searcher.judge is None
        assert (vitals(parts).level, vitals(parts).reason) == (Level.UNJUDGED, "no_judge")
    ((_, facts),) = (line for line in lines if line[0] == "judge.unavailable")
    assert "message is missing" in facts["note"]
