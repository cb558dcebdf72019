"""Forget against everything at once, over real sockets: afterwards nothing of it is anywhere."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.adversary.conftest import context, jobs, listed, post, until
from tests.adversary.test_forgotten_stays_forgotten import files_with
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, Houses
from tests.support.model import known
from tests.support.ports import reserved
from tests.support.upstream import Exchange, ScriptedUpstream, completion_events

WORD = "quillfeather"
SAID = f"My sister lives in {WORD} and I visit her in May."
FACT = f"User's sister lives in {WORD}."
TRANSLATE: Any = {"upstream_extra": {"responses": "translate"}}


class Gated(ChatOnly):
    """Extracts and answers when the test lets it."""

    def __init__(self, answer: str = f"Enjoy {WORD} in May!") -> None:
        super().__init__(answer, facts=known((WORD, FACT)))
        self.extract, self.reply = asyncio.Event(), asyncio.Event()
        self.extract.set()
        self.reply.set()
        self.extracting = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b""):
            self.extracting.set()
            await self.extract.wait()
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        if exchange.request.json.get("stream") and not self.reply.is_set():
            await exchange.start_stream()
            first, *rest = completion_events(f"{WORD} ", "is lovely.")
            await exchange.chunk(first)
            await self.reply.wait()
            await exchange.chunk(*rest)
            await exchange.end()
            return
        await self.reply.wait()
        await super().converse(exchange)


@contextlib.asynccontextmanager
async def api(h: House) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
        yield http


def telling(h: House, user: str = "alice", **more: Any) -> Awaitable[httpx2.Response]:
    return post(h, {"messages": [{"role": "user", "content": SAID}]} | context(user) | more)


async def quiet(h: House) -> None:
    await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0, within_s=60)


async def nothing_left(h: House, data: Path, word: str = WORD, user: str = "alice") -> None:
    """Fail if any answer about the user, what the model is shown, or any file holds the word."""
    async with api(h) as http:
        for path, params in (
            ("/memory", {"include": "inactive"}),
            ("/memory/export", {}),
            ("/memory/quarantine", {}),
            ("/memory/sessions", {}),
            ("/memory/jobs", {}),
            ("/memory/receipts", {}),
        ):
            answer = await http.get(path, params={"user_id": user, **params})
            assert answer.status_code == 200, (path, answer.text)
            assert word not in answer.text, path
        found = await http.post("/memory/search", json={"user_id": user, "query": f"sister in {word}"})
        assert found.json()["data"] == []
    h.model.answer = "I do not know."  # what it says itself is no trace
    asked = await post(
        h, {"messages": [{"role": "user", "content": "Where does my sister live?"}]} | context(user)
    )
    assert "x-memory-ids" not in asked.headers
    assert word not in json.dumps(h.model.last_messages)
    assert files_with(data, word) == []


Racer = Callable[[House, httpx2.AsyncClient, str], Awaitable[object]]


async def chatting(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await telling(h)


async def streaming(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await telling(h, stream=True)


async def searching(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.post("/memory/search", json={"user_id": "alice", "query": "sister"})


async def patching(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.patch(f"/memory/{id_}", json={"content": f"User's aunt lives in {WORD}."})


async def exporting(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.get("/memory/export", params={"user_id": "alice"})


async def ending(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.post("/memory/sessions/s/end", params={"user_id": "alice"})


async def retrying(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.post("/memory/jobs/retry", params={"user_id": "alice"})


async def responding(h: House, http: httpx2.AsyncClient, id_: str) -> object:
    return await http.post("/responses", json={"model": "m", "input": SAID, **context()})


RACERS: dict[str, Racer] = {
    "chat": chatting,
    "stream": streaming,
    "search": searching,
    "patch": patching,
    "export": exporting,
    "end": ending,
    "retry": retrying,
    "responses": responding,
}


@pytest.mark.parametrize("how", ["id", "user", "project", "type"])
async def test_a_forget_after_a_storm_of_everything_leaves_nothing(
    house: Houses, tmp_path: Path, how: str
) -> None:
    """Everything runs while a first forget does; the second, when all is quiet, has nothing to miss."""
    async with house(Gated(), **TRANSLATE) as h, api(h) as http:
        where = {"project_id": "apollo"} if how == "project" else {}
        made = await http.post("/memory", json={"user_id": "alice", "content": FACT, **where})
        id_ = made.json()["id"]
        await telling(h)
        racing = [asyncio.create_task(r(h, http, id_)) for r in RACERS.values() for _ in range(3)]  # type: ignore[arg-type]
        params = {"user_id": "alice", **where, **({"type": "semantic"} if how == "type" else {})}
        first = http.delete(f"/memory/{id_}") if how == "id" else http.delete("/memory", params=params)
        racing.append(asyncio.create_task(first))
        for answer in await asyncio.gather(*racing):
            assert answer.status_code < 500, answer.text
        await quiet(h)
        assert (await http.delete("/memory", params={"user_id": "alice"})).status_code == 200
        await nothing_left(h, tmp_path / "data")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_who_began_before_the_forget_writes_nothing_after_it(
    house: Houses, tmp_path: Path, stream: bool
) -> None:
    """Chats, responses and a background response are under way; the forget is answered; then they end."""
    model = Gated()
    async with house(model, **TRANSLATE) as h, api(h) as http:
        model.reply.clear()
        body = {"model": "m", "input": SAID, **context()}
        kept = await http.post("/responses", json=body | {"background": True})
        open_ = [
            asyncio.create_task(t) for t in (telling(h, stream=stream), http.post("/responses", json=body))
        ]  # type: ignore[arg-type]
        await until(lambda: _requests(h), lambda n: n >= 3)
        done = await http.delete("/memory", params={"user_id": "alice"})
        assert done.status_code == 200
        model.reply.set()
        await asyncio.gather(*open_)
        gone = await http.get(f"/responses/{kept.json()['id']}", headers={"X-Memory-User-Id": "alice"})
        assert gone.status_code == 404
        await quiet(h)
        await nothing_left(h, tmp_path / "data")


async def _requests(h: House) -> int:
    return len(h.upstream.requests)


async def test_a_chain_cannot_be_continued_after_its_user_was_forgotten(
    house: Houses, tmp_path: Path
) -> None:
    model = Gated()
    async with house(model, **TRANSLATE) as h, api(h) as http:
        first = await http.post("/responses", json={"model": "m", "input": SAID, **context()})
        conversation = await http.post(
            "/conversations", json={"items": [{"role": "user", "content": SAID}], **context()}
        )
        await quiet(h)
        await http.delete("/memory", params={"user_id": "alice"})
        more = {"model": "m", "input": "Where is that?", **context()}
        again = await http.post("/responses", json=more | {"previous_response_id": first.json()["id"]})
        assert (again.status_code, again.json()["error"]["code"]) == (400, "previous_response_not_found")
        if conversation.status_code == 200 and "id" in conversation.json():
            await http.delete(
                f"/conversations/{conversation.json()['id']}", headers={"X-Memory-User-Id": "alice"}
            )
        await nothing_left(h, tmp_path / "data")


async def test_the_other_users_same_words_stay(house: Houses, tmp_path: Path) -> None:
    async with house(Gated()) as h, api(h) as http:
        for user in ("alice", "bob"):
            await telling(h, user)
            await until(lambda user=user: listed(h, user), lambda found: found == [FACT])
        await quiet(h)
        counts = (await http.delete("/memory", params={"user_id": "alice", "dry_run": "true"})).json()
        assert counts["deleted_count"] == 1
        assert await listed(h) == [FACT], "a dry run changes nothing"
        assert (await http.delete("/memory", params={"user_id": "alice"})).json()["deleted_count"] == 1
        assert await listed(h) == []
        assert await listed(h, "bob") == [FACT]
        assert (await http.delete("/memory", params={"user_id": "bob"})).json()["deleted_count"] == 1
        await nothing_left(h, tmp_path / "data")
        await nothing_left(h, tmp_path / "data", user="bob")


async def test_an_import_that_is_under_way_does_not_survive_a_forget(house: Houses, tmp_path: Path) -> None:
    """The file's second half comes after the forget: it belongs to the request that began before."""
    go = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        for number in range(80):
            if number == 60:  # a batch of 50 is stored by then
                await go.wait()
            yield json.dumps({"content": f"{FACT} {number}", "user_id": "alice"}).encode() + b"\n"

    async with house(Gated()) as h, api(h) as http:
        headers = {"content-type": "application/x-ndjson"}
        moving = asyncio.create_task(http.post("/memory/import", content=lines(), headers=headers))
        await until(lambda: listed(h))
        await http.delete("/memory", params={"user_id": "alice"})
        go.set()
        counts = (await moving).json()
        assert (counts["imported"], counts["refused"]) == (50, 30)
        await nothing_left(h, tmp_path / "data")


