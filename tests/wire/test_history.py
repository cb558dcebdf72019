"""Turns in a body: where they begin and end, what keeps one from going, and what is left without them."""

import copy
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.core import Message
from proxy.wire.authorship import fence
from proxy.wire.dialect import PLACEMENTS
from proxy.wire.history import (
    CHAT_HISTORY,
    RESPONSES_HISTORY,
    HistoryFormat,
    HistoryTurn,
    remaining,
    turns_of,
    without,
)

BLOCK = fence(["- topic: Hawaii"])
NOTE = {"role": "system", "content": BLOCK}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
RULES = {"role": "system", "content": "Be kind."}


def user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(content: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return reply(None, tool_calls=made)


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "21 degrees"}


def call(id_: str, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": id_, "name": "f", "arguments": "{}"}


def output(id_: str, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": id_, "output": "21 degrees"}


def chat(*messages: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **more}


def turns(body: dict[str, Any], history: HistoryFormat = CHAT_HISTORY) -> list[HistoryTurn]:
    return turns_of(body, history, history.dialect.messages(body))


def whole(*entries: Any, history: HistoryFormat = CHAT_HISTORY) -> bool:
    """Return whether a turn of these entries, with another after it, may go."""
    return turns({history.field: [*entries, user()]}, history)[0].whole


# ---------------------------------------------------------------- where a turn begins and ends
def test_a_turn_is_a_question_and_all_that_follows_it():
    late = {"role": "developer", "content": "It is Monday."}
    talk = chat(
        RULES, reply("How can I help?"), user("1"), user("2"), reply(), late, user("3"), late, reply()
    )
    assert [turn.positions for turn in turns(talk)] == [(2, 3, 4), (6, 8)]
    assert [turn.asked for turn in turns(talk)] == [4, 8]
    body = chat(RULES, user(), calls("a", "b"), result("a"), result("b"), reply(), user(), reply(), user())
    assert [turn.positions for turn in turns(body)] == [(1, 2, 3, 4, 5), (6, 7), (8,)]
    assert [(turn.start, turn.asked, turn.end) for turn in turns(body)] == [(1, 2, 6), (6, 7, 8), (8, 9, 9)]


@pytest.mark.parametrize("field", [{"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_1"}}])
def test_a_conversation_that_the_upstream_holds_has_no_turns(field):
    body = responses(user(), reply(), user(), **field)
    assert turns(body, RESPONSES_HISTORY) == []


# ---------------------------------------------------------------- what keeps a turn
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([user([{"type": "text", "text": "this"}, IMAGE]), reply()], id="an image"),
        pytest.param([user(), reply(None, audio={"id": "a"})], id="an answer that was spoken"),
        pytest.param([user(), calls("a"), reply()], id="a call without its output"),
        pytest.param([user(), result("a"), reply()], id="an output without its call"),
        pytest.param([user()], id="a question that nobody answered"),
        pytest.param(
            [user(), reply(None, tool_calls=[{"type": "function"}]), reply()], id="a call without id"
        ),
        pytest.param([user(), {"role": "critic", "content": "x"}, reply()], id="an unknown role"),
    ],
)
def test_a_turn_that_says_more_than_can_be_known_stays(entries):
    assert not whole(*entries)
    assert whole(user(), calls("a", "b"), result("b"), result("a"), reply())
    assert not whole(user(), {"type": "tomorrow_call", "id": "t"}, reply(), history=RESPONSES_HISTORY)


CALLED = [
    f"{kind}_call{end}"
    for kind in ("function", "custom_tool", "computer", "local_shell", "shell", "apply_patch")
    for end in ("", "_output")
] + ["mcp_approval_request"]


# ---------------------------------------------------------------- without them
def test_the_block_replaces_the_first_turn():
    greeting, late = reply("How can I help?"), {"role": "system", "content": "It is Monday."}
    body = chat(RULES, greeting, user("one"), reply("1"), late, user("two"), reply("2"), user("three"))
    before = copy.deepcopy(body)
    first, second, _ = turns(body)
    shorter = without(body, CHAT_HISTORY, [first, second], BLOCK, "before_last_user")
    assert shorter == {**body, "messages": [RULES, greeting, NOTE, late, user("three")]}
    assert without(body, CHAT_HISTORY, [second], BLOCK, "before_last_user")["messages"][:5] == [
        *body["messages"][:5]
    ]
    assert without(body, CHAT_HISTORY, [first], "", "before_last_user") is body == before


