"""A process that serves, reloads its configuration while it serves, and stops: no answer is cut short."""

import asyncio
import json
import os
import pty
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from proxy.app.reloadable import pinned_environment, plan_reload
from proxy.cli import opened_stores
from proxy.config import load
from proxy.domain.core import Scope
from tests.support.model import ScriptedModel, known
from tests.support.process import COMMAND, serving_process
from tests.support.upstream import Exchange, ScriptedUpstream, completion, completion_events

UPGRADE = b"GET /v1/realtime HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
SHUTDOWN = "MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS"


# ---------------------------------------------------------------- which settings can change
def test_a_reload_changes_what_it_can_and_names_what_needs_a_restart():
    current = load(None, {}, {"server": {"port": 1}, "memory": {"budget_tokens": 100}})
    row = {"model_role": "memory_extraction", "llm_endpoint": "http://h/v1", "llm_model_name": "m"}
    wanted = load(
        None,
        {},
        {
            "server": {"port": 2, "max_body_bytes": 5_000},
            "storage": {"data_dir": "/elsewhere"},
            "cache": {"prefix": "other:"},
            "memory": {"budget_tokens": 200},
            "upstream": {"api_key": "sk-new"},
            "external_models": [row],
        },
    )
    plan = plan_reload(current, wanted)
    assert set(plan.needs_restart) == {"server.port", "storage.data_dir", "cache.prefix"}
    changed = {"server.max_body_bytes", "memory.budget_tokens", "upstream.api_key", "external_models"}
    assert set(plan.changed) == changed
    assert (plan.settings.server.port, plan.settings.server.max_body_bytes) == (1, 5_000)
    assert plan.settings.storage.data_dir is None
    assert plan.settings.cache == current.cache
    assert plan.settings.upstream == wanted.upstream
    again = plan_reload(wanted, load(None, {}, wanted.model_dump()))
    assert (again.changed, again.needs_restart, again.settings) == ((), (), wanted)


def test_workers_get_the_stores_of_their_parent_even_if_the_file_has_changed(tmp_path):
    storage = {"data_dir": tmp_path, "backend": "postgres", "postgres_url": "postgresql://u:secret@h/m"}
    settings = load(None, {}, {"storage": storage, "cache": {"redis_url": "redis://u:secret@h/1"}})
    file = tmp_path / "c.yaml"
    file.write_text(
        "storage: {data_dir: /elsewhere}\ncache: {redis_url: redis://x}\nmemory: {budget_tokens: 300}"
    )
    pinned = load(file, pinned_environment(settings))
    assert (pinned.storage, pinned.cache) == (settings.storage, settings.cache)
    assert pinned.memory.budget_tokens == 300


# ---------------------------------------------------------------- reload
class Upstream:
    """Answers with its name; a stream waits in the middle for `go`."""

    def __init__(self, name: str) -> None:
        self.name, self.go = name, asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if not exchange.request.json.get("stream"):
            await exchange.json(completion(self.name))
            return
        first, *rest = completion_events(self.name, "whole")
        await exchange.start_stream()
        await exchange.chunk(first)
        await self.go.wait()
        await exchange.chunk(*rest)
        await exchange.end()


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Good morning"}], **more}


async def answer_of(http: httpx2.AsyncClient, base_url: str) -> str:
    answer = await http.post(f"{base_url}/chat/completions", json=body())
    assert answer.status_code == 200, answer.text
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


