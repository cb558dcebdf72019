"""`X-Memory-Store: queued` is a promise. These are the ways to have it broken without a kill."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.http import exchange
from proxy.learn.worker import HAND_ON_S
from tests.adversary.conftest import begun, jobs, listed, tell, until
from tests.e2e.conftest import Houses
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange

TEA = ("oolong", "User likes oolong tea.")


class Held(ScriptedModel):
    """Answers a conversation when the test lets it."""

    def __init__(self) -> None:
        super().__init__(facts=known(TEA))
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def converse(self, exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\n\n')
        self.asked.set()
        await self.go.wait()
        await exchange.end()


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process writes to the file for as long as the block runs."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def test_an_answer_that_could_not_be_committed_in_time_is_extracted_once_the_store_is_back(
    house: Houses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "COMMIT_S", 0.3)
    model = Held()
    async with house(model) as h:
        telling = asyncio.create_task(tell(h, "I like oolong tea.", extra={"stream": True}))
        await model.asked.wait()
        await until(lambda: begun(h))
        away = tmp_path / "away.db"
        (tmp_path / "data" / "memory.db").rename(away)  # an unmounted disk
        model.go.set()
        answer = await telling
        assert answer.headers["x-memory-store"] == "queued"
        await asyncio.sleep(0.6)
        away.rename(tmp_path / "data" / "memory.db")
        await until(lambda: listed(h), lambda found: found == [TEA[1]])


class Keyed(ScriptedModel):
    """Wants no key for a conversation, and one for an extraction; it can be told to take none."""

    def __init__(self, key: bytes | None) -> None:
        super().__init__(facts=known(TEA))
        self.key = key
        self.refused = 0

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        extraction = b"(memory_extraction)" in (request.header(b"user-agent") or b"")
        if extraction and self.key is not None and request.header(b"authorization") != self.key:
            self.refused += 1
            await exchange.json({"error": {"message": "no"}}, 401)
        else:
            await super().__call__(exchange)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-alice"}], ids=["keyless", "same key"])
async def test_extraction_refused_for_a_while_is_done_after_the_users_next_request(
    house: Houses, headers: dict[str, str]
) -> None:
    model = Keyed(b"Bearer other")  # a 401 for everybody, as a gateway in trouble gives
    async with house(model) as h:
        await tell(h, "I like oolong tea.", **headers)
        await until(lambda: jobs(h), lambda counts: counts["waiting_for_credential"] == 1)
        model.key = None
        await tell(h, "Good morning to you!", **headers)
        # Before the job would have been handed on to another process.
        await until(lambda: listed(h), lambda found: found == [TEA[1]], within_s=HAND_ON_S / 2)


async def test_a_statement_made_again_after_a_change_is_the_current_one(house: Houses) -> None:
    model = ScriptedModel(
        facts=lambda said: [
            {"type": "semantic", "content": f"User lives in {city}.", "confidence": 0.9}
            for city in ("Berlin", "Paris")
            if f"live in {city}" in said.split("<exchange")[-1]
        ]
    )
    async with house(model) as h:
        for city in ("Berlin", "Paris", "Berlin"):
            answer = await tell(
                h, f"I live in {city}.", extra={"memory_context": {"user_id": "alice", "session_id": "s"}}
            )
            assert answer.headers["x-memory-store"] == "queued"
            await until(lambda: listed(h), lambda found, city=city: found == [f"User lives in {city}."])


class Flaky(ScriptedModel):
    """Its extractions answer what the test says."""

    def __init__(self, status: int) -> None:
        super().__init__(facts=known(TEA))
        self.status = status

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b"") and self.status != 200:
            await exchange.json({"error": {"message": "model is loading"}}, self.status)
        else:
            await super().__call__(exchange)


async def test_an_extraction_model_that_was_missing_for_a_while_gets_the_batch_later(house: Houses) -> None:
    model = Flaky(404)
    async with house(model) as h:
        await tell(h, "I like oolong tea.")
        await until(lambda: jobs(h), lambda counts: counts["dead"] + counts["queued"] > 0)
        model.status = 200
        await tell(h, "Good morning to you!")
        await until(lambda: listed(h), lambda found: found == [TEA[1]])
