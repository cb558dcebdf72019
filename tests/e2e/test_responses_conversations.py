"""Conversations, with the real SDK."""

from typing import Any

import pytest
from openai import NotFoundError

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import context, until
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
            extra_body=context("ann"),
        )
        assert len((await client.conversations.items.list(made.id)).data) == 3
        with pytest.raises(NotFoundError):
            await client.conversations.retrieve(made.id, extra_headers={"X-Memory-User-Id": "bob"})
        dry, removed = await h.forget("ann", dry_run="true"), await h.forget("ann")
        assert dry["deleted_conversations"] == removed["deleted_conversations"] == 1
        with pytest.raises(NotFoundError):
            await client.conversations.retrieve(made.id)


async def test_what_is_malformed_is_refused_by_name(house):
    item = {"role": "user", "content": "x"}
    wrong: list[tuple[Any, str]] = [
        ({"items": "x"}, "items"), ({"items": [item] * 21}, "items"),
        ({"items": [item | {"role": "nobody"}]}, "items[0].role"), ({"metadata": {"k": 1}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"), ({"colour": "red"}, "colour"),
        ({"memory_context": {"user_id": ""}}, "memory_context.user_id"),
    ]  # fmt: skip
    async with house(ChatOnly(), **TRANSLATE) as h:
        for body, param in wrong:
            refused = await h.post("/conversations", body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_items_copied_by_reference_are_forgotten_with_their_response(house):
    model = ChatOnly("Zanzibar it is.", known(("Zanzibar", "User lives in Zanzibar")))
    async with house(model, **TRANSLATE) as h:

        async def respond(given, session):
            body = {"model": "m", "input": given, "memory_config": NOT_SHOWN, **context(session_id=session)}
            return (await h.post("/responses", body)).json()

        stated = await respond("I live in Zanzibar", "s1")
        (memory,) = await until(h.memories)
        reference = {"type": "item_reference", "id": stated["output"][0]["id"]}
        copied = await respond([reference, {"role": "user", "content": "Make that shorter please"}], "s2")
        async with h.http(**{"x-memory-user-id": "alice"}) as http:
            await http.delete(f"/memory/{memory['id']}")
            for removed in (stated, copied):
                assert (await http.get(f"/responses/{removed['id']}")).status_code == 404
