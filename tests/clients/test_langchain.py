"""LangChain's ChatOpenAI, over both APIs."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.acting import ASKED, BOTH_CITIES, CUT, SAID
from tests.clients.stage import STREAMS, Stage

APIS = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


@tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


def model(stage: Stage, user: str, responses: bool, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-4.1",
        base_url=stage.base_url,
        api_key="sk-test",  # type: ignore[arg-type]
        max_retries=0,
        use_responses_api=responses,
        stream_usage=True,
        default_headers=stage.headers(user),
        **more,
    )


async def ask(llm: Any, said: Any, *, stream: bool) -> AIMessage:
    """Return the answer, summed up from its chunks if streamed."""
    if not stream:
        answer: AIMessage = await llm.ainvoke(said)
        return answer
    whole = None
    async for chunk in llm.astream(said):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessage)
    return whole


@APIS
@STREAMS
async def test_what_one_conversation_says_the_next_one_knows(stage, user, responses, stream):
    llm = model(stage, user, responses)
    await ask(llm, SAID, stream=stream)
    await stage.remembered(user, "10,000")
    assert "10,000" in (await ask(llm, ASKED, stream=stream)).text


@APIS
@STREAMS
@pytest.mark.parametrize("shape", ["v0", "responses/v1", "v1"])
@pytest.mark.parametrize("think", ["", "Think. "], ids=["plain", "thinking"])
async def test_a_tool_loop_reaches_its_answer(chat_only, user, responses, stream, shape, think):
    llm = model(chat_only, user, responses, output_version=shape).bind_tools([get_weather])
    said: list[Any] = [SystemMessage("Be brief."), HumanMessage(think + BOTH_CITIES)]
    answer = await ask(llm, said, stream=stream)
    assert [call["args"]["city"] for call in answer.tool_calls] == ["Oslo", "Lima"]
    said += [answer, *[get_weather.invoke(call) for call in answer.tool_calls]]
    assert isinstance(said[-1], ToolMessage)
    answer = await ask(llm, said, stream=stream)
    assert answer.text == "The tools say: rain in Oslo; rain in Lima"
    assert (answer.usage_metadata or {}).get("total_tokens") == 14
    answer = await ask(llm, [*said, answer, HumanMessage("Fine.")], stream=stream)
    assert answer.text == "All right, noted."


@STREAMS
async def test_a_chain_continues_the_last_response(chat_only, user, stream):
    llm = model(chat_only, user, True, use_previous_response_id=True)
    first = await ask(llm, "My word is heron.", stream=stream)
    await ask(llm, [HumanMessage("My word is heron."), first, HumanMessage("Fine.")], stream=stream)
    assert chat_only.actor is not None
    messages = chat_only.actor.last_chat()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


async def test_a_stream_that_breaks_off_is_an_error(chat_only, user):
    with pytest.raises(ValueError, match="broke off"):
        await ask(model(chat_only, user, True), f"Hello. {CUT}", stream=True)
