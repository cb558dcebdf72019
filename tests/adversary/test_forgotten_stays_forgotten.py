"""Forget at every wrong moment, then look for the text: in answers, in the API, in every file."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.recall.search import Searcher, SearchResult
from tests.adversary.conftest import context, jobs, listed, post, tell, until
from tests.e2e.conftest import House, Houses
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange

WORD = "zanzibar"
SAID = f"My favourite place is {WORD}."
FACT = f"User's favourite place is {WORD}."


async def forget(h: House, **params: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=20) as http:
        return await http.delete(f"{h.base_url}/memory", params={"user_id": "alice", **params})


async def forget_one(h: House) -> None:
    async with httpx2.AsyncClient(timeout=20) as http:
        found = (await http.get(f"{h.base_url}/memory", params={"user_id": "alice"})).json()["data"]
        assert (await http.delete(f"{h.base_url}/memory/{found[0]['id']}")).status_code == 200


def files_with(directory: Path, text: str) -> list[str]:
    """The files under the directory that hold the text."""
    files = [
        f for f in directory.rglob("*") if f.is_file() and not f.is_symlink() and "models" not in f.parts
    ]
    return [f.name for f in files if text.encode() in f.read_bytes()]


class Slow(ScriptedModel):
    """Extraction and answers wait until the test lets them go."""

    def __init__(self, answer: str = "All right.") -> None:
        super().__init__(answer, facts=known((WORD, FACT)))
        self.extracting, self.answering = asyncio.Event(), asyncio.Event()
        self.extract, self.reply = asyncio.Event(), asyncio.Event()
        self.reply.set()

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b""):
            self.extracting.set()
            await self.extract.wait()
        else:
            self.answering.set()
            await self.reply.wait()
        await super().__call__(exchange)


@pytest.mark.parametrize("params", [{}, {"project_id": "apollo"}], ids=["user", "project"])
async def test_forget_while_extraction_runs_leaves_nothing(
    house: Houses, tmp_path: Path, params: dict[str, str]
) -> None:
    model = Slow()
    async with house(model) as h:
        await tell(h, SAID, extra=context("alice", **params))
        await model.extracting.wait()
        assert (await forget(h, **params)).status_code == 200
        model.extract.set()
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []
        assert files_with(tmp_path / "data", WORD) == []


async def test_forget_while_the_answer_is_under_way_leaves_nothing(house: Houses, tmp_path: Path) -> None:
    model = Slow(answer=f"How nice, {WORD}!")
    model.extract.set()
    model.reply.clear()
    async with house(model) as h:
        telling = asyncio.create_task(tell(h, SAID))
        await model.answering.wait()
        assert (await forget(h)).status_code == 200
        model.reply.set()
        await telling
        model.answer = "Fine."
        await tell(h, "Good morning!")  # another exchange, so that there is a later commit
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []
        assert files_with(tmp_path / "data", WORD) == []


async def test_forget_while_memory_is_looked_up_leaves_nothing(
    house: Houses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said before the forget is on disk by then, and goes with the rest: committed after the search,
    it would outlive a forget that was answered meanwhile."""
    looking, found, find = asyncio.Event(), asyncio.Event(), Searcher.find

    async def slow(*args: Any, **options: Any) -> SearchResult:
        looking.set()
        await found.wait()
        return await find(*args, **options)

    async with house(memory={"deadline_ms": 20_000}) as h:
        monkeypatch.setattr(Searcher, "find", slow)
        telling = asyncio.create_task(tell(h, SAID))
        await looking.wait()
        await asyncio.sleep(0.2)  # a commit takes some milliseconds
        assert (await forget(h)).status_code == 200
        found.set()
        await telling
        await tell(h, "Good morning!")  # another exchange, so that there is a later commit
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []
        assert files_with(tmp_path / "data", WORD) == []


