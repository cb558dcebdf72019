"""Requests succeed, in time, whatever happens to memory; and what was acknowledged is not lost."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.app import reloadable
from proxy.http import memory_work
from proxy.learn.worker import HAND_ON_S
from proxy.recall.search import Searcher
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sql.sessions import SqlSessions
from tests.adversary.conftest import TEA, Gated
from tests.e2e.conftest import House, context, until, when
from tests.support.model import ScriptedModel, known
from tests.support.serving import connected

SAID, ASKED = "I like oolong tea.", "Which drink do I enjoy?"


@pytest.mark.parametrize(
    ("part", "method"),
    [(SqlSessions, "sweep"), (SqlJobs, "claim"), (SqlSessions, "begin"), (Searcher, "find")],
)
async def test_an_unexpected_error_of_memory_ends_no_request(house, monkeypatch, part, method):
    broken = asyncio.Event()

    async def breaks(*_, **__):
        broken.set()
        raise ValueError("an unreadable row")

    monkeypatch.setattr(part, method, breaks)
    async with house() as h:
        for text in ("Which tea do I like?", "And which weather?"):
            assert (await h.tell(text)).status_code == 200
        await broken.wait()
        assert (await h.tell("I like rain.")).status_code == 200


async def test_a_store_with_another_models_vectors_turns_memory_off(house, tmp_path, monkeypatch):
    async with house(Gated()) as h:
        await h.tell(SAID)
        await until(h.listed)
    store, away = tmp_path / "data" / "memory.db", tmp_path / "away.db"
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE embeddings SET name = 'another-model', dimension = 768")
    store.rename(away)
    store.symlink_to(tmp_path)  # not a file; then the file replaces it at once, so no retry finds nothing
    monkeypatch.setattr(reloadable, "STORE_RETRY_S", 0.05)
    async with house() as h:
        assert (await h.tell("I like rain.")).status_code == 200
        away.replace(store)
        await asyncio.sleep(0.5)
        answer = await h.tell("I like snow.")
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")


# ---------------------------------------------------------------- time
async def slow_upload(h: House, pause_s: float, user: str = "alice") -> str:
    """Send a question with a pause in the middle of its body; return the answer's head."""
    body = {"model": "m", "messages": [{"role": "user", "content": ASKED}]}
    sent = json.dumps(body | context(user)).encode()
    async with connected(h.origin) as raw:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\ncontent-type: application/json\r\n"
        await raw.send(head + b"content-length: %d\r\n\r\n" % len(sent) + sent[:20])
        await asyncio.sleep(pause_s)
        await raw.send(sent[20:])
        return (await raw.head()).decode().lower()


async def test_the_time_of_uploads_does_not_count_towards_memorys_deadline(house):
    async with house(Gated(), memory={"deadline_ms": 1_000}) as h:
        await h.tell(SAID)
        await until(h.listed)
        heads = await asyncio.gather(slow_upload(h, 1.2), *(slow_upload(h, 1.2, "mallory") for _ in range(3)))
        assert "x-memory-status: injected" in heads[0]
        assert (await h.tell(ASKED)).headers["x-memory-status"] == "injected"


# ---------------------------------------------------------------- the store is away
async def test_answers_that_end_while_the_store_is_away_are_extracted_when_it_is_back(
    house, tmp_path, monkeypatch
):
    monkeypatch.setattr(memory_work, "COMMIT_S", 0.3)
    model, users = Gated(), [f"user-{n}" for n in range(4)]
    model.may_answer.clear()
    store, away = tmp_path / "data" / "memory.db", tmp_path / "away.db"
    async with house(model) as h, h.http() as http:
        telling = [asyncio.create_task(h.tell(SAID, user, extra={"stream": True})) for user in users]
        for user in users:
            await until(lambda user=user: h.begun(user))
        await when(lambda: len(model.chats) == len(users))
        store.rename(away)  # an unmounted disk
        health = (await http.get(f"{h.origin}/health")).json()
        assert (health["status"], health["memory"]["level"], health["jobs"]) == ("degraded", "none", None)
        model.may_answer.set()
        for answer in await asyncio.gather(*telling):
            assert answer.headers["x-memory-store"] == "queued"
        await asyncio.sleep(0.6)
        away.rename(store)
        for user in users:
            await until(lambda user=user: h.listed(user), lambda found: found == [TEA[1]])


def spoil_the_schema(path: Path) -> None:
    """Replace a table's name by bytes that are not text, and its SQL by nonsense."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    held = bytearray(path.read_bytes())
    name, sql = held.find(b"tablememoriesmemories"), held.find(b"CREATE TABLE memories")
    assert min(name, sql) > 0
    held[name + 5 : name + 13] = b"\xf7" * 8
    held[sql : sql + 12] = b"x" * 12
    path.write_bytes(held)


async def test_the_proxy_serves_with_a_corrupt_schema(house, tmp_path):
    async with house(Gated()) as h:
        await h.tell(SAID)
        await until(h.listed)
    spoil_the_schema(tmp_path / "data" / "memory.db")
    async with house() as h, h.http() as http:
        answer = await h.tell(ASKED)
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")
        assert (await http.get("/memory?user_id=alice")).status_code == 503


# ---------------------------------------------------------------- the model fails
@pytest.mark.parametrize(
    ("error", "state", "headers"),
    [
        (401, "waiting_for_credential", {"authorization": "Bearer sk-alice"}),
        (404, "queued", {}),
    ],
)
async def test_a_refused_extraction_is_done_after_the_users_next_request(house, error, state, headers):
    model = Gated()
    model.extraction_error = error
    async with house(model) as h:
        await h.tell(SAID, **headers)
        await until(h.jobs, lambda counts: counts[state] == 1)
        model.extraction_error = 0
        await h.tell("Good morning to you!", **headers)
        # Before another process would take the job over.
        await until(h.listed, lambda found: found == [TEA[1]], within_s=HAND_ON_S / 2)


HAZELNUTS = "User is allergic to hazelnuts."
GARBAGE = {
    "extraction": json.dumps({"facts": [{"type": "semantic", "content": "User owns a zeppelin"}]}),
    "prose": "Sure! Here is a zeppelin for you, as an AI language model I can help.",
    "cut": '{"summary": "The user owns a zeppel',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_from_a_model_is_never_remembered(house, garbage):
    model = ScriptedModel(facts=known(("hazelnut", HAZELNUTS)))
    model.roles = dict.fromkeys(("memory_summary", "memory_state", "memory_rewrite"), garbage)
    setting = {"compress": True, "compress_threshold_tokens": 40, "compress_step_turns": 1}
    async with house(model, memory=setting) as h:
        history = []
        for turn in range(4):
            said = "I'm allergic to hazelnuts." if turn == 1 else f"What is worth seeing on day {turn}?"
            history.append({"role": "user", "content": said})
            await h.tell(history, extra=context(session_id="s-1") | {"memory_config": {"compress": True}})
            history.append({"role": "assistant", "content": model.answer})
        await h.client().post("/memory/sessions/s-1/end?user_id=alice", cast_to=object)
        await until(h.listed)
        await when(lambda: bool(model.asked))
        memories = await h.memories()
        assert [m["content"] for m in memories if m["type"] != "episodic"] == [HAZELNUTS]
        assert "zeppel" not in json.dumps(memories)
        for session in ("s-1", "s-2"):
            await h.tell("Which snacks should I stay away from?", extra=context(session_id=session))
            assert "zeppel" not in h.block
        assert HAZELNUTS in h.block
