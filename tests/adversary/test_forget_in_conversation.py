"""What a message asks to forget is hidden in its own answer and erased; what is off the record is not stored.

A scripted judge: "forget" and "off the record" are its only words, and a memory is named if it shares the
message's last word.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.app import parts
from proxy.judging import Asks
from tests.adversary.conftest import begun, context, jobs, listed, tell, until
from tests.adversary.test_forgotten_stays_forgotten import files_with
from tests.e2e.conftest import House, Houses
from tests.support.judge import ASKS_NOTHING, ScriptedJudge

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


class InstalledJudge(ScriptedJudge):
    """A judge as the app closes it. Vectors are the embedding model's."""

    shares_space = False

    def close(self) -> None: ...


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> InstalledJudge:
    made = InstalledJudge(asks=asks, help=last_word)

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
