"""A message that asks to forget hides and deletes what it names; "off the record" stores nothing.

The judge is scripted: it recognises "Please forget" and "Off the record", and a memory is named if it
contains the message's last word.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.app import services
from proxy.domain.ports import Asks, ProfileScores
from tests.adversary.conftest import Gated, files_with
from tests.e2e.conftest import House, Json, context, until
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


@pytest.fixture
def judge(monkeypatch):
    made = ScriptedJudge(asks=asks, help=last_word, covered=covered)
    monkeypatch.setattr(services, "load_judge", lambda *_: SimpleNamespace(judge=made, note=""))
    return made


@pytest.fixture(autouse=True)
def _judged(judge): ...


async def receipts(h: House) -> list[Json]:
    found: list[Json] = (await h.get("/memory/receipts", user_id="alice"))["data"]
    return found


async def respond(h: House, text: str, *, stream: bool = False) -> Any:
    return await h.post("/responses", {"model": "m", "input": text, "stream": stream} | context())


Say = Callable[[House, str], Any]
WAYS: list[Say] = [
    lambda h, text: h.tell(text),
    lambda h, text: h.tell(text, extra={"stream": True}),
    respond,
    lambda h, text: respond(h, text, stream=True),
]


@pytest.mark.parametrize(("say", "responses"), [*((way, "auto") for way in WAYS), (respond, "translate")])
async def test_what_a_message_names_is_hidden_at_once_and_deleted(house, tmp_path, say, responses):
    async with house(upstream_extra={"responses": responses}) as h:
        await h.add(HOME, MEAL)
        answer = await say(h, FORGET)
        assert answer.status_code == 200
        shown = str(h.model.chats[-1].json)
        assert ("Elmstreet" in shown, "peanuts" in shown) == (False, True)
        assert await h.listed() == [MEAL]  # at once: the answer reported it
        (receipt,) = await receipts(h)
        ids, store = answer.headers["x-memory-forgotten"], answer.headers["x-memory-store"]
        assert (ids[:4], "," in ids, store, receipt["by"]) == ("mem_", False, "off", "conversation")
        await h.quiet()
        assert await h.begun() == 0
        assert files_with(tmp_path / "data", "Elmstreet") == []


@pytest.mark.parametrize(("say", "extraction"), [*((way, "llm") for way in WAYS), (WAYS[0], "verbatim")])
async def test_nothing_of_a_message_off_the_record_is_stored(house, tmp_path, say, extraction):
    model = ScriptedModel(answer="Zanzibar is far.", facts=known(("Zanzibar", "User moves to Zanzibar.")))
    async with house(model, memory={"extraction": extraction}) as h:
        await h.add(MEAL)
        answer = await say(h, OFF)
        assert answer.headers["x-memory-store"] == "off"
        assert answer.headers["x-memory-status"] == "injected"
        assert "x-memory-forgotten" not in answer.headers
        assert (await h.begun(), await h.listed()) == (0, [MEAL])
        assert files_with(tmp_path / "data", "Zanzibar") == []


async def test_later_messages_and_tool_steps_store_nothing_of_it(house, tmp_path):
    """Their history contains it: only what is new is stored."""
    call = {"id": "c1", "type": "function", "function": {"name": "ferry", "arguments": "{}"}}
    off = {"role": "user", "content": OFF}
    steps: list[Json] = [
        off,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "No ferry."},
    ]
    later: list[Json] = [
        off,
        {"role": "assistant", "content": "Zanzibar is far."},
        {"role": "user", "content": "I like oolong tea."},
    ]
    facts = known(("oolong", "User likes oolong tea."), ("Zanzibar", "User moves to Zanzibar."))
    async with house(ScriptedModel(facts=facts)) as h:
        await h.tell(OFF)
        for messages, store in ((steps, "off"), (later, "queued")):
            answer = await h.tell(messages, extra=context(session_id="s-1"))
            assert answer.headers["x-memory-store"] == store
        assert await until(h.listed) == ["User likes oolong tea."]
        assert files_with(tmp_path / "data", "Zanzibar") == []


async def test_a_wish_takes_effect_once(house):
    """Neither a short message after the wish nor a tool result asks again."""
    call = {"id": "c1", "type": "function", "function": {"name": "ferry", "arguments": "{}"}}
    talk = [{"role": "user", "content": FORGET}, {"role": "assistant", "content": "Done."}]
    called = [talk[0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    async with house() as h:
        await h.add(HOME)
        thanks = await h.complete(
            {"messages": [*talk, {"role": "user", "content": "my address"}]} | context()
        )
        result = {"role": "tool", "tool_call_id": "c1", "content": "No ferry."}
        step = await h.tell([*called, result])
        assert "x-memory-forgotten" not in thanks.headers | step.headers
        assert await h.listed() == [HOME]


async def test_the_setting_disables_both(house):
    async with house(memory={"conversational_forget": False}) as h:
        await h.add(HOME)
        for message in (FORGET, OFF):
            answer = await h.tell(message, extra={"memory_config": {"enabled": True, "auto_store": True}})
            assert answer.headers["x-memory-store"] == "queued"
            assert "x-memory-forgotten" not in answer.headers
        assert HOME in await h.listed()
        assert await receipts(h) == []


async def test_only_memories_visible_to_the_request_are_forgotten(house):
    async with house() as h:
        await h.add(HOME, user="bob")
        await h.add(HOME, project_id="apollo")
        await h.tell(FORGET, extra=context(project_id="gemini"))
        assert (await h.listed(), await h.listed("bob")) == ([HOME], [HOME])
        await h.tell(FORGET)
        assert (await h.listed(), await h.listed("bob")) == ([], [HOME])


async def test_only_what_the_message_names_is_forgotten(house, judge):
    """Not what only helps with it, and nothing without a wish. Standing rules are memories like any other."""
    judge.help = lambda message, memory: 0.99
    judge.standing = lambda vector: ProfileScores(rule=0.9, trait=0.0)
    async with house() as h:
        await h.add(HOME, MEAL, "User prefers short answers.")
        for message in ("I keep forgetting my address", "Please forget about the weather"):
            assert "x-memory-forgotten" not in (await h.tell(message)).headers
        await h.tell(FORGET)
        assert sorted(await h.listed()) == [MEAL, "User prefers short answers."]
        assert "x-memory-forgotten" in (await h.tell("Please forget that I want short answers")).headers


class Refusing(ScriptedModel):
    async def converse(self, exchange: Exchange) -> None:
        await exchange.json({"error": {"message": "Who are you?", "type": "x"}}, status=401)


async def test_a_request_that_the_upstream_refuses_forgets_nothing(house):
    async with house(Refusing()) as h:
        await h.add(HOME)
        answer = await h.tell(FORGET)
        assert (answer.status_code, "x-memory-forgotten" in answer.headers) == (401, False)
        assert await h.listed() == [HOME]


@pytest.mark.parametrize(("mode", "left"), [("read", [HOME]), ("write", []), ("off", [HOME])])
async def test_a_request_forgets_only_if_it_may_store(house, mode, left):
    async with house() as h:
        await h.add(HOME)
        await h.tell(FORGET, **{"X-Memory-Mode": mode})
        assert await until(h.listed, lambda found: found == left) == left
        assert len(await receipts(h)) == (not left)


async def test_what_the_headers_report_as_forgotten_survives_a_kill(house, tmp_path):
    """The data directory is copied as a kill would leave it, during the answer."""
    model = Gated()
    model.may_answer.clear()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": FORGET}], **context()}
    async with house(model) as h, h.http() as http:
        await h.add(HOME, MEAL)
        async with http.stream("POST", "/chat/completions", json=body) as answer:
            assert answer.headers["x-memory-forgotten"].startswith("mem_")
            shutil.copytree(tmp_path / "data", tmp_path / "killed", symlinks=True)
            model.may_answer.set()
            await answer.aread()
    async with house(data_dir=tmp_path / "killed") as again:
        assert await again.listed() == [MEAL]
        assert len(await receipts(again)) == 1


async def test_a_client_that_leaves_before_the_answer_still_forgets(house):
    model = Gated()
    model.may_answer.clear()
    async with house(model) as h:
        await h.add(HOME, MEAL)
        asking = asyncio.create_task(h.tell(FORGET))
        await model.answering.wait()
        asking.cancel()
        await until(h.listed, lambda found: found == [MEAL])
        model.may_answer.set()
