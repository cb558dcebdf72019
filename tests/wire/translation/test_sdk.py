"""The official SDK's own stream reader, which checks identities and adds the deltas up by itself."""

from typing import Any

import pytest
from openai import AsyncOpenAI

from proxy.wire.translation.response import encode
from tests.support.upstream import ScriptedUpstream
from tests.wire.translation.support import call, delta, final, streamed

TOOLS: list[Any] = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "custom", "name": "patch"},
]
STREAMS = {
    "all": [
        delta(reasoning="Hm"), delta(content="Let me see."), delta(**call(0, "c0", "f", '{"a"')),
        delta(**call(1, "c0", "f", "")), delta(**call(2, "c2", "patch", '{"input":"x"}')),
        delta(**call(0, None, None, ":1}")), delta("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    ],
    "refusal": [delta(refusal="No."), delta("stop")],
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
async def test_the_sdk_reads_what_the_stream_says(name):
    events = streamed(STREAMS[name], tools=TOOLS)

    async def script(exchange):
        await exchange.stream(*(encode(event) for event in events))

    async with (
        ScriptedUpstream(script) as upstream,
        AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="Hi", tools=TOOLS) as stream,
    ):
        stated = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert stated == [event["type"] for event in events]
    spoken = [item for item in final(events)["output"] if item["type"] == "message"]
    assert response.output_text == "".join(
        part.get("text", "") for item in spoken for part in item["content"]
    )
    assert [item.id for item in response.output] == [item["id"] for item in final(events)["output"]]
