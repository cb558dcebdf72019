"""Chat completions: the whole vocabulary is read, the block goes where it should, answers are heard."""

import copy
from typing import Any

import orjson
import pytest

from proxy.domain.core import Message
from proxy.wire.authorship import fence
from proxy.wire.dialect import CHAT, Answer

BLOCK = fence(["[semantic 2026-01-14 #ab12cd34] User's budget is 10,000"])
NOTE = {"role": "system", "content": BLOCK}

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
FILE = {"type": "file", "file": {"file_id": "f"}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
OUTPUT = {"role": "tool", "tool_call_id": "c1", "content": "21 degrees"}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


# ---------------------------------------------------------------- reading
def test_every_role_and_kind_of_content_is_read():
    body = {
        "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "developer", "content": [text("Be brief.")]},
            user([text("Look:"), IMAGE, AUDIO, FILE, text("what is it?")]), CALL, OUTPUT,
            {"role": "tool", "content": [text("a"), text("b")]},
            {"role": "function", "name": "f", "content": "old style"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}, user([IMAGE]),
            {"role": "user", "name": "ada", "content": ["plain", {"type": "input_text", "text": "parts"}]},
        ]
    }  # fmt: skip
    assert CHAT.messages(body) == (
        Message("system", "Be kind."), Message("developer", "Be brief."),
        Message("user", "Look:\nwhat is it?"), Message("assistant", ""), Message("tool", "21 degrees"),
        Message("tool", "a\nb"), Message("tool", "old style"), Message("assistant", "I cannot."),
        Message("user", ""), Message("user", "plain\nparts"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "role"),
    [
        *((content, "tool") for content in ([IMAGE], [text(BLOCK), IMAGE])),
        *((content, "user") for content in ([IMAGE, text("Is this it?")], [AUDIO], 7)),
    ],
)
def test_what_follows_a_tools_output_is_the_users_if_it_may_have_words(content, role):
    said = CHAT.messages({"messages": [user("Book it."), CALL, OUTPUT, user(content)]})
    assert [m.role for m in said] == ["user", "assistant", "tool", role]


ODD_BODIES: list[dict[str, Any]] = [
    {}, {"messages": None}, {"messages": "hi"}, {"messages": {"role": "user"}},
    {"messages": [None, 1, "x", [], {}, {"role": ["user"]}, {"role": "narrator", "content": "x"}]},
]  # fmt: skip


@pytest.mark.parametrize("body", ODD_BODIES)
def test_what_is_not_understood_contributes_nothing_and_is_left_alone(body):
    assert CHAT.messages(body) == ()
    assert CHAT.insert(body, BLOCK, "before_last_user") is body
    assert CHAT.conversation_key(body) == ""


def test_our_own_block_that_comes_back_is_not_read():
    body = {"messages": [NOTE, user("hi"), {"role": "assistant", "content": f"You said:\n\n{BLOCK}"}]}
    assert CHAT.messages(body) == (Message("user", "hi"), Message("assistant", "You said:"))


def test_the_conversation_key_stays_while_the_conversation_grows():
    start = [{"role": "system", "content": "Be kind."}, user("My dog is called Rex.")]
    key = CHAT.conversation_key({"messages": start})
    grown = [*start, {"role": "assistant", "content": "Nice."}, user("How old is he?")]
    assert CHAT.conversation_key({"messages": grown, "model": "other"}) == key
    assert CHAT.conversation_key(CHAT.insert({"messages": grown}, BLOCK, "merge_system")) == key
    assert CHAT.conversation_key({"messages": [start[0], user("Hello")]}) != key
    assert CHAT.conversation_key({"messages": start[1:]}) != key
    one, other = ([{"role": "system", "content": a}, user(b)] for a, b in (("a\nb", "c"), ("a", "b\nc")))
    assert CHAT.conversation_key({"messages": one}) != CHAT.conversation_key({"messages": other})


