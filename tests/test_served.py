"""A process that serves, is changed while it serves, and leaves: nobody's answer is cut short by it."""

import asyncio
import contextlib
import json
import os
import pty
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest

from proxy.app import reloadable
from proxy.config import Settings, load
from tests.e2e.conftest import models_dir
from tests.support.model import ScriptedModel, known
from tests.support.process import COMMAND, serving_process
from tests.support.upstream import Exchange, ScriptedUpstream, completion, completion_events

__all__ = ["models_dir"]


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
    said: str = answer.json()["choices"][0]["message"]["content"]
    return said


class Streaming:
    """A streamed answer that has begun."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def first(self) -> None:
        await anext(self._lines)

    async def rest(self) -> str:
        return "\n".join([line async for line in self._lines])


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=90) as client:
        yield client


def configured(file: Path, **sections: Any) -> Path:
    file.write_text(json.dumps({"memory": {"extraction": "off"}, **sections}))
    return file


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_hang_up_serves_new_requests_by_the_new_file_and_lets_streams_go_on(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient, workers: str
) -> None:
    old, new = Upstream("old"), Upstream("new")
    async with ScriptedUpstream(old) as first, ScriptedUpstream(new) as second:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": first.url})
        flags = ("--config", str(file), "--workers", workers)
        async with serving_process(tmp_path / "data", *flags, models_dir=models_dir) as served:
            assert await answer_of(http, served.base_url) == "old"
            streamed = http.stream("POST", f"{served.base_url}/chat/completions", json=body(stream=True))
            async with streamed as response:
                stream = Streaming(response.aiter_lines())
                await stream.first()
                configured(file, upstream={"base_url": second.url}, server={"shutdown_seconds": 7})
                served.signal(signal.SIGHUP)
                done = await served.until_logged("config.reload.done", int(workers))
                assert [line["keys"] for line in done] == [["upstream.base_url"]] * int(workers)
                restart = served.logged("config.reload.needs_restart")
                assert {tuple(line["keys"]) for line in restart} == {("server.shutdown_seconds",)}
                async with httpx2.AsyncClient(timeout=90) as other:
                    assert await answer_of(other, served.base_url) == "new"
                assert await answer_of(http, served.base_url) == "new"
                old.go.set()
                assert "whole" in await stream.rest()
        assert served.process.returncode == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_broken_file_changes_nothing_and_says_so(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient, workers: str
) -> None:
    async with ScriptedUpstream(Upstream("old")) as upstream:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": upstream.url})
        flags = ("--config", str(file), "--workers", workers)
        async with serving_process(tmp_path / "data", *flags, models_dir=models_dir) as served:
            assert await answer_of(http, served.base_url) == "old"
            file.write_text("upstream: {base_ulr: http://127.0.0.1:1/v1}")
            served.signal(signal.SIGHUP)
            (failed,) = await served.until_logged("config.reload.failed")
            assert "did you mean upstream.base_url" in failed["error"]
            assert await answer_of(http, served.base_url) == "old"


async def test_settings_that_do_not_start_change_nothing(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    async with ScriptedUpstream(Upstream("old")) as upstream:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": upstream.url})
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            configured(file, upstream={"base_url": upstream.url}, embedding={"dimension": 7})
            served.signal(signal.SIGHUP)
            (failed,) = await served.until_logged("config.reload.failed")
            assert "embedding.dimension" in failed["error"]
            assert await answer_of(http, served.base_url) == "old"
            configured(file, upstream={"base_url": upstream.url}, embedding={"model": "no-such-model"})
            served.signal(signal.SIGHUP)
            *_, failed = await served.until_logged("config.reload.failed", 2)
            assert "embedding model cannot be loaded" in failed["error"]
            health = (await http.get(f"{served.origin}/health")).json()
            assert health["memory"]["level"] == "full"
            configured(file, upstream={"base_url": upstream.url})
            served.signal(signal.SIGHUP)
            await served.until_logged("config.reload.unchanged")


async def test_nothing_is_extracted_by_settings_that_are_refused(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    model = ScriptedModel(facts=known(("oolong", "User likes oolong tea.")))
    async with ScriptedUpstream(model) as upstream:
        later = {"extraction_batch_size": 50, "personal_idle_seconds": 999}
        at = {"upstream": {"base_url": upstream.url}}
        file = configured(tmp_path / "c.yaml", memory=later, **at)
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            said = {"messages": [{"role": "user", "content": "I like oolong tea."}]}
            of_alice = {"memory_context": {"user_id": "alice"}}
            told = await http.post(f"{served.base_url}/chat/completions", json=body(**said, **of_alice))
            assert told.headers["x-memory-store"] == "queued"
            now = later | {"personal_idle_seconds": 0}
            configured(file, memory=now, embedding={"model": "no-such-model"}, **at)
            served.signal(signal.SIGHUP)
            (failed,) = await served.until_logged("config.reload.failed")
            assert "no-such-model" in failed["error"]
            await asyncio.sleep(1)
            assert model.extractions == []


async def test_memories_are_known_before_and_after_a_reload(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    async with ScriptedUpstream(Upstream("old")) as upstream:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": upstream.url})
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            memories = f"{served.base_url}/memory"
            for number, content in enumerate(("Likes tea.", "Plays the cello.", "Lives in Bern.")):
                made = await http.post(memories, json={"user_id": "a", "content": content})
                assert made.status_code == 201
                configured(
                    file, upstream={"base_url": upstream.url}, retrieval={"half_life_days": 10 + number}
                )
                served.signal(signal.SIGHUP)
                await served.until_logged("config.reload.done", number + 1)
            listed = await http.get(memories, params={"user_id": "a"})
            assert listed.json()["total"] == 3


class Brief:
    """An App that does nothing, and notes what it is told."""

    made: ClassVar[list["Brief"]] = []
    embedder = ""

    def __init__(self) -> None:
        self.told, self.is_open = list[bool](), True
        self.care = self
        Brief.made.append(self)

    def take_over(self) -> None:
        self.told.append(Brief.made[0].is_open)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, *_: object, **__: object) -> AsyncIterator["Brief"]:
        app = cls()
        yield app
        app.is_open = False


async def test_who_serves_is_told_when_who_served_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_key(key: str) -> Settings:
        return load(None, {}, {"upstream": {"base_url": "http://127.0.0.1:1/v1", "api_key": key}})

    monkeypatch.setattr(reloadable, "App", Brief)
    monkeypatch.setattr(reloadable, "settings_of_process", lambda: with_key("new"))
    Brief.made.clear()
    serving = reloadable.ReloadableApp(with_key("old"), scripted=lambda stack: asyncio.sleep(0, ""))
    async with asyncio.TaskGroup() as tasks:
        serving._current = await serving._begin(tasks, with_key("old"))
        streaming = serving._current
        streaming.requests = 1
        await serving.reload(tasks)
        await asyncio.sleep(0.01)
        old, new = Brief.made
        assert (old.is_open, new.told) == (True, [])
        streaming.end()  # its last answer has come to its end
        async with asyncio.timeout(30):
            while not new.told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (old.told, new.told) == ([], [False])
        serving._current.end()
    assert new.told == [False]


class Keyed(ScriptedModel):
    """Extracts for the operator's key alone."""

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        extraction = b"(memory_extraction)" in (request.header(b"user-agent") or b"")
        if extraction and request.header(b"authorization") != b"Bearer sk-ours":
            await exchange.json({"error": {"message": "no"}}, 401)
        else:
            await super().__call__(exchange)


