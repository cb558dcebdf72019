"""OpenAI's Agents SDK, over both of its model classes."""

from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

from tests.clients.acting import ASKED, BOTH_CITIES, SAID
from tests.clients.stage import STREAMS, Stage

MODELS = [OpenAIResponsesModel, OpenAIChatCompletionsModel]
set_tracing_disabled(True)  # it would call home


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


@pytest.fixture
async def sdk(chat_only, user):
    """The SDK's client, for the user."""
    async with opened(chat_only, user) as client:
        yield client


def opened(stage: Stage, user: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=stage.base_url, api_key="sk-test", max_retries=0, default_headers=stage.headers(user)
    )


def agent(model: Model, **more: Any) -> Agent[Any]:
    return Agent(name="Assistant", instructions="Be brief.", model=model, **more)


async def run(who: Agent[Any], said: Any, *, stream: bool, **more: Any) -> Any:
    """Run the agent to its end; streamed, read all its events before."""
    if not stream:
        return await Runner.run(who, said, **more)
    result = Runner.run_streamed(who, said, **more)
    kinds = {event.type async for event in result.stream_events()}
    assert "raw_response_event" in kinds
    return result


@STREAMS
@pytest.mark.parametrize("model", MODELS)
async def test_what_one_run_says_the_next_one_knows(stage, user, model, stream):
    async with opened(stage, user) as client:
        who = agent(model("gpt-4.1", client))
        await run(who, SAID, stream=stream)
        await stage.remembered(user, "10,000")
        assert "10,000" in (await run(who, ASKED, stream=stream)).final_output


@STREAMS
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("think", ["", "Think. "], ids=["plain", "thinking"])
async def test_the_runner_calls_the_tools_and_reaches_the_answer(sdk, model, stream, think):
    who = agent(model("gpt-5", sdk), tools=[get_weather])
    result = await run(who, think + BOTH_CITIES, stream=stream)
    assert result.final_output == "The tools say: rain in Oslo; rain in Lima"
    again = await run(who, [*result.to_input_list(), {"role": "user", "content": "Fine."}], stream=stream)
    assert again.final_output == "All right, noted."


async def test_the_runner_continues_its_last_response(sdk, chat_only):
    who = agent(OpenAIResponsesModel("gpt-4.1", sdk), tools=[get_weather])
    first = await Runner.run(who, BOTH_CITIES, auto_previous_response_id=True)
    assert first.final_output == "The tools say: rain in Oslo; rain in Lima"
    await Runner.run(who, "Fine.", previous_response_id=first.last_response_id)
    assert chat_only.actor is not None
    messages = chat_only.actor.last_chat()["messages"]
    said = [m["role"] for m in messages]
    assert said == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]


@STREAMS
async def test_settings_of_reasoning_models_and_hosted_tools_do_no_harm(sdk, stream):
    settings = ModelSettings(
        store=False, reasoning=Reasoning(effort="low", summary="auto"),
        response_include=["reasoning.encrypted_content"], parallel_tool_calls=True, truncation="auto",
        verbosity="low", metadata={"run": "1"}, include_usage=True, top_logprobs=1,
    )  # fmt: skip
    tools = [get_weather, WebSearchTool()]
    who = agent(OpenAIResponsesModel("gpt-5", sdk), tools=tools, model_settings=settings)
    result = await run(who, f"Think. {BOTH_CITIES}", stream=stream)
    assert result.final_output == "The tools say: rain in Oslo; rain in Lima"
    assert result.context_wrapper.usage.total_tokens == 28


async def test_sessions_of_the_sdk_keep_a_conversation(sdk, tmp_path):
    who = agent(OpenAIResponsesModel("gpt-4.1", sdk), tools=[get_weather])
    for session in (SQLiteSession("s", tmp_path / "s.db"), OpenAIConversationsSession(openai_client=sdk)):
        await Runner.run(who, BOTH_CITIES, session=session)  # type: ignore[arg-type]
        await Runner.run(who, "Fine.", session=session)  # type: ignore[arg-type]
        kinds = [item.get("type", "message") for item in await session.get_items()]
        assert kinds == ["message", *["function_call"] * 2, *["function_call_output"] * 2, *["message"] * 3]