# ---------------------------------------------------------------- inserting
HISTORY = [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."}]


RULES, BRIEF = HISTORY
A, B, C, SHOT = user("a"), user("b"), user("c"), user([IMAGE])
LATE = {"role": "system", "content": "late"}
ANSWER = {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("placement", "messages", "expected"),
    [
        ("before_last_user", [RULES, A, ANSWER, C], [RULES, A, ANSWER, NOTE, C]),
        ("before_last_user", [A, B, CALL, OUTPUT], [A, NOTE, B, CALL, OUTPUT]),
        # A tool shows an image: the question is before it.
        ("before_last_user", [A, CALL, OUTPUT, SHOT], [NOTE, A, CALL, OUTPUT, SHOT]),
        ("in_user", [A, CALL, OUTPUT, SHOT], [user(f"{BLOCK}\n\na"), CALL, OUTPUT, SHOT]),
        ("in_user", [A, B], [A, user(f"{BLOCK}\n\nb")]),
        ("in_user", [{**SHOT, "name": "ada"}], [{**user([text(BLOCK), IMAGE]), "name": "ada"}]),
        ("after_system", [*HISTORY, A, LATE, B], [*HISTORY, NOTE, A, LATE, B]),
        ("merge_system", [*HISTORY, A], [RULES, {**BRIEF, "content": f"Be brief.\n\n{BLOCK}"}, A]),
        ("merge_system", [{**RULES, "content": [text("x")]}, A],
         [{**RULES, "content": [text("x"), text(BLOCK)]}, A]),
        # No user message, or content of an unknown form: no place.
        ("before_last_user", [CALL, OUTPUT, SHOT], None),
        ("after_system", [*HISTORY, CALL, OUTPUT], None),
        ("merge_system", [{"role": "system", "content": {"new": 1}}, A], None),
        ("in_user", [user(None)], None),
    ],
)  # fmt: skip
def test_the_block_has_its_place_and_all_else_is_unchanged(placement, messages, expected):
    body = {"model": "m", "messages": messages, "temperature": 0}
    before = copy.deepcopy(body)
    result = CHAT.insert(body, BLOCK, placement)
    assert result == (body if expected is None else {**before, "messages": expected})
    assert body == before
    assert CHAT.insert(body, "", placement) is body


# ---------------------------------------------------------------- answers
def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "choices": [choice]}) + b"\n\n"


def heard(*chunks, coding="", kind="text/event-stream; charset=utf-8", cut=False):
    return CHAT.answer(chunks, kind, coding, cut=cut)


ROLE, HEL, LO, STOP = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo ü"}),
    chunk({}, "stop"),
)
USAGE = b'data: {"id":"c","choices":[],"usage":{"total_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_a_stream_is_heard_to_its_end():
    whole = Answer("Hello ü", whole=True)
    assert heard(ROLE, HEL, LO, STOP, USAGE, DONE) == whole
    assert heard(ROLE, HEL, LO, STOP) == whole
    other = chunk({"content": "other"}, "stop", index=1)  # only the first choice counts
    stream = b"".join((b": keep-alive\n\n", ROLE, HEL, b"data: 7\n\n", other, LO, STOP, DONE))
    assert heard(stream, kind="application/json") == whole


def test_a_broken_stream_gives_what_was_heard():
    assert heard(ROLE, HEL, LO, cut=True) == Answer("Hello ü", whole=False)
    assert heard(ROLE, HEL, LO[:-9]) == Answer("Hel", whole=False)
    unread = heard(b"\x00\x01\x02 damaged", coding="zstd")
    assert unread == Answer()
    assert "zstd" in unread.unread
    assert heard(ROLE, HEL, b'data: {"error":{"message":"overloaded"}}\n\n', DONE) == Answer(
        "Hel", whole=False
    )
    assert heard() == heard(b"") == Answer()


def document(message: dict[str, Any], finish: str | None = "stop") -> bytes:
    return orjson.dumps({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def test_a_document_is_heard():
    as_json = {"kind": "application/json"}
    assert heard(document({"content": "Hi"}), **as_json) == Answer("Hi", whole=True)
    assert heard(document({"content": [text("a"), text("b")]}), **as_json) == Answer("a\nb", whole=True)
    assert heard(document({"content": None, "refusal": "No."}), **as_json) == Answer("No.", whole=True)
    assert heard(document({"content": "Hi"})[:-3], **as_json) == Answer()