async def test_what_waits_for_its_users_key_goes_on_when_the_server_gets_one(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    model = Keyed(facts=known(("oolong", "User likes oolong tea.")))
    async with ScriptedUpstream(model) as upstream:
        settings = {"memory": {"extraction_batch_size": 1}, "upstream": {"base_url": upstream.url}}
        file = configured(tmp_path / "c.yaml", **settings)
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            said = {"messages": [{"role": "user", "content": "I like oolong tea."}]}
            of_alice = {"memory_context": {"user_id": "alice"}}
            told = await http.post(f"{served.base_url}/chat/completions", json=body(**said, **of_alice))
            assert told.headers["x-memory-store"] == "queued"
            await served.until_logged("memory.extraction_waits")
            configured(file, **settings | {"upstream": {"base_url": upstream.url, "api_key": "sk-ours"}})
            served.signal(signal.SIGHUP)
            await served.until_logged("config.reload.done")
            await served.until_logged("memory.extracted", within_s=20)
            listed = await http.get(f"{served.base_url}/memory", params={"user_id": "alice"})
            assert [one["content"] for one in listed.json()["data"]] == ["User likes oolong tea."]


async def test_ready_says_503_before_the_port_is_closed_and_a_stream_comes_to_its_end(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    slow = Upstream("slow")
    async with (
        ScriptedUpstream(slow) as upstream,
        serving_process(
            tmp_path / "data",
            *("--upstream", upstream.url),
            models_dir=models_dir,
            MEMORY_PROXY__SERVER__LEAVE_SECONDS="1.5",
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
            assert statuses.index(503) <= 2  # at once, and so until nobody listens
            assert set(statuses[statuses.index(503) :]) == {503}
            slow.go.set()
            assert "whole" in await stream.rest()
        assert await served.ended() == 0
        assert [line["port_closes_in_s"] for line in served.logged("process.stopping")] == [1.5]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", [1, 2])
async def test_every_process_says_when_it_begins_to_stop_and_when_it_has_stopped(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    async with serving_process(tmp_path / "data", "--workers", str(workers)) as served:
        async with httpx2.AsyncClient(timeout=90) as http:
            await answer_of(http, served.base_url)
        served.signal(number)
        assert await served.ended() == 0
        reasons = [line["reason"] for line in served.logged("process.stopping")]
        assert len(reasons) == workers
        if workers == 1:
            assert reasons == [number.name]
        else:  # one may be told before it has started
            assert set(reasons) <= {"SIGTERM", "shutdown"}
        assert len(served.logged("process.stopped")) == workers


async def _statuses_of_ready(origin: str) -> list[int]:
    """Ask until the port is closed; what was answered."""
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


async def test_a_stream_that_does_not_end_is_cut_after_the_time_that_is_set(
    tmp_path: Path, models_dir: Path, http: httpx2.AsyncClient
) -> None:
    async with ScriptedUpstream(Upstream("slow")) as upstream:
        async with serving_process(
            tmp_path / "data",
            *("--upstream", upstream.url),
            models_dir=models_dir,
            MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS="1",
        ) as served:
            streamed = http.stream(
                "POST",
                f"{served.base_url}/chat/completions",
                json=body(stream=True, memory_context={"user_id": "a"}),
            )
            async with streamed as response:
                stream = Streaming(response.aiter_lines())
                await stream.first()
                assert response.headers["x-memory-store"] == "queued"
                served.signal(signal.SIGTERM)
                with pytest.raises(httpx2.TransportError):
                    await stream.rest()
            assert await served.ended(within_s=8) == 0
            (stopping,), (stopped,) = served.logged("process.stopping"), served.logged("process.stopped")
            assert (stopping["reason"], stopping["requests_under_way"]) == ("SIGTERM", 1)
            assert 1 <= stopped["took_s"] < 8
            assert [cut["requests"] for cut in served.logged("process.answers_cut")] == [1]
        log = (tmp_path / "data.log").read_text()
        assert [line for line in log.splitlines() if not line.startswith("{")] == []
        assert "Traceback" not in log
        async with serving_process(tmp_path / "data", "--upstream", upstream.url) as served:
            # What the user said was acknowledged: it is there, without the answer that never came.
            sessions = await http.get(f"{served.base_url}/memory/sessions", params={"user_id": "a"})
            assert [one["exchanges"] for one in sessions.json()["data"]] == [1]


def test_a_closed_terminal_ends_a_server_that_was_started_from_it(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(COMMAND[0], [*COMMAND, "serve", "--port", "0", "--data-dir", data_dir])
    _until_said(terminal, b"Settings: ")
    os.close(terminal)  # the kernel sends SIGHUP
    _, status = _within(60, lambda: os.waitpid(child, os.WNOHANG))
    assert os.waitstatus_to_exitcode(status) >= 0  # by itself; what it still had to say, nobody could hear


def _until_said(terminal: int, words: bytes) -> None:
    said = b""
    while words not in said:
        said += os.read(terminal, 4096)


def _within(seconds: float, wait: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    import time

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := wait())[0]:
            return found
        time.sleep(0.05)
    raise TimeoutError("the server outlives its terminal")


async def test_a_stop_in_the_middle_of_a_reload_is_a_stop(tmp_path: Path, models_dir: Path) -> None:
    async with ScriptedUpstream(Upstream("old")) as upstream:
        file = configured(tmp_path / "c.yaml", upstream={"base_url": upstream.url})
        async with serving_process(tmp_path / "data", "--config", str(file), models_dir=models_dir) as served:
            configured(file, upstream={"base_url": upstream.url}, memory={"budget_tokens": 100})
            served.signal(signal.SIGHUP)
            await asyncio.sleep(0.05)  # it may have begun, or be done: either way
            served.signal(signal.SIGTERM)
            assert await served.ended() == 0


async def test_nothing_is_written_or_reported_beside_the_data_directory(
    http: httpx2.AsyncClient, tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # onnxruntime keeps the number it reports this machine by in ~/.cache.
    for name in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)  # `import proxy` has set it for these tests
    home = tmp_path / "home"
    home.mkdir()
    async with serving_process(tmp_path / "data", models_dir=models_dir, HOME=str(home)) as server:
        told = {"memory_context": {"user_id": "ann"}, "messages": [{"role": "user", "content": "I like it."}]}
        response = await http.post(f"{server.base_url}/chat/completions", json=body(**told))
        assert response.headers["x-memory-level"] == "full"
    assert not list(home.rglob("*"))


async def test_what_a_process_begins_with_is_not_looked_through_for_garbage(
    tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each such look would stop all answers for a tenth of a second."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "models").symlink_to(models_dir)
    done: list[str] = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test's own process goes on
    for name in ("collect", "freeze"):
        monkeypatch.setattr(reloadable.gc, name, lambda name=name: done.append(name))
    served = reloadable.ReloadableApp(
        load(None, {}, {"storage": {"data_dir": data_dir}}), scripted=nowhere, owns_process=True
    )
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, str]:
        return next(messages)

    async def send(message: dict[str, str]) -> None:
        done.append(message["type"])

    await served({"type": "lifespan"}, receive, send)
    assert done == ["collect", "freeze", "lifespan.startup.complete", "lifespan.shutdown.complete"]


async def nowhere(stack: contextlib.AsyncExitStack) -> str:
    return "http://127.0.0.1:9/v1"
