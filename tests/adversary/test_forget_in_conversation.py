"""What a message asks to forget is hidden in its own answer and erased; what is off the record is not stored.

A scripted judge: "forget" and "off the record" are its only words, and a memory is named if it shares the
message's last word.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.app import parts
from proxy.domain.judging import Asks, ProfileScores
from tests.adversary.conftest import begun, context, jobs, listed, post, tell, until
from tests.adversary.test_forgotten_stays_forgotten import files_with
from tests.e2e.conftest import House, Houses
from tests.support.judge import ASKS_NOTHING, ScriptedJudge
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange

HOME, MEAL = "User lives at Elmstreet, the home address.", "User is allergic to peanuts."
FORGET = "Please forget my address"
OFF = "Off the record: I might move to Zanzibar."


def asks(text: str) -> Asks:
    return replace(
        ASKS_NOTHING,
        forget=0.9 * text.startswith("Please forget"),
        off_record=0.9 * text.startswith("Off the record"),
    )


def last_word(message: str, memory: str) -> float:
    return 0.95 if message.split()[-1].strip(".,!") in memory else 0.55


def covered(message: str, memory: str) -> float:
    return 0.9 if last_word(message, memory) > 0.9 else 0.1


class InstalledJudge(ScriptedJudge):
    """A judge as the app closes it. Vectors are the embedding model's."""

    shares_space = False

    def close(self) -> None: ...


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> InstalledJudge:
    made = InstalledJudge(asks=asks, help=last_word, covered=covered)

    async def installed(*_: object) -> InstalledJudge:
        return made

    monkeypatch.setattr(parts, "_judge", installed)
    return made


@pytest.fixture(autouse=True)
def _judged(judge: InstalledJudge) -> None: ...


async def add(h: House, *contents: str, user: str = "alice", **more: str) -> None:
    async with httpx2.AsyncClient(timeout=20) as http:
        for content in contents:
            body = {"user_id": user, "content": content, **more}
            assert (await http.post(f"{h.base_url}/memory", json=body)).status_code == 201


async def receipts(h: House, user: str = "alice") -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(timeout=20) as http:
        answer = await http.get(f"{h.base_url}/memory/receipts", params={"user_id": user})
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def respond(h: House, text: str, **more: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as http:
        body = {"model": "m", "input": text, **context(), **more}
        return await http.post(f"{h.base_url}/responses", json=body)


async def streamed(h: House, text: str) -> httpx2.Response:
    return await tell(h, text, extra={"stream": True})


async def responses_streamed(h: House, text: str) -> httpx2.Response:
    return await respond(h, text, stream=True)


WAYS = [tell, streamed, respond, responses_streamed]


@pytest.mark.parametrize("say", WAYS)
async def test_what_a_message_names_is_hidden_at_once_and_erased(
    house: Houses, tmp_path: Path, say: Callable[[House, str], Any]
) -> None:
    async with house() as h:
        await add(h, HOME, MEAL)
        answer = await say(h, FORGET)
        assert answer.status_code == 200
        shown = str(h.model.chats[-1].json)
        assert "Elmstreet" not in shown
        assert "peanuts" in shown
        assert await listed(h) == [MEAL]  # before anything else happens: the answer said so
        (receipt,) = await receipts(h)
        assert answer.headers["x-memory-forgotten"].startswith("mem_")
        assert "," not in answer.headers["x-memory-forgotten"]
        assert answer.headers["x-memory-store"] == "off"
        assert receipt["by"] == "conversation"
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert await begun(h) == 0
        assert files_with(tmp_path / "data", "Elmstreet") == []


async def test_a_translated_response_of_it_is_not_kept_either(house: Houses, tmp_path: Path) -> None:
    async with house(upstream_extra={"responses": "translate"}) as h:
        await add(h, HOME, MEAL)
        answer = await respond(h, "Please forget Elmstreet, my address")
        assert answer.headers["x-memory-forgotten"].startswith("mem_")
        assert "peanuts" in str(h.model.last_messages)
        assert "User lives" not in str(h.model.last_messages)
        assert await listed(h) == [MEAL]
        assert files_with(tmp_path / "data", "Elmstreet") == []


@pytest.mark.parametrize("say", WAYS)
@pytest.mark.parametrize("extraction", ["llm", "verbatim"])
async def test_of_a_message_off_the_record_nothing_is_stored(
    house: Houses, tmp_path: Path, say: Callable[[House, str], Any], extraction: str
) -> None:
    model = ScriptedModel(answer="Zanzibar is far.", facts=known(("Zanzibar", "User moves to Zanzibar.")))
    async with house(model, memory={"extraction": extraction}) as h:
        await add(h, MEAL)
        answer = await say(h, OFF)
        assert answer.headers["x-memory-store"] == "off"
        assert answer.headers["x-memory-status"] == "injected"
        assert "x-memory-forgotten" not in answer.headers
        assert await begun(h) == 0
        assert await listed(h) == [MEAL]
        assert files_with(tmp_path / "data", "Zanzibar") == []


async def test_a_later_message_brings_nothing_of_it_back(house: Houses, tmp_path: Path) -> None:
    """Its history holds both: only what is new is stored."""
    history = [
        {"role": "user", "content": OFF},
        {"role": "assistant", "content": "Zanzibar is far."},
        {"role": "user", "content": "I like oolong tea."},
    ]
    facts = known(("oolong", "User likes oolong tea."), ("Zanzibar", "User moves to Zanzibar."))
    async with house(ScriptedModel(facts=facts)) as h:
        await tell(h, OFF)
        assert (await post(h, {"messages": history} | context())).headers["x-memory-store"] == "queued"
        assert await until(lambda: listed(h)) == ["User likes oolong tea."]
        assert files_with(tmp_path / "data", "Zanzibar") == []


async def test_the_step_after_a_tool_of_a_message_off_the_record_is_not_stored(house: Houses) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ferry", "arguments": "{}"}}
    steps = [
        {"role": "user", "content": OFF},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "No ferry."},
    ]
    async with house() as h:
        named = context(session_id="s-1")
        await tell(h, "I like oolong tea.", extra=named)
        await tell(h, OFF, extra=named)
        assert (await post(h, {"messages": steps} | named)).headers["x-memory-store"] == "off"
        assert await begun(h) == 1


