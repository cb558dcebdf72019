"""Knowledge documents of two replicas over one PostgreSQL: what is posted to one is cited by the other,
replaced by either, and forgotten by both; a replica that is killed leaves no document half written."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.fleet.replicas import Replica, replicas
from tests.support.model import ScriptedModel

RUNBOOK = "# Harbour service\n\n## Rolling back\n\nRun `tide undo` from the bastion to roll back.\n"
QUESTION = "How do I roll back a bad deployment of the harbour service?"
WRITERS, EACH = 4, 6


@pytest.fixture
async def http():
    async with httpx2.AsyncClient(timeout=60) as client:
        yield client


async def post(http: httpx2.AsyncClient, replica: Replica, name: str, content: str) -> dict[str, Any]:
    body = {"name": name, "content": content, "user_id": "anna", "format": "markdown"}
    answer = await http.post(f"{replica.origin}/v1/memory/documents", json=body)
    assert answer.status_code in (200, 201, 202), answer.text
    document: dict[str, Any] = answer.json()
    return document


async def listed(http: httpx2.AsyncClient, replica: Replica) -> list[dict[str, Any]]:
    answer = await http.get(f"{replica.origin}/v1/memory/documents", params={"user_id": "anna", "limit": 100})
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def shown(http: httpx2.AsyncClient, replica: Replica, script: ScriptedModel, text: str) -> str:
    """Ask a question; return what the model was given with it."""
    context = {"user_id": "anna"}
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "memory_context": context}
    answer = await http.post(f"{replica.origin}/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return str(script.last_messages)


async def test_what_is_posted_to_one_replica_is_cited_replaced_and_forgotten_by_the_other(
    tmp_path, postgres, scripted, http
):
    script, upstream = scripted
    async with replicas(tmp_path, upstream, postgres.url()) as (one, other):
        document = await post(http, one, "Runbook", RUNBOOK)
        assert "tide undo" in await shown(http, other, script, QUESTION)
        newer = await post(http, other, "Runbook", RUNBOOK.replace("tide undo", "ebb back"))
        assert (newer["id"], newer["version"], newer["change"]) == (document["id"], 2, "updated")
        said = await shown(http, one, script, QUESTION + " Once more, please.")
        assert "ebb back" in said
        assert "tide undo" not in said
        deleted = await http.delete(f"{one.origin}/v1/memory", params={"user_id": "anna"})
        assert deleted.json()["deleted_documents"] == 1
        assert "ebb back" not in await shown(http, other, script, QUESTION)
        assert await listed(http, other) == []


def long_text(number: int) -> str:
    """A text of more passages than are embedded before the answer."""
    return "".join(f"## Part {number} {part}\n\nOn topic {part} of {number}.\n\n" for part in range(80))


async def test_documents_that_come_in_while_a_replica_is_killed_are_whole_or_not_there(
    tmp_path, postgres, scripted, http
):
    texts = {f"D{n}": long_text(n) for n in range(WRITERS * EACH)}
    promised: set[str] = set()
    some, names = asyncio.Event(), iter(texts)

    async def write(replica):
        for name in names:
            try:
                await post(http, replica, name, texts[name])
            except httpx2.TransportError:
                return  # it was killed
            promised.add(name)
            if len(promised) > WRITERS:
                some.set()

    async with replicas(tmp_path, scripted[1], postgres.url()) as (one, other):
        writing = [asyncio.create_task(write(each)) for each in (one, other) * (WRITERS // 2)]
        async with asyncio.timeout(60):
            await some.wait()
        await one.kill()
        await asyncio.gather(*writing)
        found = {each["name"]: each for each in await listed(http, other)}
        assert promised <= found.keys()
        for name, each in found.items():
            whole = await http.get(
                f"{other.origin}/v1/memory/documents/{each['id']}", params={"include": "content"}
            )
            assert whole.json()["content"] == texts[name]
            assert (whole.json()["passages"], whole.json()["version"]) == (80, 1)