class Streaming:
    """A streamed answer that has begun."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def first(self) -> None:
        await anext(self._lines)

    async def rest(self) -> str:
        return "\n".join([line async for line in self._lines])


@pytest.fixture
async def http():
    async with httpx2.AsyncClient(timeout=90) as client:
        yield client


def configured(file: Path, **sections: Any) -> Path:
    file.write_text(json.dumps({"memory": {"extraction": "off"}, **sections}))
    return file


async def test_sighup_serves_new_requests_with_the_new_file_while_streams_finish_with_the_old(
    tmp_path, models_dir, http
):
    old, new = Upstream("old"), Upstream("new")
    async with ScriptedUpstream(old) as first, ScriptedUpstream(new) as second:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": first.url})
        flags = ("--config", str(file), "--workers", "2")
        async with serving_process(tmp_path / "data", *flags, models_dir=models_dir) as served:
            memory = {"user_id": "a", "content": "Likes tea."}
            assert (await http.post(f"{served.base_url}/memory", json=memory)).status_code == 201
            assert await answer_of(http, served.base_url) == "old"
            file.write_text("upstream: {base_ulr: http://127.0.0.1:1/v1}")
            served.signal(signal.SIGHUP)
            (failed,) = await served.until_logged("config.reload.failed")
            assert "did you mean upstream.base_url" in failed["error"]
            assert await answer_of(http, served.base_url) == "old"
            streamed = http.stream("POST", f"{served.base_url}/chat/completions", json=body(stream=True))
            async with streamed as response:
                stream = Streaming(response.aiter_lines())
                await stream.first()
                configured(file, upstream={"base_url": second.url}, server={"shutdown_seconds": 7})
                served.signal(signal.SIGHUP)
                done = await served.until_logged("config.reload.done", 2)
                assert [line["keys"] for line in done] == [["upstream.base_url"]] * 2
                restart = served.logged("config.reload.needs_restart")
                assert {tuple(line["keys"]) for line in restart} == {("server.shutdown_seconds",)}
                async with httpx2.AsyncClient(timeout=90) as other:
                    assert await answer_of(other, served.base_url) == "new"
                old.go.set()
                assert "whole" in await stream.rest()
            listed = await http.get(f"{served.base_url}/memory", params={"user_id": "a"})
            assert listed.json()["total"] == 1
        assert served.process.returncode == 0


class Keyed(ScriptedModel):
    """Extracts for the operator's key alone."""

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        extraction = b"(memory_extraction)" in (request.header(b"user-agent") or b"")
        if extraction and request.header(b"authorization") != b"Bearer sk-ours":
            await exchange.json({"error": {"message": "no"}}, 401)
        else:
            await super().__call__(exchange)


async def test_settings_that_do_not_start_change_nothing_and_a_key_lets_waiting_extraction_continue(
    tmp_path, models_dir, http
):
    model = Keyed(facts=known(("oolong", "User likes oolong tea.")))
    async with ScriptedUpstream(model) as upstream:
        settings = {"memory": {"extraction_batch_size": 1}, "upstream": {"base_url": upstream.url}}
        file = configured(tmp_path / "c.yaml", **settings)
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            message = {"messages": [{"role": "user", "content": "I like oolong tea."}]}
            of_alice = {"memory_context": {"user_id": "alice"}}
            answer = await http.post(f"{served.base_url}/chat/completions", json=body(**message, **of_alice))
            assert answer.headers["x-memory-store"] == "queued"
            await served.until_logged("memory.extraction_waits")
            configured(file, **settings, embedding={"model": "no-such-model"})
            served.signal(signal.SIGHUP)
            (failed,) = await served.until_logged("config.reload.failed")
            assert "no-such-model" in failed["error"]
            health = (await http.get(f"{served.origin}/health")).json()
            assert health["memory"]["level"] == "full"
            assert model.extractions == []
            configured(file, **settings | {"upstream": {"base_url": upstream.url, "api_key": "sk-ours"}})
            served.signal(signal.SIGHUP)
            await served.until_logged("config.reload.done")
            await served.until_logged("memory.extracted", within_s=20)
            listed = await http.get(f"{served.base_url}/memory", params={"user_id": "alice"})
            assert [one["content"] for one in listed.json()["data"]] == ["User likes oolong tea."]