async def test_a_memory_forgotten_by_id_does_not_come_back_from_an_answer_that_had_used_it(
    house: Houses,
) -> None:
    model = ScriptedModel(facts=known((WORD, FACT)))
    async with house(model, memory={"extraction_batch_size": 3}) as h:
        await tell(h, f"Please remember that my favourite place is {WORD}.")
        await until(lambda: listed(h), lambda found: len(found) == 1)
        model.answer = f"You would love to go to {WORD}."
        session = {"memory_context": {"user_id": "alice", "session_id": "later"}}
        asked = await tell(h, "Where should I go on holiday?", extra=session)
        assert asked.headers["x-memory-status"] == "injected"
        await forget_one(h)
        model.answer = "Fine."
        for text in ("What is the weather like?", "And what should I pack?"):
            await tell(h, text, extra=session)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        await until(lambda: _seen(model, 2), bool)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []


async def _seen(model: ScriptedModel, count: int) -> bool:
    return len(model.extractions) >= count


async def test_forget_by_id_erases_the_text_from_every_file(house: Houses, tmp_path: Path) -> None:
    model = ScriptedModel(facts=known((f"is {WORD}", FACT)))
    async with house(model) as h:
        await tell(h, SAID)
        await until(lambda: listed(h), lambda found: len(found) == 1)
        model.answer = f"You would love to go to {WORD}."
        await tell(h, "Where should I go on holiday?")
        await until(lambda: _seen(model, 2), bool)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        await forget_one(h)
        assert files_with(tmp_path / "data", WORD) == []


async def test_forget_by_id_erases_the_exchange_it_came_from(house: Houses, tmp_path: Path) -> None:
    model = ScriptedModel(facts=known((WORD, FACT)))
    async with house(model) as h:
        await tell(h, SAID)
        await until(lambda: listed(h), lambda found: len(found) == 1)
        await forget_one(h)
        assert files_with(tmp_path / "data", WORD) == []


@pytest.mark.parametrize("running", [False, True], ids=["before extraction", "while extraction runs"])
async def test_what_was_said_before_a_forget_by_type_is_not_stored_after_it(
    house: Houses, running: bool
) -> None:
    model = Slow()
    async with house(model, memory={"extraction_batch_size": 1 if running else 2}) as h:
        session = {"memory_context": {"user_id": "alice", "session_id": "s"}}
        await tell(h, SAID, extra=session)
        if running:
            await model.extracting.wait()
        assert (await forget(h, type="semantic")).status_code == 200
        model.extract.set()
        for text in ("What is the weather like?", "And tomorrow?"):
            await tell(h, text, extra=session)
        await until(lambda: _seen(model, 1), bool)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []


async def test_a_retry_that_began_before_the_forget_leaves_nothing(house: Houses, tmp_path: Path) -> None:
    model = Slow()
    model.extract.set()
    model.reply.clear()
    async with house(model) as h:
        first, second = (asyncio.create_task(tell(h, SAID)) for _ in range(2))
        await until(lambda: _asked(model, h, 2), bool)
        assert (await forget(h)).status_code == 200
        model.reply.set()
        await asyncio.gather(first, second)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await listed(h) == []
        assert files_with(tmp_path / "data", WORD) == []


async def _asked(model: ScriptedModel, h: House, count: int) -> bool:
    return len(h.upstream.requests) >= count


async def test_many_rows_that_grew_and_moved_leave_no_trace(house: Houses, tmp_path: Path) -> None:
    """secure_delete has to hold for pages that were split and rows that moved, too."""
    model = ScriptedModel(facts=lambda said: [])
    async with house(model) as h:
        for number in range(30):
            model.answer = f"Noted {WORD} {number} " + "x" * (37 * number % 1900)
            user = "alice" if number % 3 else "bob"
            text = f"Number {number}: {SAID} " + "y" * (53 * number % 1700)
            await post(h, {"messages": [{"role": "user", "content": text}]} | context(user))
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0, within_s=60)
        async with httpx2.AsyncClient(timeout=20) as http:
            for user in ("alice", "bob"):
                done = await http.delete(f"{h.base_url}/memory", params={"user_id": user})
                assert done.json()["deleted_exchanges"] > 0
        assert files_with(tmp_path / "data", WORD) == []
