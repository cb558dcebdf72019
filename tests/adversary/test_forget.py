"""Forget at every wrong moment, then look for the text: in answers, in the API, in every file."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.recall.search import Searcher
from tests.adversary.conftest import Gated, files_with
from tests.e2e.conftest import House, context, until, when

WORD = "quillfeather"
SAID = f"My sister lives in {WORD} and I visit her in May."
FACT = f"User's sister lives in {WORD}."
TRANSLATE: Any = {"upstream_extra": {"responses": "translate"}}
ALICE = {"X-Memory-User-Id": "alice"}


def gated() -> Gated:
    return Gated((WORD, FACT), answer=f"Enjoy {WORD} in May!")


async def nothing_left(h: House, data: Path, user: str = "alice") -> None:
    """Fail if the API, what the model is shown, or any file contains the word."""
    async with h.http() as http:
        for path in ("", "/export", "/quarantine", "/sessions", "/jobs", "/receipts"):
            params = {"user_id": user} | ({"include": "inactive"} if path == "" else {})
            answer = await http.get(f"/memory{path}", params=params)
            assert answer.status_code == 200, (path, answer.text)
            assert WORD not in answer.text, path
        found = await http.post("/memory/search", json={"user_id": user, "query": f"sister in {WORD}"})
        assert found.json()["data"] == []
    h.model.answer = "I do not know."
    asked = await h.tell("Where does my sister live?", user)
    assert "x-memory-ids" not in asked.headers
    assert WORD not in json.dumps(h.model.last_messages)
    assert files_with(data, WORD) == []


@pytest.mark.parametrize("moment", ["extraction", "answer", "search"])
async def test_what_began_before_a_forget_stores_nothing_after_it(house, tmp_path, monkeypatch, moment):
    model, find = gated(), Searcher.find
    searching, may_search = asyncio.Event(), asyncio.Event()

    async def slow(*args, **options):
        searching.set()
        await may_search.wait()
        return await find(*args, **options)

    async with house(model, memory={"deadline_ms": 20_000}) as h:
        if moment == "search":
            monkeypatch.setattr(Searcher, "find", slow)
        gate = {"extraction": model.may_extract, "answer": model.may_answer, "search": may_search}[moment]
        reached = {"extraction": model.extracting, "answer": model.answering, "search": searching}[moment]
        gate.clear()
        telling = asyncio.create_task(h.tell(SAID))
        await reached.wait()
        await until(h.begun)  # the message is committed
        await h.forget()
        gate.set()
        await telling
        model.answer = "Fine."
        await h.tell("Good morning!")  # a later commit
        await h.quiet()
        await nothing_left(h, tmp_path / "data")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_responses_and_retries_under_way_leave_nothing(house, tmp_path, stream):
    model = gated()
    async with house(model, **TRANSLATE) as h, h.http() as http:
        model.may_answer.clear()
        body = {"model": "m", "input": SAID, **context()}
        background = await http.post("/responses", json=body | {"background": True})
        chat = {"stream": stream}
        under_way = [asyncio.create_task(h.tell(SAID, extra=chat)) for _ in range(2)]
        under_way.append(asyncio.create_task(http.post("/responses", json=body)))
        await when(lambda: len(h.upstream.requests) >= 4)
        await h.forget()
        model.may_answer.set()
        await asyncio.gather(*under_way)
        stored = await http.get(f"/responses/{background.json()['id']}", headers=ALICE)
        assert stored.status_code == 404
        await h.quiet()
        await nothing_left(h, tmp_path / "data")


async def test_a_forget_after_a_storm_of_requests_leaves_nothing(house, tmp_path):
    """All kinds of requests run during a first forget; the second one must find everything they left."""
    async with house(gated(), **TRANSLATE) as h, h.http() as http:
        (id_,), alice = await h.add(FACT), {"user_id": "alice"}
        await h.tell(SAID)
        kinds: list[Callable[[], Awaitable[httpx2.Response]]] = [
            lambda: h.tell(SAID),
            lambda: h.tell(SAID, extra={"stream": True}),
            lambda: http.post("/memory/search", json=alice | {"query": "sister"}),
            lambda: http.patch(f"/memory/{id_}", json={"content": f"User's aunt lives in {WORD}."}),
            lambda: http.get("/memory/export", params=alice),
            lambda: http.post("/memory/sessions/s/end", params=alice),
            lambda: http.post("/memory/jobs/retry", params=alice),
            lambda: http.post("/responses", json={"model": "m", "input": SAID, **context()}),
        ]
        racing = [asyncio.ensure_future(kind()) for kind in kinds for _ in range(3)]
        for answer in await asyncio.gather(*racing, http.delete(f"/memory/{id_}")):
            assert answer.status_code < 500, answer.text
        await h.quiet()
        await h.forget()
        await nothing_left(h, tmp_path / "data")


async def test_one_forgotten_memory_takes_every_copy_and_what_was_answered_from_it(house, tmp_path):
    async with house(gated(), **TRANSLATE) as h, h.http() as http:
        asked = await http.post("/responses", json={"model": "m", "input": SAID, **context()})
        await until(h.listed, lambda found: found == [FACT])
        session = context(session_id="later")
        answer = await h.tell("Where does my sister live?", extra=session)
        assert answer.headers["x-memory-status"] == "injected"
        await h.quiet()
        page = await http.get("/memory", params={"user_id": "alice"})
        done = await http.delete(f"/memory/{page.json()['data'][0]['id']}")
        assert done.json()["deleted_exchanges"] >= 1
        assert (await http.get(f"/responses/{asked.json()['id']}", headers=ALICE)).status_code == 404
        h.model.answer = "Fine."
        for text in ("What is the weather like?", "And what should I pack?"):
            await h.tell(text, extra=session)
        await h.quiet()
        await nothing_left(h, tmp_path / "data")


async def test_another_user_who_said_the_same_loses_nothing(house, tmp_path):
    async with house(gated()) as h:
        for user in ("alice", "bob"):
            await h.tell(SAID, user)
            await until(lambda user=user: h.listed(user), lambda found: found == [FACT])
        await h.quiet()
        assert (await h.forget(dry_run="true"))["deleted_count"] == 1
        assert await h.listed() == [FACT], "a dry run changes nothing"
        assert (await h.forget())["deleted_count"] == 1
        assert (await h.listed(), await h.listed("bob")) == ([], [FACT])
        await h.forget("bob")
        for user in ("alice", "bob"):
            await nothing_left(h, tmp_path / "data", user)


@pytest.mark.parametrize("project", ["", "{{PROJECT}}"])
async def test_an_empty_project_header_does_not_widen_a_forget(house, project):
    async with house() as h, h.http() as http:
        headers = {"x-memory-project-id": project}
        answer = await http.delete("/memory?user_id=alice", headers=headers)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Memory-Project-Id")
        assert (await http.get("/memory?user_id=alice", headers=headers)).status_code == 200
