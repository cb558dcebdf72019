"""Documents through the whole proxy: posted once, cited in a chat, deleted when forgotten."""

from typing import Any

import httpx2

from tests.e2e.conftest import House, until
from tests.e2e.test_core_loop import has, say, stored
from tests.support.model import ScriptedModel, known

RUNBOOK = """\
# Harbour service

It shows pilots the buoys.

## Deploying

### Rolling back

Run `tide undo` from the bastion; traffic is back on the last good image within ninety seconds.

### Windows

Nothing is shipped between Friday noon and Monday morning.
"""
QUESTION = "How do I roll back a bad deployment of the harbour service?"
ABOUT = ("cello", "User plays the cello.")


async def post(h: House, user: str, **more: Any) -> dict[str, Any]:
    body = {"name": "Runbook", "content": RUNBOOK, "user_id": user, **more}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{h.base_url}/memory/documents", json=body)
    assert answer.status_code in (201, 202), answer.text
    document: dict[str, Any] = answer.json()
    return document


async def ask(h: House, user: str, text: str, **context: str) -> httpx2.Headers:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "memory_context": {"user_id": user, **context},
    }
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{h.base_url}/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers


def shown(h: House) -> str:
    return "\n".join(str(message["content"]) for message in h.model.last_messages)


async def test_a_passage_is_cited_in_the_chat_and_named_in_the_headers(house):
    async with house() as h:
        document = await post(h, "alice")
        headers = await ask(h, "alice", QUESTION)
        assert "tide undo" in shown(h)
        assert f'[doc "Runbook" › Harbour service › Deploying › Rolling back #{document["id"][-4:]}'[
            :-4
        ] in shown(h)
        assert headers["x-memory-ids"] == document["id"]
        assert headers["x-memory-count"] == "1", "a document counts once, as OpenAPI and the metric say"
        assert headers["x-memory-status"] == "injected"
        await ask(h, "bob", QUESTION)
        assert "tide undo" not in shown(h)


async def test_memories_are_recalled_with_documents_present_and_the_other_way_round(house):
    async with house(ScriptedModel(facts=known(ABOUT))) as h:
        await post(h, "alice")
        await say(h, "alice", "I play the cello on Thursdays.", stream=False)
        await until(lambda: stored(h, "alice"), has(1))
        await ask(h, "alice", "What instrument do I perform on?")
        assert "cello" in shown(h)
        assert "[doc" not in shown(h)
        await ask(h, "alice", QUESTION)
        assert "tide undo" in shown(h)


async def test_what_the_assistant_reads_out_of_a_document_does_not_become_a_memory(house):
    """The model that extracts would store it wherever it sees it."""
    model = ScriptedModel(
        answer="Run tide undo from the bastion.",
        facts=known(("tide undo", "Rolling back is done with tide undo."), ABOUT),
    )
    async with house(model) as h:
        await post(h, "alice")
        await ask(h, "alice", QUESTION + " By the way, I play the cello.")
        assert "tide undo" in shown(h)
        memories = await until(lambda: stored(h, "alice"), has(1))
        assert [m["content"] for m in memories] == ["User plays the cello."]


async def test_a_forgotten_user_s_documents_are_never_shown_again(house):
    async with house() as h:
        await post(h, "alice")
        async with httpx2.AsyncClient() as http:
            deleted = await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})
        assert deleted.json()["deleted_documents"] == 1
        await ask(h, "alice", QUESTION)
        assert "tide undo" not in shown(h)


async def test_a_long_document_is_embedded_by_the_upkeep(house):
    long = RUNBOOK + "".join(f"## Part {n}\n\nOn topic number {n}.\n\n" for n in range(64))
    async with house() as h:
        document = await post(h, "alice", content=long)
        assert document["status"] == "indexing"

        async def status():
            async with httpx2.AsyncClient() as http:
                answer = await http.get(f"{h.base_url}/memory/documents/{document['id']}")
            return str(answer.json()["status"])

        await until(status, lambda value: value == "ready", within_s=30)
        await ask(h, "alice", QUESTION)
        assert "tide undo" in shown(h)