async def test_a_forget_of_one_memory_takes_what_was_said_and_answered_of_it(
    house: Houses, tmp_path: Path
) -> None:
    model = Gated()
    async with house(model, **TRANSLATE) as h, api(h) as http:
        asked = await http.post("/responses", json={"model": "m", "input": SAID, **context()})
        await until(lambda: listed(h), lambda found: found == [FACT])
        await quiet(h)
        page = await http.get("/memory", params={"user_id": "alice"})
        done = await http.delete(f"/memory/{page.json()['data'][0]['id']}")
        assert done.json()["deleted_exchanges"] >= 1
        again = await http.get(f"/responses/{asked.json()['id']}", headers={"X-Memory-User-Id": "alice"})
        assert again.status_code == 404
        await nothing_left(h, tmp_path / "data")


# ---------------------------------------------------------------- killed
MANY = 300  # memories: a forget takes several portions


def made(data: Path, models: Path) -> Path:
    """A data directory that has the packed weights."""
    data.mkdir()
    (data / "models").symlink_to(models)
    return data


@contextlib.asynccontextmanager
async def process(data: Path, upstream: str, workers: int) -> AsyncIterator[tuple[str, int]]:
    """Run `memory-proxy serve` in a session of its own; give its base URL and process group."""
    with reserved() as keeper:
        port = keeper.getsockname()[1]
        env = os.environ | {
            "MEMORY_PROXY__STORAGE__DATA_DIR": str(data),
            "MEMORY_PROXY__UPSTREAM__BASE_URL": upstream,
            "MEMORY_PROXY__MEMORY__EXTRACTION_BATCH_SIZE": "1",
            "MEMORY_PROXY__SERVER__PORT": str(port),
            "MEMORY_PROXY__SERVER__WORKERS": str(workers),
        }
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from proxy.cli.main import main; main(['serve'])", env=env,
            start_new_session=True, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with httpx2.AsyncClient(timeout=30) as http:
                await until(lambda: _ready(http, f"http://127.0.0.1:{port}/ready"), within_s=60)
            yield f"http://127.0.0.1:{port}/v1", running.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            await running.wait()