async def test_a_wish_has_its_effect_once(house: Houses) -> None:
    """A short message is read with the one before it, and a tool's result comes behind the wish: neither asks
    again."""
    call = {"id": "c1", "type": "function", "function": {"name": "ferry", "arguments": "{}"}}
    talk = [{"role": "user", "content": FORGET}, {"role": "assistant", "content": "Done."}]
    called = [talk[0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    async with house() as h:
        await add(h, HOME)
        thanks = await post(h, {"messages": [*talk, {"role": "user", "content": "my address"}]} | context())
        result = {"role": "tool", "tool_call_id": "c1", "content": "No ferry."}
        step = await post(h, {"messages": [*called, result]} | context())
        assert "x-memory-forgotten" not in thanks.headers | step.headers
        assert await listed(h) == [HOME]


async def test_a_wish_at_the_end_of_a_long_message_counts(house: Houses) -> None:
    """Of a long text the judge reads the lines around it, when it is recalled for and when it is stored."""
    pasted = "\n".join(f"Line {n} of a log that was pasted." for n in range(60))
    async with house() as h:
        await add(h, HOME)
        answer = await tell(h, f"```\n{pasted}\n```\n\n{FORGET}")
        assert answer.headers["x-memory-store"] == "off"
        assert await listed(h) == []
        assert await begun(h) == 0


async def test_switched_off_nothing_is_forgotten_and_all_is_stored(house: Houses) -> None:
    async with house(memory={"conversational_forget": False}) as h:
        await add(h, HOME)
        for message in (FORGET, OFF):
            answer = await tell(h, message, extra={"memory_config": {"enabled": True, "auto_store": True}})
            assert answer.headers["x-memory-store"] == "queued"
            assert "x-memory-forgotten" not in answer.headers
        assert HOME in await listed(h)
        assert await receipts(h) == []


async def test_a_memory_of_another_user_or_of_another_project_is_out_of_reach(house: Houses) -> None:
    async with house() as h:
        await add(h, HOME, user="bob")
        await add(h, HOME, project_id="apollo")
        await tell(h, FORGET, extra=context(project_id="gemini"))
        assert await listed(h, "bob") == [HOME]
        assert await listed(h) == [HOME]
        await tell(h, FORGET)
        assert await listed(h, "bob") == [HOME]
        assert await listed(h) == []


async def test_one_message_forgets_five_memories_at_most(house: Houses) -> None:
    async with house() as h:
        await add(h, *(f"User's address number {n} was {n}0 Hill Road." for n in range(8)))
        answer = await tell(h, FORGET)
        assert len(answer.headers["x-memory-forgotten"].split(",")) == 5
        assert len(await listed(h)) == 3


async def test_a_memory_that_only_helps_with_the_message_is_not_forgotten(
    house: Houses, judge: InstalledJudge
) -> None:
    judge.help = lambda message, memory: 0.99
    async with house() as h:
        await add(h, HOME, MEAL)
        await tell(h, FORGET)
        assert await listed(h) == [MEAL]


async def test_a_standing_rule_is_forgotten_like_any_memory(house: Houses, judge: InstalledJudge) -> None:
    judge.standing = lambda vector: ProfileScores(rule=0.9, trait=0.0)
    async with house() as h:
        await add(h, "User prefers short answers.")
        assert "x-memory-forgotten" not in (await tell(h, FORGET)).headers
        assert "x-memory-forgotten" in (await tell(h, "Please forget that I want short answers")).headers


@pytest.mark.parametrize("message", ["I keep forgetting my address", "Please forget about the weather"])
async def test_a_message_that_asks_for_nothing_or_names_nothing_forgets_nothing(
    house: Houses, message: str
) -> None:
    async with house() as h:
        await add(h, HOME, MEAL)
        assert "x-memory-forgotten" not in (await tell(h, message)).headers
        assert sorted(await listed(h)) == [MEAL, HOME]


class Refusing(ScriptedModel):
    """Takes no credential."""

    async def converse(self, exchange: Exchange) -> None:
        await exchange.json({"error": {"message": "Who are you?", "type": "x"}}, status=401)


async def test_a_request_that_the_upstream_refuses_forgets_nothing(house: Houses) -> None:
    async with house(Refusing()) as h:
        await add(h, HOME)
        answer = await tell(h, FORGET)
        assert answer.status_code == 401
        assert "x-memory-forgotten" not in answer.headers
        assert await listed(h) == [HOME]


@pytest.mark.parametrize(("mode", "left"), [("read", [HOME]), ("write", []), ("off", [HOME])])
async def test_a_request_forgets_if_it_may_store(house: Houses, mode: str, left: list[str]) -> None:
    async with house() as h:
        await add(h, HOME)
        await tell(h, FORGET, **{"X-Memory-Mode": mode})
        assert await until(lambda: listed(h), lambda found: found == left) == left
        assert len(await receipts(h)) == (not left)


class Held(ScriptedModel):
    """Begins an answer, or not even that, and ends it when the test lets it."""

    def __init__(self, *, begins: bool) -> None:
        super().__init__()
        self.begins, self.asked, self.go = begins, asyncio.Event(), asyncio.Event()

    async def converse(self, exchange: Exchange) -> None:
        if self.begins:
            await exchange.start_stream()
            await exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\n\n')
        self.asked.set()
        await self.go.wait()
        if self.begins:
            await exchange.end()


async def test_what_the_headers_call_forgotten_survives_a_kill(house: Houses, tmp_path: Path) -> None:
    """The data directory as a kill would leave it, while the answer is under way."""
    model, body = Held(begins=True), {"model": "m", "stream": True, **context()}
    async with house(model) as h, httpx2.AsyncClient(timeout=30) as http:
        await add(h, HOME, MEAL)
        body["messages"] = [{"role": "user", "content": FORGET}]
        async with http.stream("POST", f"{h.base_url}/chat/completions", json=body) as answer:
            assert answer.headers["x-memory-forgotten"].startswith("mem_")
            shutil.copytree(tmp_path / "data", tmp_path / "killed", symlinks=True)
            model.go.set()
            await answer.aread()
    async with house(data_dir=tmp_path / "killed") as again:
        assert await listed(again) == [MEAL]
        assert len(await receipts(again)) == 1


async def test_a_client_that_leaves_before_the_answer_has_asked_all_the_same(house: Houses) -> None:
    model = Held(begins=False)
    async with house(model) as h:
        await add(h, HOME, MEAL)
        asking = asyncio.create_task(tell(h, FORGET))
        await model.asked.wait()
        asking.cancel()
        await until(lambda: listed(h), lambda found: found == [MEAL])
        model.go.set()
