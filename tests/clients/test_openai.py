"""The official SDK."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.clients.acting import ASKED, BOTH_CITIES, REFUSE, SAID
from tests.clients.stage import STREAMS, Stage

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Weather(BaseModel):
    """What the structured answers hold."""

    city: str
    degrees: int


def client(stage: Stage, user: str, **more: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=stage.base_url, api_key="sk-test", max_retries=0, default_headers=stage.headers(user, **more)
    )


async def chat(sdk: AsyncOpenAI, text: str, *, stream: bool) -> str:
    messages: Any = [{"role": "user", "content": text}]
    if not stream:
        answer = await sdk.chat.completions.create(model="m", messages=messages)
        return answer.choices[0].message.content or ""
    chunks = await sdk.chat.completions.create(model="m", messages=messages, stream=True)
    return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])


async def respond(sdk: AsyncOpenAI, text: str, *, stream: bool) -> str:
    if not stream:
        return (await sdk.responses.create(model="m", input=text)).output_text
    async with sdk.responses.stream(model="m", input=text) as events:
        said = "".join([event.delta async for event in events if event.type == "response.output_text.delta"])
        assert (await events.get_final_response()).output_text == said
    return said


@STREAMS
@pytest.mark.parametrize("say", [chat, respond])
async def test_what_one_session_says_the_next_one_knows(stage, user, say, stream):
    async with client(stage, user) as first:
        await say(first, SAID, stream=stream)
    await stage.remembered(user, "10,000")
    async with client(stage, user) as second, client(stage, f"not-{user}") as stranger:
        assert "10,000" in await say(second, ASKED, stream=stream)
        assert "10,000" not in await say(stranger, ASKED, stream=stream)


@STREAMS
async def test_a_tool_loop_over_a_chain_reaches_its_answer(chat_only, user, stream):
    async with client(chat_only, user) as sdk:
        asked = await _create(sdk, stream, input=BOTH_CITIES, tools=[WEATHER])
        calls = [item for item in asked.output if item.type == "function_call"]
        assert [json.loads(call.arguments)["city"] for call in calls] == ["Oslo", "Lima"]
        outputs: Any = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"{n} degrees"}
            for n, call in enumerate(calls)
        ]
        answer = await _create(sdk, stream, input=outputs, previous_response_id=asked.id, tools=[WEATHER])
        assert answer.output_text == "The tools say: 0 degrees; 1 degrees"


@STREAMS
async def test_a_tool_loop_without_a_chain_sends_the_output_items_back(chat_only, user, stream):
    async with client(chat_only, user) as sdk:
        said: list[Any] = [{"role": "user", "content": f"Think. {BOTH_CITIES}"}]
        asked = await _create(sdk, stream, input=said, tools=[WEATHER], store=False)
        assert [item.type for item in asked.output] == ["reasoning", "function_call", "function_call"]
        said += [item.model_dump(exclude_none=True) for item in asked.output]
        said += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "7 degrees"}
            for item in asked.output
            if item.type == "function_call"
        ]
        answer = await _create(sdk, stream, input=said, tools=[WEATHER], store=False)
        assert answer.output_text == "The tools say: 7 degrees; 7 degrees"


async def _create(sdk: AsyncOpenAI, stream: bool, **request: Any) -> Any:
    if not stream:
        return await sdk.responses.create(model="m", **request)
    async with sdk.responses.stream(model="m", **request) as events:
        return await events.get_final_response()


async def test_structured_output_is_parsed(chat_only, user):
    async with client(chat_only, user) as sdk:
        response = await sdk.responses.parse(model="m", input="The day in Oslo?", text_format=Weather)
        assert response.output_parsed == Weather(city="Oslo", degrees=7)
        async with sdk.responses.stream(model="m", input="The day in Oslo?", text_format=Weather) as events:
            assert (await events.get_final_response()).output_parsed == Weather(city="Oslo", degrees=7)
        completion = await sdk.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "The day in Oslo?"}], response_format=Weather
        )
        assert completion.choices[0].message.parsed == Weather(city="Oslo", degrees=7)


@STREAMS
@pytest.mark.parametrize("say", [chat, respond])
async def test_an_upstreams_refusal_is_the_sdks_own_error(chat_only, user, say, stream):
    async with client(chat_only, user) as sdk:
        with pytest.raises(openai.RateLimitError) as refused:
            await say(sdk, f"Hello. {REFUSE}", stream=stream)
    assert (refused.value.code, refused.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "7")


async def test_a_custom_tool_takes_free_text(chat_only, user):
    tools: Any = [{"type": "custom", "name": "write", "description": "Writes."}]
    async with client(chat_only, user) as sdk:
        for stream in (False, True):
            asked = await _create(sdk, stream, input="A verse, please.", tools=tools)
            (call,) = asked.output
            assert (call.type, call.input) == ("custom_tool_call", "a verse")
            output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "written"}
            answer = await _create(sdk, stream, input=[output], previous_response_id=asked.id, tools=tools)
            assert answer.output_text == "The tools say: written"


async def test_reasoning_of_a_client_that_keeps_its_own_history_comes_back_sealed(chat_only, user):
    async with client(chat_only, user) as sdk:
        request: Any = {"store": False, "include": ["reasoning.encrypted_content"], "tools": [WEATHER]}
        asked = await _create(sdk, True, input=f"Think. {BOTH_CITIES}", **request)
        thought = asked.output[0]
        assert thought.type == "reasoning"
        assert thought.encrypted_content
        said = [item.model_dump(exclude={"content"}) for item in asked.output]
        said += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "7 degrees"}
            for item in asked.output[1:]
        ]
        answer = await _create(sdk, False, input=[{"role": "user", "content": "Go on."}, *said], **request)
        assert answer.output_text == "The tools say: 7 degrees; 7 degrees"
