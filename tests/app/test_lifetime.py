"""How one process starts and ends."""

import asyncio
import json
from pathlib import Path

import httpx2

from proxy.app import reloadable
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.sessions import SqlSessions
from tests.e2e.conftest import House, until
from tests.e2e.test_session_memory import SUMMARY, ask, talk
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange

BUDGET = "User's budget for the Hawaii trip is $10,000"
UNHURRIED = {"extraction_batch_size": 20}  # nothing is extracted before the end


class Planner(ScriptedModel):
    """A model that knows how to sum up, unless it is silent."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__(facts=known(("$10,000", BUDGET)))
        self.roles["memory_summary"] = json.dumps(SUMMARY)
        self._silent = silent

    async def __call__(self, exchange: Exchange) -> None:
        agent = (exchange.request.header(b"user-agent") or b"").decode()
        if self._silent and "(memory_summary)" in agent:
            await asyncio.Event().wait()
        await super().__call__(exchange)


async def kinds(h: House) -> list[str]:
    return sorted(memory["type"] for memory in await h.memories())


async def test_the_end_extracts_what_was_said_and_then_sums_it_up(house):
    model = Planner()
    async with house(model, memory=UNHURRIED) as h:
        await talk(h)
        assert await kinds(h) == []
    assert (len(model.extractions), [role for role, _ in model.asked]) == (1, ["memory_summary"])
    async with house(Planner(silent=True), memory=UNHURRIED) as h:
        assert await kinds(h) == ["episodic", "semantic"]


async def test_an_answer_that_the_store_could_not_take_is_committed_and_read_at_the_end(house, monkeypatch):
    complete, tried = SqlSessions.complete, list[str]()

    async def once_away(sessions, begun, outcome, trigger):
        tried.append(outcome.answer)
        if len(tried) == 1:
            raise StoreUnavailable("down")
        return await complete(sessions, begun, outcome, trigger)

    monkeypatch.setattr(reloadable, "STORE_RETRY_S", 3_600.0)  # the end comes first
    monkeypatch.setattr(SqlSessions, "complete", once_away)
    model = ScriptedModel(answer="Aloha!", facts=known(("$10,000", BUDGET)))
    async with house(model, memory=UNHURRIED | {"session_summaries": False}) as h:
        await ask(h, "My budget for the Hawaii trip is $10,000.")
    assert tried == ["Aloha!", "Aloha!"]
    (read,) = model.extractions
    assert "Aloha!" in str(read.json["messages"][-1]["content"])


async def test_the_docs_name_every_file_in_the_data_directory(house, tmp_path):
    docs = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    async with house() as h:
        await ask(h, "Please remember that I like figs.")
        there = {f"{path.name}/" if path.is_dir() else path.name for path in (tmp_path / "data").iterdir()}
    assert there >= {"memory.db", "memory.opening", "run/"}
    assert not [name for name in there if f"`{name}`" not in docs]


async def test_a_start_without_its_store_is_not_ready_and_says_why_without_a_path(house, tmp_path):
    blocked = tmp_path / "data" / "memory.db"
    blocked.mkdir(parents=True)
    async with house() as h, httpx2.AsyncClient(base_url=h.origin) as http:
        ready, health = await http.get("/ready"), await http.get("/health")
        assert (ready.status_code, ready.json()["status"]) == (503, "not_ready")
        assert health.json()["memory"]["cause"] == ready.json()["cause"] == "… is not a regular file"
        await ask(h, "I live in Turin.")  # a request succeeds without memory
        blocked.rmdir()
        await until(lambda: http.get("/ready"), lambda answer: answer.status_code == 200)
        assert "cause" not in (await http.get("/health")).json()["memory"]