# ---------------------------------------------------------------- for every conversation
texts = st.sampled_from(["", "a", "b c", BLOCK, "é我", "\ud83d"])
anything = st.none() | st.integers() | texts | st.just([IMAGE]) | st.just([{"type": "text", "text": "x"}])
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "odd", None])
said = st.fixed_dictionaries({"role": roles, "content": anything}, optional={"tool_call_id": texts})
pairs = st.sampled_from(["a", "b"])
chat_entries = said | st.builds(calls, pairs) | st.builds(result, pairs) | anything
kinds = st.sampled_from([*CALLED, "reasoning", "mcp_call", "mcp_list_tools", "item_reference", "message", 3])
items = said | st.fixed_dictionaries({"type": kinds}, optional={"id": pairs, "call_id": pairs}) | anything
chats = st.lists(chat_entries, max_size=12).map(lambda entries: chat(*entries))
inputs = st.builds(
    lambda entries, instructions: responses(*entries, instructions=instructions),
    st.lists(items, max_size=12),
    texts | st.none(),
)
conversations = st.tuples(chats, st.just(CHAT_HISTORY)) | st.tuples(inputs, st.just(RESPONSES_HISTORY))


@given(conversations)
def test_the_messages_of_a_turn_are_those_of_its_entries(given):
    body, history = given
    read, entries = history.dialect.messages, body[history.field]
    found = turns(body, history)
    assert bool(found) == any(m.role == "user" for m in read(body))
    for turn in found:
        first, last = turn.positions[0], turn.positions[-1]
        assert turn.start == len(read({**body, history.field: entries[:first]}))
        assert turn.end >= len(read({**body, history.field: entries[: last + 1]}))
        assert read(body)[turn.start].role == "user"
        assert all(m.role != "assistant" for m in read(body)[turn.start : turn.asked])
    ends = [(a.end, b.start) for a, b in pairwise(found)]
    assert all(end == start for end, start in ends)


@given(conversations, st.data())
def test_what_is_left_is_what_was_there_in_its_order(given, data):
    body, history = given
    before = copy.deepcopy(body)
    found = turns(body, history)
    removed = data.draw(st.lists(st.sampled_from(found), unique=True)) if found else []
    placement = data.draw(st.sampled_from(sorted(PLACEMENTS)))
    shorter = without(body, history, removed, BLOCK, placement)
    assert body == before
    at_positions = {place for turn in removed for place in turn.positions}
    left = [entry for place, entry in enumerate(body[history.field]) if place not in at_positions]
    if shorter is not body and placement == "before_last_user":
        at = min(at_positions)
        assert shorter[history.field][:at] + shorter[history.field][at + 1 :] == left
        assert shorter[history.field][:at] == body[history.field][:at]
    if shorter is not body:
        read = history.dialect.messages
        assert list(map(speaker_of, read(shorter))) == list(map(speaker_of, remaining(read(body), removed)))


def speaker_of(message: Message) -> Message:
    """A message without words may come to follow what a tool returned: then it reads as the tool's."""
    return message if message.text or message.role != "tool" else Message("user", "")


@given(conversations, st.data())
def test_no_call_or_output_loses_its_other_half(given, data):
    body, history = given
    free = [turn for turn in turns(body, history) if turn.whole]
    removed = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    shorter = without(body, history, removed, BLOCK, "before_last_user")
    before, after = halves(body, history), halves(shorter, history)
    for called, call in list(after):
        assert bool(after[not called, call]) == bool(before[not called, call])


def halves(body: dict[str, Any], history: HistoryFormat) -> Counter[tuple[bool, str]]:
    """Return how often each id is called (True) and answered (False)."""
    read = [history.read(entry) for entry in body[history.field]]
    called = ((True, call) for entry in read for call in entry.calls)
    return Counter([*called, *((False, entry.output) for entry in read if entry.output is not None)])
