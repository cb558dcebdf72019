"""Documents through the whole proxy: posted once, cited in a chat, deleted when forgotten."""

from typing import Any

from tests.e2e.conftest import House, Json, until
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


async def post(h: House, user: str = "alice", **more: Any) -> Json:
    answer = await h.post(
        "/memory/documents", {"name": "Runbook", "content": RUNBOOK, "user_id": user, **more}
    )
    assert answer.status_code in (201, 202), answer.text
    document: Json = answer.json()
    return document


async def test_a_passage_is_cited_to_its_user_and_never_again_after_a_forget(house):
    async with house() as h:
        document = await post(h)
        headers = (await h.tell(QUESTION)).headers
        assert "tide undo" in h.block
        cited = f'[doc "Runbook" › Harbour service › Deploying › Rolling back #{document["id"][-4:]}'
        assert cited[:-4] in h.block
        assert (headers["x-memory-status"], headers["x-memory-ids"]) == ("injected", document["id"])
        assert headers["x-memory-count"] == "1", "a document counts once, as OpenAPI and the metric say"
        await h.tell(QUESTION, "bob")
        assert h.block == ""
        assert (await h.forget())["deleted_documents"] == 1
        await h.tell(QUESTION)
        assert h.block == ""


async def test_what_the_assistant_reads_out_of_a_document_does_not_become_a_memory(house):
    """The model that extracts would store it wherever it sees it."""
    model = ScriptedModel(
        answer="Run tide undo from the bastion.",
        facts=known(("tide undo", "Rolling back is done with tide undo."), ABOUT),
    )
    async with house(model) as h:
        await post(h)
        await h.tell(QUESTION + " By the way, I play the cello.")
        assert "tide undo" in h.block
        assert await until(h.listed) == [ABOUT[1]]
        await h.tell("What instrument do I perform on?")  # memories are recalled with documents present
        assert ("cello" in h.block, "[doc" in h.block) == (True, False)
