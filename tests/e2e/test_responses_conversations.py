"""Conversations, with the real SDK."""

from typing import Any

import httpx2
import pytest
from openai import APIStatusError, NotFoundError

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import until
from tests.support.model import known

TRANSLATE: Any = {"upstream_extra": {"responses": "translate"}}
NOT_SHOWN = {"memory_types": ["procedural"]}


async def test_a_conversation_lives_from_its_creation_to_its_deletion(house):
    async with house(ChatOnly(), **TRANSLATE) as h, h.client() as client:
        made = await client.conversations.create(metadata={"topic": "demo"})
        assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
        assert await client.conversations.retrieve(made.id) == made
        changed = await client.conversations.update(made.id, metadata={"topic": "x"})
        assert changed.metadata == {"topic": "x"}
        removed = await client.conversations.delete(made.id)
        assert (removed.object, removed.deleted) == ("conversation.deleted", True)
        for look in (client.conversations.retrieve, client.conversations.delete):
            with pytest.raises(NotFoundError):
                await look(made.id)


async def test_items_are_added_listed_fetched_and_deleted(house):
    async with house(ChatOnly(), **TRANSLATE) as h, h.client() as client:
        hello: Any = {"type": "message", "role": "user", "content": "Hello!"}
        made = await client.conversations.create(items=[hello])
        added = await client.conversations.items.create(
            made.id,
            items=[{"role": "user", "content": f"line {n}"} for n in range(3)],  # type: ignore[misc]
        )
        assert len(added.data) == 3
        newest = [item async for item in client.conversations.items.list(made.id, limit=2)]
        assert [i.id for i in newest[:3]] == [i.id for i in reversed(added.data)]
        assert len(newest) == 4
        one = await client.conversations.items.retrieve(added.data[0].id or "", conversation_id=made.id)
        assert one.content[0].text == "line 0"  # type: ignore[union-attr]
        await client.conversations.items.delete(one.id or "", conversation_id=made.id)
        with pytest.raises(NotFoundError):
            await client.conversations.items.retrieve(one.id or "", conversation_id=made.id)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_response_continues_its_conversation_and_adds_to_it(house, stream):
    async with house(ChatOnly(), **TRANSLATE) as h, h.client() as client:
        made = await client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])  # type: ignore[list-item]
        for text in ("One", "Two"):
            answer: Any = await client.responses.create(
                model="m", input=text, conversation=made.id, stream=stream
            )
            if stream:
                answer = [event async for event in answer][-1].response
            assert answer.conversation.id == made.id
        said = [m["content"] for m in h.model.last_messages]
        assert [s.replace(" ", "") for s in said] == ["IamAnn.", "One", "Allright.", "Two"]
        items = [item async for item in client.conversations.items.list(made.id, order="asc")]
        assert [i.role for i in items] == ["user", "user", "assistant", "user", "assistant"]  # type: ignore[union-attr]


async def test_a_conversation_without_a_user_belongs_to_the_first_who_speaks_in_it(house):
    async with house(ChatOnly(), **TRANSLATE) as h, h.client() as client:
        made = await client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])  # type: ignore[list-item]
        await client.responses.create(
            model="m",
            input="And I ski.",
            conversation=made.id,
            extra_body={"memory_context": {"user_id": "ann"}},
        )
        assert len((await client.conversations.items.list(made.id)).data) == 3
        with pytest.raises(NotFoundError):
            await client.conversations.retrieve(made.id, extra_headers={"X-Memory-User-Id": "bob"})
        async with httpx2.AsyncClient(timeout=30) as http:
            dry = await http.delete(f"{h.base_url}/memory", params={"user_id": "ann", "dry_run": "true"})
            removed = await http.delete(f"{h.base_url}/memory", params={"user_id": "ann"})
            receipts = await http.get(f"{h.base_url}/memory/receipts", params={"user_id": "ann"})
        assert dry.json()["deleted_conversations"] == removed.json()["deleted_conversations"] == 1
        assert receipts.json()["data"][0]["counts"]["conversations"] == 1
        with pytest.raises(NotFoundError):
            await client.conversations.retrieve(made.id)


async def test_foreign_and_unknown_conversations_are_absent(house):
    async with house(ChatOnly(), **TRANSLATE) as h, h.client("sk-1") as one, h.client("sk-2") as other:
        made = await one.conversations.create()
        for id_ in (made.id, "conv_none"):
            with pytest.raises(NotFoundError):
                await other.conversations.retrieve(id_)
            with pytest.raises(NotFoundError):
                await other.responses.create(model="m", input="Hi", conversation=id_)
        with pytest.raises(APIStatusError) as refused:
            await one.responses.create(
                model="m", input="Hi", conversation=made.id, previous_response_id="resp_1"
            )
        assert refused.value.status_code == 400


async def test_what_is_malformed_is_refused_by_name(house):
    item = {"role": "user", "content": "x"}
    wrong: list[tuple[Any, str]] = [
        ({"items": "x"}, "items"), ({"items": [item] * 21}, "items"),
        ({"items": [item | {"role": "nobody"}]}, "items[0].role"), ({"metadata": {"k": 1}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"), ({"colour": "red"}, "colour"),
        ({"memory_context": {"user_id": ""}}, "memory_context.user_id"),
    ]  # fmt: skip
    async with house(ChatOnly(), **TRANSLATE) as h, httpx2.AsyncClient(timeout=30) as http:
        for body, param in wrong:
            refused = await http.post(f"{h.base_url}/conversations", json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_items_copied_by_reference_are_forgotten_with_their_response(house):
    model = ChatOnly("Zanzibar it is.", known(("Zanzibar", "User lives in Zanzibar")))
    async with (
        house(model, **TRANSLATE) as h,
        h.client() as client,
        httpx2.AsyncClient(base_url=h.base_url, params={"user_id": "anna"}) as raw,
    ):

        def of_anna(session):
            return {"memory_context": {"user_id": "anna", "session_id": session}, "memory_config": NOT_SHOWN}

        stated = await client.responses.create(
            model="m", input="I live in Zanzibar", extra_body=of_anna("s1")
        )
        found = await until(lambda: raw.get("/memory"), lambda listed: listed.json()["data"] != [])
        ask: Any = [
            {"type": "item_reference", "id": stated.output[0].id},
            {"role": "user", "content": "Make that shorter please"},
        ]
        copied = await client.responses.create(model="m", input=ask, extra_body=of_anna("s2"))
        await raw.delete(f"/memory/{found.json()['data'][0]['id']}")
        for removed in (stated, copied):
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(removed.id, extra_query={"user_id": "anna"})