# ---------------------------------------------------------------- stop
async def test_ready_answers_503_before_the_port_closes_and_a_stream_finishes(tmp_path, models_dir, http):
    slow = Upstream("slow")
    async with (
        ScriptedUpstream(slow) as upstream,
        serving_process(
            tmp_path / "data",
            *("--upstream", upstream.url),
            models_dir=models_dir,
            MEMORY_PROXY__SERVER__LEAVE_SECONDS="0.6",
        ) as served,
    ):
        assert (await http.get(f"{served.origin}/ready")).status_code == 200
        streamed = http.stream("POST", f"{served.base_url}/chat/completions", json=body(stream=True))
        async with streamed as response:
            stream = Streaming(response.aiter_lines())
            await stream.first()
            served.signal(signal.SIGTERM)
            statuses = await _statuses_of_ready(served.origin)
            assert 503 in statuses
            assert statuses.index(503) <= 2  # at once, and until the port is closed
            assert set(statuses[statuses.index(503) :]) == {503}
            slow.go.set()
            assert "whole" in await stream.rest()
        assert await served.ended() == 0
        assert [line["port_closes_in_s"] for line in served.logged("process.stopping")] == [0.6]


async def _statuses_of_ready(origin: str) -> list[int]:
    """Request /ready until the port is closed; return the statuses."""
    statuses: list[int] = []
    async with asyncio.timeout(60):
        while True:
            async with httpx2.AsyncClient(timeout=90) as http:  # a connection of its own each time
                try:
                    answer = await http.get(f"{origin}/ready", headers={"X-Request-Id": "probe-1"})
                    assert answer.headers["x-request-id"] == "probe-1"
                    statuses.append(answer.status_code)
                except httpx2.TransportError:
                    return statuses
            await asyncio.sleep(0.05)


async def test_answers_that_do_not_end_are_cut_after_the_shutdown_time_and_what_users_said_is_stored(
    tmp_path, models_dir, http, monkeypatch
):
    async def script(exchange):
        if exchange.request.header(b"upgrade"):
            await exchange.send(b"HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello")
        elif exchange.request.json.get("stream"):
            await Upstream("slow")(exchange)
        await exchange.client_left()

    # onnxruntime stores its device id in ~/.cache.
    for name in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)  # `import proxy` has set it for these tests
    home = tmp_path / "home"
    home.mkdir()
    environment = {SHUTDOWN: "1", "HOME": str(home)}
    async with ScriptedUpstream(script) as upstream:
        flags = ("--upstream", upstream.url)
        async with serving_process(tmp_path / "data", *flags, models_dir=models_dir, **environment) as served:
            websocket = await asyncio.open_connection("127.0.0.1", urlsplit(served.origin).port)
            websocket[1].write(UPGRADE)
            assert await websocket[0].readuntil(b"hello")
            url = f"{served.base_url}/chat/completions"
            silent = asyncio.create_task(http.post(url, json=body()))
            of_a = {"memory_context": {"user_id": "a"}}
            async with http.stream("POST", url, json=body(stream=True, **of_a)) as response:
                stream = Streaming(response.aiter_lines())
                await stream.first()
                assert response.headers["x-memory-store"] == "queued"
                await upstream.until_requests(3)
                served.signal(signal.SIGTERM)
                with pytest.raises(httpx2.TransportError):
                    await stream.rest()
            answer = await silent
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["code"] == "stopping"
            assert await served.ended(within_s=8) == 0
            assert await websocket[0].read() == b""
            websocket[1].close()
            (stopping,), (stopped,) = served.logged("process.stopping"), served.logged("process.stopped")
            assert (stopping["reason"], stopping["requests_under_way"]) == ("SIGTERM", 3)
            assert 1 <= stopped["took_s"] < 8
        assert not list(home.rglob("*")), "nothing is written outside of the data directory"
        log = (tmp_path / "data.log").read_text()
        assert [line for line in log.splitlines() if not line.startswith("{")] == []
        assert "Traceback" not in log
    async with opened_stores(load(None, {}, {"storage": {"data_dir": tmp_path / "data"}})) as stores:
        (session,) = await stores.sessions.sessions(Scope("default", "a"), limit=9)
    assert session.exchanges == 1


def test_closing_its_terminal_stops_a_server(tmp_path):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(COMMAND[0], [*COMMAND, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")])
    printed = b""
    while b"Settings: " not in printed:
        printed += os.read(terminal, 4096)
    os.close(terminal)  # the kernel sends SIGHUP
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        assert time.monotonic() < deadline, "the server outlives its terminal"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(ended[1]) >= 0