async def _ready(http: httpx2.AsyncClient, url: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return (await http.get(url)).status_code == 200
    return False


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_kill_in_the_middle_of_a_forget_is_made_up_for_at_the_next_start(
    tmp_path: Path, models_dir: Path, workers: int
) -> None:
    data = made(tmp_path / "data", models_dir)
    async with ScriptedUpstream(Gated()) as upstream:
        async with (
            process(data, upstream.url, workers) as (url, group),
            httpx2.AsyncClient(base_url=url, timeout=20) as http,
        ):
            lines = [{"content": f"{FACT} {n} {'x' * 300}", "user_id": "alice"} for n in range(MANY)]
            lines.append({"content": FACT, "user_id": "bob"})
            body, kind = "\n".join(map(json.dumps, lines)).encode(), "application/x-ndjson"
            moved = await http.post("/memory/import", content=body, headers={"content-type": kind})
            assert moved.json()["imported"] == MANY + 1, moved.text
            forgetting = asyncio.create_task(http.delete("/memory", params={"user_id": "alice"}))
            await until(lambda: _fewer(http), within_s=60)
            os.killpg(group, signal.SIGKILL)
            with contextlib.suppress(httpx2.TransportError):
                await forgetting
        async with (
            process(data, upstream.url, workers) as (url, _),
            httpx2.AsyncClient(base_url=url, timeout=20) as http,
        ):
            page = await http.get("/memory", params={"user_id": "alice", "include": "inactive"})
            assert page.json()["data"] == []
            bobs = await http.get("/memory", params={"user_id": "bob"})
            assert [m["content"] for m in bobs.json()["data"]] == [FACT]
            await http.delete("/memory", params={"user_id": "bob"})
            await until(lambda: _files(data), lambda found: found == [], within_s=60)


async def _fewer(http: httpx2.AsyncClient) -> bool:
    page = await http.get("/memory", params={"user_id": "alice", "limit": "1"})
    return int(page.json()["total"]) < MANY


async def _files(data: Path) -> list[str]:
    return files_with(data, WORD)
