"""Compactions and counts over an upstream that speaks only chat completions."""

from itertools import product
from typing import Any

import httpx2

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House

Json = dict[str, Any]
SUMMARY = "They plan a trip to Porto; flights are booked."
TALK: list[Json] = [
    {"role": "user", "content": "Book me flights to Porto."},
    {"type": "function_call", "call_id": "c1", "name": "book", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "booked"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "And a hotel?"},
]
TRIGGER: Json = {"type": "compaction_trigger"}


async def post(h: House, path: str, body: Json, user: str = "alice") -> httpx2.Response:
    return await h.post(path, {"model": "m", **body}, **{"X-Memory-User-Id": user})


async def test_a_conversation_is_compacted_by_the_model_and_understood_when_it_comes_back(house):
    async with house(ChatOnly(SUMMARY)) as h, h.client() as client:
        made = await client.responses.compact(model="m", input=TALK, instructions="Be brief.")  # type: ignore[arg-type]
        assert made.object == "response.compaction"
        assert [item.type for item in made.output] == ["message", "message", "compaction"]
        assert made.usage.total_tokens >= 0
        asked = h.model.last_messages
        assert asked[0] == {"role": "system", "content": "Be brief."}
        assert [m["role"] for m in asked[1:]] == ["user", "assistant", "tool", "assistant", "user"]
        assert asked[-1]["content"].startswith("And a hotel?\n\nStop here.")
        assert "Porto" not in made.output[-1].encrypted_content  # type: ignore[union-attr]
        again: Any = [
            *made.model_dump(mode="json", exclude_unset=True, warnings=False)["output"],
            {"role": "user", "content": "Go on."},
        ]
        await client.responses.create(model="m", input=again)
        contents = [m["content"] for m in h.model.last_messages]
        assert contents[:2] == ["Book me flights to Porto.", "And a hotel?"]
        assert SUMMARY in contents[2]
        assert contents[3] == "Go on."


async def test_a_chain_continues_from_its_compaction(house):
    async with house(ChatOnly(SUMMARY)) as h:
        last = ""
        for given in ([{"role": "developer", "content": "Be kind."}, *TALK], [TRIGGER], "Go on."):
            body = {"input": given} | ({"previous_response_id": last} if last else {})
            last = (await post(h, "/responses", body)).json()["id"]
        assert [m["role"] for m in h.model.last_messages] == ["system", "user", "user"]
        assert h.model.last_messages[0]["content"] == "Be kind."
        assert SUMMARY in h.model.last_messages[1]["content"]


async def test_a_compaction_of_another_users_is_left_out_and_named(house, tmp_path):
    async with house(ChatOnly(SUMMARY)) as h:
        (*_, item) = (await post(h, "/responses/compact", {"input": TALK})).json()["output"]
        body = {"input": [item, {"role": "user", "content": "Go on."}]}
        for user, seen in (("alice", True), ("bob", False)):
            answer = await post(h, "/responses", body, user)
            assert (SUMMARY in str(h.model.last_messages)) is seen
            assert answer.headers.get("x-memory-dropped-items") == (None if seen else "compaction")
    async with house(ChatOnly("ok")) as h:  # the key survives a restart
        await post(h, "/responses", body)
        assert SUMMARY in str(h.model.last_messages)


REFUSED: list[tuple[Json, int, str]] = [
    ({}, 400, "input"),
    ({"input": 7}, 400, "input"),
    ({"input": "Hi", "model": None}, 400, "model"),
    ({"input": "Hi", "previous_response_id": "resp_nope"}, 400, "previous_response_id"),
    ({"input": "Hi", "conversation": "thread"}, 400, "conversation"),
    ({"input": [{"type": "item_reference", "id": "msg_nope"}]}, 404, "input"),
]


async def test_what_cannot_be_compacted_or_counted_is_refused_by_name(house):
    async with house(ChatOnly(), upstream_extra={"responses": "translate"}) as h:
        for (body, status, param), path in product(REFUSED, ("compact", "input_tokens")):
            answer = await post(h, f"/responses/{path}", body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), (path, body)
        assert not h.model.chats


async def test_tokens_are_counted_with_what_the_request_continues(house):
    async with house(ChatOnly("x" * 400)) as h, h.client() as client:
        counts = [
            await client.responses.input_tokens.count(model="gpt-4o", input=text)
            for text in ("Hi", "Hi " * 500)
        ]
        assert counts[0].object == "response.input_tokens"
        assert 2 <= counts[0].input_tokens < 20
        assert counts[1].input_tokens > 400
        made = await client.responses.create(model="gpt-4o", input="Hi " * 500)
        chained = await client.responses.input_tokens.count(
            model="gpt-4o",
            input="Hi",
            previous_response_id=made.id,
            tools=[{"type": "function", "name": "f", "parameters": {}, "strict": None}],
        )
        assert chained.input_tokens > counts[1].input_tokens
        assert len(h.model.chats) == 1
