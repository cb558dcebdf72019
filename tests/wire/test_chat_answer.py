"""The one reader of chat completions: what servers send, and what memory and the translation make of it."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.authorship import ThoughtSplitter
from proxy.wire.chat_answer import CallPiece, ChatReader, PieceKind, TextPiece
from proxy.wire.dialect import CHAT, Answer
from tests.support.examples import examples
from tests.wire.translation.support import call, delta, final, streamed

Json = dict[str, Any]


def read(*values, done=False, cut=False):
    """Return the texts by their kind, the calls (id, name, arguments), and the ending."""
    reader = ChatReader()
    pieces = [piece for value in values for piece in reader.take(value)] + reader.flush()
    texts: dict[PieceKind, str] = {}
    calls: dict[int, list[Any]] = {}
    for piece in pieces:
        if isinstance(piece, TextPiece):
            texts[piece.kind] = texts.get(piece.kind, "") + piece.text
        elif isinstance(piece, CallPiece):
            known = calls.setdefault(id(piece.call), [None, None, ""])
            known[:] = piece.call.id, piece.call.name, known[2] + piece.arguments
    return texts, [tuple(each) for each in calls.values()], reader.ending(done=done, cut=cut)


def remembered(*values: Json, done: bool = True, cut: bool = False) -> Answer:
    """Return the same stream as memory reads it."""
    events = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values]
    return CHAT.answer([*events, b"data: [DONE]\n\n" if done else b""], "text/event-stream", "", cut=cut)


def message(finish: str | None = None, **fields: Any) -> Json:
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": fields, "finish_reason": finish}],
    }


HI = delta(content="Hi")
HALF_CALL = delta(**call(0, "c0", "f", '{"a":'))


# ---------------------------------------------------------------- endings
@pytest.mark.parametrize(
    ("values", "done", "cut", "status"),
    [
        ([HI, delta("stop")], False, True, "completed"),  # the reset came after the end
        ([HI], False, False, "completed"),  # neither finish reason nor [DONE], ended in order
        ([HI], False, True, "failed"),
        ([delta("", content="Hi"), delta("")], False, False, "failed"),  # "" ends nothing
        ([HALF_CALL], True, False, "failed"),
        ([delta(**call(0, "c", "f", "{}"))], False, False, "completed"),
        ([delta("length", content="Hi")], False, False, "incomplete"),
        ([HI, delta("error")], True, False, "failed"),
        ([delta(role="assistant", content="")], False, False, "failed"),
        ([delta(reasoning="Hm"), delta("stop")], True, False, "failed"),  # thoughts only
        ([delta("stop", reasoning="Hm", refusal="No.")], True, False, "completed"),
    ],
)
def test_how_an_answer_ended_is_the_same_for_memory_and_translation(values, done, cut, status):
    assert read(*values, done=done, cut=cut)[2].status == status
    assert final(streamed(values, ended_well=done, cut=cut))["status"] == status
    assert remembered(*values, done=done, cut=cut).whole is (status != "failed")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"error": {"message": "kaput"}}, "kaput"),
        ({"choices": [{"index": 0, "error": {"message": "kaput", "code": 502}, "delta": {}}]}, "kaput"),
        ({"choices": None, "base_resp": {"status_code": 1004, "status_msg": "kaput"}}, "kaput"),
        ({"error": {"message": "Provider", "metadata": {"raw": "kaput"}}}, "Provider: kaput"),
        ({"error": {"code": "x"}}, "The upstream's answer failed."),
        ({}, "The upstream gave no answer."),
    ],
)
def test_an_error_in_a_200_has_the_providers_message(value, said):
    ending = read(value, done=True)[2]
    assert (ending.status, ending.problem and ending.problem.message) == ("failed", said)
    failed = final(streamed([value], ended_well=True))
    assert failed["error"] == {"code": "server_error", "message": said}


def test_what_came_before_an_error_is_kept_and_what_follows_is_not():
    values = [HI, {"choices": [{"index": 0, "delta": {}, "error": {"message": "x", "code": 429}}]}, HI]
    assert read(*values)[0] == {PieceKind.TEXT: "Hi"}
    failed = final(streamed(values))
    assert failed["error"]["code"] == "rate_limit_exceeded"
    assert failed["output"][0]["content"][0]["text"] == "Hi"


# ---------------------------------------------------------------- whole messages in a stream
@pytest.mark.parametrize(
    "values",
    [
        [message("stop", content="Hello", reasoning="Hm")],
        [message(content="Hel", reasoning="Hm"), message("stop", content="Hello", reasoning="Hm")],
        [message(content="Hel", reasoning="Hm"), message("stop", content="lo")],
        [delta(reasoning="H"), delta(reasoning="m"), message("stop", content="Hello", reasoning="Hm")],
    ],
)
def test_messages_that_grow_or_repeat_are_sent_once(values):
    assert read(*values)[0] == {PieceKind.TEXT: "Hello", PieceKind.THOUGHT: "Hm"}
    assert remembered(*values).text == "Hello"
    thought, said = final(streamed(values))["output"]
    assert (thought["content"][0]["text"], said["content"][0]["text"]) == ("Hm", "Hello")


# ---------------------------------------------------------------- tool calls
def fragment(arguments: str = "", *, index: Any = None, id: Any = None, name: Any = None) -> Json:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


A, B = fragment('{"a"', id="a", name="f"), fragment('{"b"', id="b", name="g")
MORE_A, MORE_B = fragment(":1}", id="a"), fragment(":2}", id="b")


@pytest.mark.parametrize(
    "chunks",
    [
        [[A], [B], [MORE_A], [MORE_B]],  # null indices, by id
        [[A, MORE_A, B, MORE_B]],  # several of one call in a chunk
        [[{**f, "index": 0}] for f in (A, B, MORE_A, MORE_B)],  # all at one index
        [[A, B], [fragment(":1}"), fragment(":2}")]],  # by order
        [[{**A, "index": 0}], [fragment(":1}", index=0)], [{**B, "index": 0}], [fragment(":2}", index=0)]],
    ],
)  # fmt: skip
def test_fragments_go_to_their_call(chunks):
    values = [delta(tool_calls=each) for each in chunks]
    expected = [("f", '{"a":1}'), ("g", '{"b":2}')]
    assert [each[1:] for each in read(*values)[1]] == expected
    items = final(streamed([*values, delta("tool_calls")]))["output"]
    assert [(item["name"], item["arguments"]) for item in items] == expected


# ---------------------------------------------------------------- thoughts
@pytest.mark.parametrize(
    ("expected", "content", "thoughts", "said"),
    [
        (False, "<think>\nHm\n</think>\n\nYes.", "Hm\n", "Yes."),
        (False, "\n <think>Hm</think>Yes </think>.", "Hm", "Yes </think>."),
        (False, "<think>Hm", "Hm", ""),
        (False, "<thought>Hm</think></thought>Yes.", "Hm</think>", "Yes."),
        (False, "Use <think>x</think>.", "", "Use <think>x</think>."),
        # The model's template begins the thoughts in the prompt.
        (True, "Hm\n</think>\n\nYes.", "Hm\n", "Yes."),
        (True, "</think>Yes </think>.", "", "Yes </think>."),
        (True, "<think>Hm</think>Yes.", "Hm", "Yes."),  # the mark came all the same
        (True, " It is blue.\n", "It is blue.\n", "It is blue."),  # no thoughts: the answer is not lost
    ],
)
@settings(max_examples=examples(20))
@given(st.data())
def test_thoughts_in_the_content_are_split_off_wherever_it_is_cut(expected, content, thoughts, said, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)))))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    splitter = ThoughtSplitter()
    if expected:
        splitter.assume(True)
    split = [each for piece in pieces for each in splitter.feed(piece)]
    if expected:
        assert splitter.is_unclosed == ("</think>" not in content)
    split += splitter.end(answers=expected)
    assert "".join(text for is_thought, text in split if is_thought) == thoughts
    assert "".join(text for is_thought, text in split if not is_thought) == said
    assert all(text for _, text in split)


@pytest.mark.parametrize(
    "values",
    [
        [message("stop", content="Hm\n</think>\nYes")],
        [
            delta(
                content=[
                    {"type": "thinking", "thinking": [{"text": "Hm\n"}]},
                    {"type": "text", "text": "Yes"},
                ]
            )
        ],
        [delta(content="Hm\n", extra_content={"google": {"thought": True}}), delta(content="Yes")],
        [delta(content=piece) for piece in ("<thi", "nk>Hm\n</", "think>\nYes")],
    ],
)
def test_thoughts_are_found_where_servers_put_them(values):
    assert read(*values)[0] == {PieceKind.THOUGHT: "Hm\n", PieceKind.TEXT: "Yes"}
    thought, said = final(streamed([*values, delta("stop")]))["output"]
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "Hm\n")
    assert said["content"][0]["text"] == remembered(*values).text == "Yes"


# ---------------------------------------------------------------- speech, bounds
def test_what_is_spoken_is_text_in_both():
    values = [delta(audio={"id": "a", "data": "UklG"}), delta(audio={"transcript": "It is "})]
    values += [delta(audio={"transcript": "Oslo."}), delta("stop")]
    assert final(streamed(values))["output"][0]["content"][0]["text"] == "It is Oslo."
    assert remembered(*values).text == "It is Oslo."
    both = delta("stop", content="Oslo.", audio={"transcript": "Oslo."})
    assert read(both)[0] == {PieceKind.TEXT: "Oslo."}


def test_a_flood_of_calls_or_of_changing_kinds_is_bounded():
    calls = [fragment("{}", index=i, id=f"c{i}", name="f") for i in range(20_000)]
    thinking = [delta(content="x", reasoning="y")] * 20_000
    for values in ([delta(tool_calls=calls)], thinking):
        started = time.thread_time()
        reader = ChatReader(limit_bytes=1 << 18)
        pieces = sum(len(reader.take(value)) for value in values)
        assert reader.problem is not None
        assert pieces < 1_000
        assert time.thread_time() - started < 2
