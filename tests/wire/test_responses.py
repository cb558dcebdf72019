"""The Responses API: items of every type, instructions, events, and the upstream's own ids."""

import copy
from typing import Any

import orjson
import pytest

from proxy.domain.core import Message
from proxy.wire.authorship import fence
from proxy.wire.dialect import PLACEMENTS, RESPONSES, Answer

BLOCK = fence(["[semantic 2026-01-14 #ab12cd34] User's budget is 10,000"])


def part(said: str, kind: str = "input_text") -> dict[str, str]:
    return {"type": kind, "text": said}


def item(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


NOTE = item("system", [part(BLOCK)])
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "21 degrees"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [part("hmm", "summary_text")], "content": []}
REFERENCE = {"type": "item_reference", "id": "msg_1"}


# ---------------------------------------------------------------- reading


def test_every_kind_of_item_is_read_or_passed_over():
    body = {
        "input": [
            {"role": "developer", "content": "Be brief."},
            item("user", [part("Look:"), {"type": "input_image", "image_url": "x"}, part("well?")]),
            *(REASONING, CALL, OUTPUT),
            {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [part("a"), part("b")]},
            {"type": "computer_call_output", "call_id": "c3", "output": {"type": "computer_screenshot"}},
            REFERENCE,
            {"type": "from_the_future", "role": "user", "content": "not ours to judge"},
            {"type": "message", "role": "assistant", "content": [part("Fine.", "output_text")]},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"type": None, "role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        ]
    }
    assert RESPONSES.messages(body) == (
        Message("developer", "Be brief."), Message("user", "Look:\nwell?"), Message("assistant", ""),
        Message("tool", "21 degrees"), Message("assistant", ""), Message("tool", "a\nb"), Message("tool", ""),
        Message("assistant", "Fine."), Message("assistant", "No."), Message("user", ""),
    )  # fmt: skip


IMAGE = item("user", [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}])


@pytest.mark.parametrize(
    "body",
    [
        {"input": 7},
        {
            "instructions": 7,
            "input": [None, 1, "x", [], {}, {"type": 7}, {"type": ["message"], "role": "user"}],
        },
        {"input": [{"role": "narrator", "content": "x"}, {"role": ["user"], "content": "x"}]},
    ],
)
def test_what_is_not_understood_contributes_nothing_and_is_left_alone(body):
    assert RESPONSES.messages(body) == ()
    assert RESPONSES.conversation_key(body) == ""
    for placement in PLACEMENTS:
        assert RESPONSES.insert(body, BLOCK, placement) is body


def test_the_conversation_key_is_the_upstreams_own_where_there_is_one():
    named = RESPONSES.conversation_key({"input": "Hi", "conversation": "conv_1"})
    assert named == RESPONSES.conversation_key({"input": "What else?", "conversation": {"id": "conv_1"}})
    assert named != RESPONSES.conversation_key({"input": "Hi", "conversation": "conv_2"})
    unnamed = RESPONSES.conversation_key({"input": "Hi", "conversation": None})
    assert unnamed == RESPONSES.conversation_key({"input": [item("user", [part("Hi")]), CALL, OUTPUT]})
    assert unnamed != RESPONSES.conversation_key({"instructions": "Be kind.", "input": "Hi"})


# ---------------------------------------------------------------- inserting


A, B, HI = item("user", "a"), item("user", "b"), item("user", [part("Hi")])
BRIEF = {"role": "developer", "content": "Be brief."}


@pytest.mark.parametrize(
    ("placement", "fields", "expected"),
    [
        ("before_last_user", {"input": "Hi"}, {"input": [NOTE, HI]}),
        ("before_last_user", {"input": [A, REASONING, CALL, OUTPUT, B, CALL, OUTPUT]},
         {"input": [A, REASONING, CALL, OUTPUT, NOTE, B, CALL, OUTPUT]}),
        ("after_system", {"input": [BRIEF, A]}, {"input": [BRIEF, NOTE, A]}),
        ("merge_system", {"input": "Hi", "instructions": "Be kind."},
         {"input": "Hi", "instructions": f"Be kind.\n\n{BLOCK}"}),
        ("merge_system", {"input": "Hi", "instructions": None}, {"input": "Hi", "instructions": BLOCK}),
        ("in_user", {"input": "Hi"}, {"input": f"{BLOCK}\n\nHi"}),
        ("in_user", {"input": [HI, CALL]}, {"input": [item("user", [part(BLOCK), part("Hi")]), CALL]}),
        *((placement, {"input": [OUTPUT, IMAGE], "instructions": "x"}, None) for placement in PLACEMENTS),
    ],
)  # fmt: skip
def test_the_block_has_its_place_and_all_else_is_unchanged(placement, fields, expected):
    body = {"model": "m", **fields}
    before = copy.deepcopy(body)
    result = RESPONSES.insert(body, BLOCK, placement)
    assert result == (body if expected is None else {"model": "m", **expected})
    assert body == before


# ---------------------------------------------------------------- answers
def event(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def delta(text: str, output: int = 0, content: int = 0, kind: str = "output_text") -> bytes:
    return event(f"response.{kind}.delta", output_index=output, content_index=content, delta=text)


def response(status: str, *texts: str) -> dict[str, Any]:
    said = [item("assistant", [part(text, "output_text")]) for text in texts]
    return {"id": "resp_1", "object": "response", "status": status, "output": [REASONING, *said, CALL]}


def heard(*chunks: bytes, kind: str = "text/event-stream") -> Answer:
    return RESPONSES.answer(chunks, kind, "")


CREATED = event("response.created", response=response("in_progress"))


def test_a_stream_is_heard_to_its_end():
    thought = event("response.reasoning_text.delta", output_index=0, content_index=0, delta="hmm")
    arguments = event("response.function_call_arguments.delta", output_index=2, delta="{}")
    completed = event("response.completed", response=response("completed", "Hello"))
    assert heard(CREATED, thought, delta("Hel", 1), delta("lo", 1), arguments, completed) == Answer(
        "Hello", whole=True, response_id="resp_1", calls=True
    )


def test_a_broken_stream_gives_what_was_heard():
    assert heard(CREATED, delta("Hel"), delta("lo")[:-4]) == Answer("Hel", False, "resp_1")
    failed = event("response.failed", response=response("failed"))
    assert heard(CREATED, delta("Hel"), failed) == Answer("Hel", False, "resp_1")
    assert heard(CREATED, delta("Hel"), event("error", message="overloaded")) == Answer(
        "Hel", False, "resp_1"
    )


@pytest.mark.parametrize(
    ("status", "whole"),
    [("completed", True), ("incomplete", True), ("failed", False), ("in_progress", False)],
)
def test_a_document_is_heard(status, whole):
    raw = orjson.dumps(response(status, "One.", "Two."))
    assert heard(raw, kind="application/json") == Answer("One.\nTwo.", whole, "resp_1", calls=True)
