"""The Vercel AI SDK with its OpenAI provider, which speaks the Responses API by default."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients.acting import ASKED, BOTH_CITIES, CUT, HANG, REFUSE, SAID
from tests.clients.stage import STREAMS, Stage

DRIVER = Path(__file__).with_name("vercel.mjs")
APIS = pytest.mark.parametrize("api", ["chat", "responses"])


async def converse(node_dir: Path, stage: Stage, user: str, *turns: str, **more: Any) -> dict[str, Any]:
    """Say the turns, one after the other in one conversation; return what the driver tells."""
    asked = {"baseURL": stage.base_url, "headers": stage.headers(user), "model": "gpt-4.1", "turns": turns}
    process = await asyncio.create_subprocess_exec(
        "node", str(DRIVER), json.dumps({**asked, **more}), env={**os.environ, "CLIENTS_NODE": str(node_dir)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


@APIS
@STREAMS
async def test_what_one_conversation_says_the_next_one_knows(node_dir, stage, user, api, stream):
    await converse(node_dir, stage, user, SAID, api=api, stream=stream)
    await stage.remembered(user, "10,000")
    result = await converse(node_dir, stage, user, ASKED, api=api, stream=stream)
    assert "10,000" in result["texts"][0]


@APIS
@STREAMS
async def test_a_tool_loop_reaches_its_answer_and_the_conversation_continues(
    node_dir, chat_only, user, api, stream
):
    result = await converse(node_dir, chat_only, user, BOTH_CITIES, "Fine.", api=api, stream=stream)
    assert result["texts"] == ["The tools say: rain in Oslo; rain in Lima", "All right, noted."]
    assert result["steps"] == [2, 1]
    assert result["tokens"] == 14


@STREAMS
@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_reasoning_comes_and_goes_back(node_dir, chat_only, user, stream, store):
    result = await converse(
        node_dir, chat_only, user, f"Think. {BOTH_CITIES}", "Fine.", model="gpt-5", stream=stream,
        options={"store": store, "reasoningSummary": "auto", "reasoningEffort": "low"},
    )  # fmt: skip
    assert result["texts"] == ["The tools say: rain in Oslo; rain in Lima", "All right, noted."]


@STREAMS
async def test_hosted_tools_and_pictures_pass(node_dir, chat_only, user, stream):
    result = await converse(
        node_dir, chat_only, user, "What is this?", stream=stream, hosted=True, image=True
    )
    assert result["texts"] == ["All right, noted."]
    assert chat_only.actor is not None
    parts = chat_only.actor.last_chat()["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]


async def test_a_stream_that_breaks_off_is_an_error(node_dir, chat_only, user):
    result = await converse(node_dir, chat_only, user, f"Hello. {CUT}", api="responses", stream=True)
    assert result["error"]["message"] == "The upstream's answer broke off.", result


@APIS
async def test_a_client_that_leaves_frees_the_upstream(node_dir, chat_only, user, api):
    assert chat_only.actor is not None
    chat_only.actor.left.clear()
    await converse(node_dir, chat_only, user, f"Hello. {HANG}", api=api, stream=True, leave=True)
    async with asyncio.timeout(5):
        await chat_only.actor.left.wait()


@STREAMS
async def test_structured_output_and_an_upstreams_refusal_are_the_sdks_own(node_dir, chat_only, user, stream):
    parsed = await converse(
        node_dir, chat_only, user, "The day in Oslo?", api="responses", stream=stream, structured=True
    )
    assert parsed["output"] == {"city": "Oslo", "degrees": 7}
    refused = await converse(node_dir, chat_only, user, f"Hello. {REFUSE}", api="responses", stream=stream)
    assert refused["error"] == {"status": 429, "message": "Slow down.", "retryAfter": "7"}
