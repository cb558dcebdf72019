"""Chat chunks to the Responses API's events. Every stream is also checked by the official SDK's types."""

from typing import Any

import pytest

from proxy.wire.translation.request import plan
from tests.wire.translation.support import call, check, delta, final, kinds, streamed, translation

USAGE = {
    "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip
USAGE_CHUNK = {"choices": [], "usage": USAGE}


# ---------------------------------------------------------------- text
def test_text_comes_in_the_order_that_clients_rely_on():
    events = streamed(
        [delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop")]
    )
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert events[2]["item"]["content"] == []
    assert events[2]["item"]["status"] == "in_progress"
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    message = {
        "id": "msg_a1_0", "type": "message", "status": "completed", "role": "assistant", "content": [part],
    }  # fmt: skip
    assert final(events)["output"] == [message]


def test_a_completed_response_has_its_model_tier_time_and_usage():
    chunk = {**delta("stop", content="Hi"), "service_tier": "flex"}
    response = final(streamed([chunk, USAGE_CHUNK]))
    assert (response["status"], response["completed_at"]) == ("completed", 1_700_000_009)
    assert (response["model"], response["service_tier"]) == ("m-2", "flex")
    assert (response["error"], response["incomplete_details"]) == (None, None)
    assert response["usage"] == {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 14,
    }  # fmt: skip


# ---------------------------------------------------------------- refusal and reasoning
def test_a_refusal_is_a_part_of_its_own_and_completes():
    events = streamed([delta(refusal="I can"), delta(refusal="not."), delta("stop")])
    assert kinds(events)[3:8] == [
        "content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done",
    ]  # fmt: skip
    assert final(events)["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]
    assert final(events)["status"] == "completed"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_an_item_before_the_message(name):
    events = streamed([delta(**{name: "Hm"}), delta(**{name: "m"}), delta(content="Yes"), delta("stop")])
    assert kinds(events)[2:10] == [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done", "output_item.added",
    ]  # fmt: skip
    reasoning, message = final(events)["output"]
    assert reasoning["summary"] == []
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hmm"}]
    assert message["type"] == "message"


def test_thoughts_are_sealed_for_clients_that_keep_them_themselves():
    chunks = [
        delta(reasoning="Hm"),
        delta(reasoning="m \u00e9"),
        delta(**call(0, "c0", "f", "{}")),
        delta("tool_calls"),
    ]
    sealing = {"include": ["reasoning.encrypted_content"]}
    assert "encrypted_content" not in final(streamed([delta("stop", content="Hi")], **sealing))["output"][0]
    reasoning, called = final(streamed(chunks, **sealing))["output"]
    stored = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
    answer = {"type": "function_call_output", "call_id": "c0", "output": "ok"}
    messages = plan({"model": "m", "input": [stored, called, answer]}, []).chat["messages"]
    assert messages[0]["reasoning_content"] == "Hmm \u00e9"
    assert "encrypted_content" not in final(streamed(chunks))["output"][0]


# ---------------------------------------------------------------- tool calls
def test_a_call_keeps_the_upstreams_id_in_addition_to_its_own():
    events = streamed(
        [delta(**call(0, "call_7", "f", "")), delta(**call(0, None, None, '{"a":1}')), delta("tool_calls")]
    )
    assert kinds(events)[2:6] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert events[2]["item"]["arguments"] == ""
    assert events[4]["name"] == "f"
    assert final(events)["output"] == [
        {
            "id": "fc_a1_0", "type": "function_call", "status": "completed", "call_id": "call_7", "name": "f",
            "arguments": '{"a":1}',
        }
    ]  # fmt: skip


MAIL: dict[str, Any] = {
    "type": "namespace",
    "name": "mcp__mail",
    "description": "Mail",
    "tools": [{"type": "function", "name": "search"}, {"type": "custom", "name": "write"}],
}


@pytest.mark.parametrize("said", ["mcp__mail__search", "mcp__mail.search", "search"])
def test_a_call_into_a_namespace_comes_back_with_name_and_namespace_apart(said):
    events = streamed([delta(**call(0, "c0", said, "{}")), delta("tool_calls")], tools=[MAIL])
    (item,) = final(events)["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "search", "mcp__mail")
    assert events[2]["item"]["namespace"] == "mcp__mail"
    done = next(e for e in events if e["type"] == "response.function_call_arguments.done")
    assert done["name"] == "search"


# ---------------------------------------------------------------- endings
def test_a_failure_leaves_no_open_call_completed():
    chunks = [delta(**call(0, "c0", "f", "{}")), delta(**call(1, "c1", "g", "{"))]
    items = final(streamed(chunks, ended_well=False))["output"]
    assert [item["status"] for item in items] == ["incomplete", "incomplete"]


def test_nothing_is_said_after_the_terminal_event():
    making = translation()
    events = making.start() + making.fail("It broke.")
    check(events)
    assert making.feed(delta(content="Hi")) == []
    assert making.finish(ended_well=True) == []
    assert making.fail("again") == []
    assert making.response["error"]["message"] == "It broke."
    assert making.status == "failed"


# ---------------------------------------------------------------- not streamed
def test_a_whole_completion_gives_the_same_response_as_its_stream():
    tool = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {
        "role": "assistant", "content": "Hi", "reasoning_content": "Hm", "refusal": None,
        "tool_calls": [tool],
    }  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    making = translation()
    events = making.complete({"model": "m-2", "choices": [choice], "usage": USAGE})
    check(events)
    chunks = [
        delta(reasoning_content="H"), delta(reasoning_content="m"), delta(content="Hi"),
        delta(**call(0, "c0", "f", "")), delta("tool_calls", **call(0, None, None, '{"a":1}')), USAGE_CHUNK,
    ]  # fmt: skip
    assert making.response == final(streamed(chunks))


# ---------------------------------------------------------------- the object
