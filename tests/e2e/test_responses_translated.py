"""The Responses API over an upstream that speaks only chat completions, with the real OpenAI SDK."""

from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError

from tests.e2e.chat_only import ChatOnly, chunk, tool_call
from tests.e2e.conftest import context, until
from tests.support.model import known


async def streamed(client: AsyncOpenAI, **request: Any) -> list[Any]:
    """Ask for a stream and return its events."""
    return [event async for event in await client.responses.create(stream=True, **request)]


async def test_a_text_is_answered_whole_and_streamed_alike(house):
    async with house(ChatOnly("All is well.")) as h, h.client() as client:
        whole = await client.responses.create(model="m", input="How are you?", instructions="Be brief.")
        assert (whole.output_text, whole.status) == ("All is well.", "completed")
        assert h.model.last_messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How are you?"},
        ]
        events = await streamed(client, model="m", input="How are you?")
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "Alliswell."
        assert {e.response.id for e in events if hasattr(e, "response")} == {events[0].response.id}


async def test_what_was_created_is_what_is_retrieved_until_it_is_deleted(house):
    async with house(ChatOnly()) as h, h.client() as client:
        whole = await client.responses.create(model="m", input="One", metadata={"k": "v"})
        events = await streamed(client, model="m", input="Two")
        for made in (whole, events[-1].response):
            assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()
            await client.responses.delete(made.id)
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(made.id)
            with pytest.raises(NotFoundError):
                await client.responses.delete(made.id)


async def test_a_chain_is_replayed_to_the_upstream_without_old_instructions_unless_it_is_not_stored(house):
    async with house(ChatOnly("ok")) as h, h.client() as client:
        made = await client.responses.create(model="m", input="turn 0", instructions="First only.")
        for n in range(1, 8):
            made = await client.responses.create(
                model="m", input=f"turn {n}", previous_response_id=made.id, store=n < 7
            )
        messages = h.model.last_messages
        assert [m["content"] for m in messages if m["role"] == "user"] == [f"turn {n}" for n in range(8)]
        assert sum(m["role"] == "assistant" for m in messages) == 7
        assert "First only." not in str(messages)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id)
        with pytest.raises(APIStatusError) as refused:
            await client.responses.create(model="m", input="And?", previous_response_id=made.id)
        assert refused.value.status_code == 400
        assert (refused.value.code, refused.value.param) == (
            "previous_response_not_found",
            "previous_response_id",
        )


async def test_an_upstream_that_dies_after_three_pieces_of_a_call_fails_the_response(house):
    async def answer(exchange):
        await exchange.start_stream()
        await exchange.chunk(chunk({"role": "assistant", "tool_calls": [tool_call("call_1", "weather", "")]}))
        for piece in ('{"ci', 'ty": "R', "om"):
            await exchange.chunk(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
        exchange.reset()

    async with house(ChatOnly(script=answer)) as h, h.client() as client:
        events = await streamed(client, model="m", input="Weather?")
        last = events[-1]
        assert last.type == "response.failed"
        assert last.response.error.code == "server_error"
        assert last.response.output[0].status == "incomplete"
        assert sum(e.type.startswith("response.f") and "arguments" not in e.type for e in events) == 1
        stored = await client.responses.retrieve(last.response.id)
        assert stored.to_dict() == last.response.to_dict()


async def test_a_client_that_leaves_closes_the_upstream_and_finds_the_response_cancelled(house):
    async def answer(exchange):
        await exchange.start_stream()
        await exchange.chunk(chunk({"role": "assistant", "content": "Once upon"}))
        await exchange.client_left()

    async with house(ChatOnly(script=answer)) as h, h.client() as client:
        stream = await client.responses.create(model="m", input="A story", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        await h.upstream.until_closed(h.model.chats[-1].connection.number)
        path = "/responses/resp_" + event.item_id.removeprefix("msg_").rpartition("_")[0]
        async with h.http("sk-test") as http:
            stored = await until(lambda: http.get(path), lambda r: r.json().get("status") == "cancelled")
        assert stored.json()["output"][0]["content"][0]["text"] == "Once upon"


async def test_memory_is_injected_and_extracted_as_for_chat_and_not_stored_with_the_response(house):
    model = ChatOnly(facts=known(("Hawaii", "User's budget for the Hawaii trip is $10,000.")))
    user: Any = context("alice")
    async with house(model) as h, h.client() as client:
        await streamed(client, model="m", input="My budget for the Hawaii trip is $10,000.", extra_body=user)
        await until(h.listed)
        raw = await client.responses.with_raw_response.create(
            model="m", input="How much money can I spend on vacation?", extra_body=user
        )
        assert raw.headers["x-memory-status"] == "injected"
        assert "10,000" in h.block
        made = raw.parse()
        items = await client.responses.input_items.list(made.id)
        assert "10,000" not in items.to_json()
        assert "10,000" not in made.to_json()
        await client.responses.create(
            model="m", input="Thanks!", previous_response_id=made.id, extra_body=user
        )
        assert "10,000" not in str(model.last_messages)
        assert (await h.forget())["deleted"]
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id, extra_headers={"X-Memory-User-Id": "alice"})


async def test_a_store_out_of_reach_costs_the_state_and_not_the_answer(house, tmp_path):
    (tmp_path / "data" / "memory.db").mkdir(parents=True)
    async with house(ChatOnly()) as h, h.client() as client:
        for _ in range(5):
            assert (await client.responses.create(model="m", input="Hi")).output_text == "All right."
        assert (await streamed(client, model="m", input="Hi"))[-1].type == "response.completed"
        with pytest.raises(APIStatusError) as refused:
            await client.responses.create(model="m", input="Hi", previous_response_id="resp_mp1")
        assert refused.value.status_code == 503
        with pytest.raises(APIStatusError) as refused:
            await client.responses.create(model="m", input="Hi", background=True)
        assert refused.value.status_code == 503
