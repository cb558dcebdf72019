"""The client's request succeeds, in time, whatever becomes of memory."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.app import maintenance
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sql.sessions import SqlSessions
from proxy.storage.sqlite import file
from tests.adversary.conftest import begun, context, listed, tell, until
from tests.e2e.conftest import House, Houses
from tests.support.model import ScriptedModel, known
from tests.support.serving import connected
from tests.support.upstream import Exchange

TEA = ("oolong", "User likes oolong tea.")


@pytest.mark.parametrize(("part", "method"), [(SqlSessions, "sweep"), (SqlJobs, "claim")])
async def test_an_unforeseen_error_in_the_background_ends_no_request(
    house: Houses, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    broken = asyncio.Event()

    async def breaks(*_: Any, **__: Any) -> None:
        broken.set()
        raise ValueError("a row that nobody can read")

    monkeypatch.setattr(part, method, breaks)
    async with house(ScriptedModel()) as h:
        await broken.wait()
        for text in ("I like tea.", "And I like rain."):
            assert (await tell(h, text)).status_code == 200


async def test_a_store_of_another_model_that_comes_back_leaves_memory_off_and_requests_alone(
    house: Houses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(ScriptedModel(facts=known(TEA))) as h:
        await tell(h, "I like oolong tea.")
        await until(lambda: listed(h))
    stored = tmp_path / "data" / "memory.db"
    with closing(sqlite3.connect(stored)) as db, db:
        db.execute("UPDATE embeddings SET name = 'another-model', dimension = 768")
    stored.rename(tmp_path / "away.db")
    stored.symlink_to(tmp_path)  # not a file; and the file takes its place at once, so no retry finds nothing
    monkeypatch.setattr(maintenance, "STORE_RETRY_S", 0.05)
    async with house(ScriptedModel()) as h:
        assert (await tell(h, "I like rain.")).status_code == 200
        (tmp_path / "away.db").replace(stored)
        await asyncio.sleep(0.5)
        answer = await tell(h, "I like snow.")
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")


async def slow_upload(h: House, pause_s: float, user: str = "alice") -> str:
    """Send a question with a pause in the middle of its body; return the answer's head."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Which drink do I enjoy?"}]}
    sent = json.dumps(body | context(user)).encode()
    async with connected(h.origin) as client:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"
        await client.send(head + b"content-length: %d\r\n\r\n" % len(sent) + sent[:20])
        await asyncio.sleep(pause_s)
        await client.send(sent[20:])
        return (await client.head()).decode().lower()


async def test_the_time_that_an_upload_takes_is_not_memorys(house: Houses) -> None:
    async with house(ScriptedModel(facts=known(TEA)), memory={"deadline_ms": 2_000}) as h:
        await tell(h, "I like oolong tea.")
        await until(lambda: listed(h))
        assert "x-memory-status: injected" in await slow_upload(h, 2.2)


async def test_slow_uploads_of_one_user_take_nobody_elses_memory(house: Houses) -> None:
    async with house(ScriptedModel(facts=known(TEA)), memory={"deadline_ms": 2_000}) as h:
        await tell(h, "I like oolong tea.")
        await until(lambda: listed(h))
        await asyncio.gather(*(slow_upload(h, 2.2, "mallory") for _ in range(3)))
        answer = await tell(h, "Which drink do I enjoy?")
        assert answer.headers["x-memory-status"] == "injected"


class Ticker:
    """Notices when the event loop stands still because of our own work, not of other programs'."""

    async def __aenter__(self) -> "Ticker":
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before, worked = loop.time(), time.process_time()
            await asyncio.sleep(0.01)
            stood_still = min(loop.time() - before, time.process_time() - worked)
            self.longest_s = max(self.longest_s, stood_still)


# .4 s a MB for each step; in a thread, too, each regular expression keeps the GIL to its end. The extraction
# reads 6,000 characters of it: cut (at white space) before redacting, in ExchangeRecorder.
async def test_a_long_paste_holds_up_nobody(house: Houses) -> None:
    paste = "I like oolong tea. " + " ".join(f"word{n} lorem ipsum" for n in range(400_000))
    model = ScriptedModel(facts=known(TEA))
    async with house(model) as h:
        await tell(h, "I like rain.")
        async with Ticker() as ticker:
            assert (await tell(h, paste)).status_code == 200
            await until(lambda: _count(model), lambda n: n >= 2, within_s=30)
            await asyncio.sleep(0.3)
        assert ticker.longest_s < 1.0  # 0.1 s; seconds where all of it is read


async def _count(model: ScriptedModel) -> int:
    return len(model.extractions)


async def test_health_says_that_the_store_is_away_also_while_nobody_asks_it(
    house: Houses, tmp_path: Path
) -> None:
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        (tmp_path / "data" / "memory.db").rename(tmp_path / "away.db")
        health = (await http.get(f"{h.origin}/health")).json()
        assert health["jobs"] is None
        assert (health["status"], health["memory"]["level"]) == ("degraded", "none")


class OneByOne(ScriptedModel):
    """Answers the conversations begun so far, one at a time."""

    def __init__(self) -> None:
        super().__init__(facts=known(TEA))
        self.turns: list[asyncio.Event] = []

    async def converse(self, exchange: Exchange) -> None:
        turn = asyncio.Event()
        self.turns.append(turn)
        await exchange.start_stream()
        await exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\n\n')
        await turn.wait()
        await exchange.end()


async def test_answers_that_end_while_the_store_rests_are_extracted_once_it_is_back(
    house: Houses, tmp_path: Path
) -> None:
    model, users = OneByOne(), [f"user-{n}" for n in range(5)]
    async with house(model) as h:
        telling = [
            asyncio.create_task(tell(h, "I like oolong tea.", user, extra={"stream": True})) for user in users
        ]
        await until(lambda: _turns(model), lambda n: n == len(users))
        for user in users:
            await until(lambda user=user: begun(h, user))
        (tmp_path / "data" / "memory.db").rename(tmp_path / "away.db")
        for turn, told in zip(model.turns, telling, strict=True):
            turn.set()
            done, _ = await asyncio.wait(telling, return_when=asyncio.FIRST_COMPLETED)
            telling = [t for t in telling if t not in done] or telling
            await asyncio.sleep(0.05)
            del told
        (tmp_path / "away.db").rename(tmp_path / "data" / "memory.db")
        for user in users:
            await until(lambda user=user: listed(h, user))


async def _turns(model: OneByOne) -> int:
    return len(model.turns)


# commit after it.
async def test_a_forget_does_not_wait_for_a_reader_in_another_process(
    house: Houses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BUSY_TIMEOUT_MS", 60_000)
    async with house(ScriptedModel(facts=known(TEA))) as h, httpx2.AsyncClient(timeout=30) as http:
        await tell(h, "I like oolong tea.")
        await until(lambda: listed(h))
        with closing(sqlite3.connect(tmp_path / "data" / "memory.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM memories").fetchone()
            async with asyncio.timeout(20):
                forgotten = await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})
                assert forgotten.json()["deleted_count"] == 1
                answer = await tell(h, "I like rain.", "bob")
                assert answer.headers["x-memory-store"] == "queued"
