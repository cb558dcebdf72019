"""The Responses API over an upstream that speaks only chat completions, with the real OpenAI SDK."""

import json
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError

from tests.e2e.chat_only import ChatOnly, chunk, tool_call
from tests.e2e.conftest import House, until
from tests.support.model import known
from tests.support.upstream import completion

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


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


async def test_a_chain_of_twenty_turns_is_replayed_to_the_upstream_without_old_instructions(house):
    async with house(ChatOnly("ok")) as h, h.client() as client:
        previous: str | None = None
        for n in range(20):
            made = await client.responses.create(
                model="m",
                input=f"turn {n}",
                previous_response_id=previous,
                **({"instructions": "First only."} if n == 0 else {}),  # type: ignore[arg-type]
            )
            previous = made.id
        messages = h.model.last_messages
        assert [m["content"] for m in messages if m["role"] == "user"] == [f"turn {n}" for n in range(20)]
        assert sum(m["role"] == "assistant" for m in messages) == 19
        assert "First only." not in str(messages)


async def test_what_is_not_stored_can_neither_be_retrieved_nor_continued(house):
    async with house(ChatOnly()) as h, h.client() as client:
        made = await client.responses.create(model="m", input="Psst", store=False)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id)
        with pytest.raises(APIStatusError) as refused:
            await client.responses.create(model="m", input="And?", previous_response_id=made.id)
        assert refused.value.status_code == 400
        assert refused.value.body["code"] == "previous_response_not_found"  # type: ignore[index]
        assert refused.value.body["param"] == "previous_response_id"  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_tool_loop_is_translated_both_ways(house, stream):
    async def answer(exchange):
        asked = exchange.request.json
        if asked["messages"][-1]["role"] == "tool":
            await model.say(exchange, "It rains.")
        elif asked.get("stream"):
            await exchange.stream(
                chunk({"role": "assistant", "tool_calls": [tool_call("call_1", "weather", '{"city"')]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": ':"Rome"}'}}]}),
                chunk({}, "tool_calls"),
                b"data: [DONE]\n\n",
            )
        else:
            call = tool_call("call_1", "weather", '{"city":"Rome"}')
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
            await exchange.json({**completion(""), "choices": [choice]})

    model = ChatOnly(script=answer)
    async with house(model) as h, h.client() as client:

        async def ask(**request):
            if stream:
                return (await streamed(client, model="m", tools=[TOOL], **request))[-1].response
            return await client.responses.create(model="m", tools=[TOOL], **request)

        first = await ask(input="Weather in Rome?")
        (call,) = first.output
        assert (call.type, call.name, json.loads(call.arguments)) == (
            "function_call",
            "weather",
            {"city": "Rome"},
        )
        assert call.call_id == "call_1"
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        last = await ask(input=[result], previous_response_id=first.id)
        assert last.output_text.startswith("It")
        roles = [m["role"] for m in model.last_messages]
        assert roles == ["user", "assistant", "tool"]


async def test_items_can_be_referred_to_without_a_chain(house):
    async with house(ChatOnly("Blue.")) as h, h.client() as client:
        first = await client.responses.create(model="m", input="Which colour?")
        await client.responses.create(
            model="m",
            input=[
                {"role": "user", "content": "Which colour?"},
                {"type": "item_reference", "id": first.output[0].id or ""},
                {"role": "user", "content": "Sure?"},
            ],
        )
        assert [m["content"] for m in h.model.last_messages] == ["Which colour?", "Blue.", "Sure?"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_upstreams_refusal_passes_unchanged(house, stream):
    refusal = b'{"error": {"message": "slow  down", "type": "requests", "code": "rate_limit_exceeded"}}'

    async def answer(exchange):
        limits = [(b"retry-after", b"7"), (b"x-ratelimit-remaining-requests", b"0")]
        await exchange.reply(refusal, 429, [(b"x-request-id", b"up-1"), *limits])

    async with house(ChatOnly(script=answer)) as h, httpx2.AsyncClient(timeout=30) as http:
        got = await http.post(
            f"{h.base_url}/responses", json={"model": "m", "input": "Hi there", "stream": stream}
        )
        assert (got.status_code, got.content) == (429, refusal)
        assert (got.headers["retry-after"], got.headers["x-request-id"]) == ("7", "up-1")
        assert got.headers["x-ratelimit-remaining-requests"] == "0"


async def test_an_upstream_that_dies_after_three_pieces_of_a_call_fails_the_response(house):
    async def answer(exchange):
        await exchange.start_stream()
        await exchange.chunk(chunk({"role": "assistant", "tool_calls": [tool_call("call_1", "weather", "")]}))
        for piece in ('{"ci', 'ty": "R', "om"):
            await exchange.chunk(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
        exchange.reset()

    async with house(ChatOnly(script=answer)) as h, h.client() as client:
        events = await streamed(client, model="m", input="Weather?", tools=[TOOL])
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
        created = h.model.chats[-1].connection
        await stream.close()
        await h.upstream.until_closed(created.number)

        async def found():
            async with httpx2.AsyncClient(headers={"authorization": "Bearer sk-test"}) as http:
                return (await http.get(f"{h.base_url}/responses/{_id}")).json()

        _id = event.item_id.removeprefix("msg_").rpartition("_")[0]
        _id = f"resp_{_id}"
        stored = await until(found, lambda r: r.get("status") == "cancelled")
        assert stored["output"][0]["content"][0]["text"] == "Once upon"


async def test_memory_is_injected_and_extracted_as_for_chat_and_not_stored_with_the_response(house):
    model = ChatOnly(facts=known(("Hawaii", "User's budget for the Hawaii trip is $10,000.")))
    user: Any = {"memory_context": {"user_id": "alice"}}
    async with house(model) as h, h.client() as client:
        await streamed(client, model="m", input="My budget for the Hawaii trip is $10,000.", extra_body=user)
        await until(lambda: memories(h), bool)
        raw = await client.responses.with_raw_response.create(
            model="m", input="How much money can I spend on vacation?", extra_body=user
        )
        assert raw.headers["x-memory-status"] == "injected"
        block, question = model.last_messages
        assert (block["role"], "10,000" in block["content"]) == ("system", True)
        assert question["content"] == "How much money can I spend on vacation?"
        made = raw.parse()
        items = await client.responses.input_items.list(made.id)
        assert "10,000" not in items.to_json()
        assert "10,000" not in made.to_json()
        await client.responses.create(
            model="m", input="Thanks!", previous_response_id=made.id, extra_body=user
        )
        assert "10,000" not in str(model.last_messages)
        async with httpx2.AsyncClient(timeout=30) as http:
            deleted = (await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})).json()
        assert deleted["deleted"]
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(made.id, extra_headers={"X-Memory-User-Id": "alice"})


async def memories(h: House) -> list[Any]:
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{h.base_url}/memory", params={"user_id": "alice"})
    data: list[Any] = answer.json()["data"]
    return data


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
