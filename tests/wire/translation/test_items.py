"""Input items: their one shape, their ids, references, and the chat messages that they become."""

import json
from typing import Any

import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from proxy.domain.errors import InvalidRequest, NotFound
from proxy.wire.translation.items import as_items
from proxy.wire.translation.request import ChatPlan, plan

Json = dict[str, Any]
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
PIXEL = "data:image/png;base64,AAAA"


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def said(text: str, id: str = "msg_1") -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def called(call_id: str, name: str = "f", **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def answered(call_id: str, output: Any = "ok") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(text: str) -> Json:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def messages(items: Any, earlier: list[Json] | None = None, referenced: Json | None = None) -> list[Json]:
    chat_messages: list[Json] = plan({"model": "m", "input": items}, earlier or [], referenced).chat[
        "messages"
    ]
    return chat_messages


def planned(items: Any, **body: Any) -> ChatPlan:
    return plan({"model": "m", "input": items, **body}, [])


def outline(items: Any, earlier: list[Json] | None = None) -> list[str]:
    """Return each message as its role and its calls, or what it answers."""
    return [
        m["role"]
        + "".join(f" {c['id']}" for c in m.get("tool_calls", ()))
        + f" {m.get('tool_call_id', '')}".rstrip()
        for m in messages(items, earlier)
    ]


def refusal(items: Any, earlier: list[Json] | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        messages(items, earlier)
    return caught.value


# ---------------------------------------------------------------- messages
def test_messages_become_messages_and_whatever_the_system_says_comes_first():
    items = [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        said("Hello") | {"phase": "final_answer"},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        user("Bye"),
    ]
    assert messages(items) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]


def test_parts_become_chat_parts():
    content = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:;base64,AA"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    assert messages([user(content)])[0]["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:;base64,AA"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("Hi", "input[0]"),
        ({"role": "user"}, "input[0].content"),
        (user([{"type": "input_text"}]), "input[0].content[0].text"),
        (user([{"type": "input_video"}]), "input[0].content[0].type"),
        (user([{"type": "input_image", "file_id": "file_1"}]), "input[0].content[0].file_id"),
        (user([{"type": "input_file", "file_url": "https://a/b"}]), "input[0].content[0].file_url"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({"type": "computer_call_output", "call_id": "c", "output": {}}, "input"),
    ],
)
def test_what_has_no_chat_form_is_refused_by_name(item, param):
    assert refusal([item]).param == param


# ---------------------------------------------------------------- calls and outputs
def test_parallel_calls_are_one_message_followed_by_their_outputs():
    items = [user("Go"), called("c1"), called("c2", "g"), answered("c1", "one"), answered("c2", "two")]
    assert messages(items)[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ]


def test_a_call_without_its_output_is_refused_unless_it_was_cut_off_and_an_output_without_its_call():
    for items in ([called("c1", status="completed"), user("Hi")], [user("Go"), answered("c1")]):
        error = refusal(items)
        assert (error.param, "c1" in error.message) == ("input", True)
    cut = [said("So"), called("c1", id="fc_1", status="incomplete")]
    assert outline([user("Hi")], cut) == ["assistant", "user"]


# ---------------------------------------------------------------- reasoning
def test_thoughts_go_back_while_the_model_is_calling_tools_and_no_longer():
    loop = [thought("Hmm"), called("c1"), answered("c1")]
    assert messages([user("Go"), *loop])[1]["reasoning_content"] == "Hmm"
    assert all(
        "reasoning_content" not in m for m in messages([user("Go"), *loop, said("Done"), user("Thanks")])
    )
    assert messages([user("Go"), thought("Hmm"), said("Done")])[1] == {"role": "assistant", "content": "Done"}


# ---------------------------------------------------------------- references
def test_a_reference_becomes_the_item_it_names():
    reference = {"type": "item_reference", "id": "msg_9"}
    made = plan(
        {"model": "m", "input": [user("Hi"), reference, user("Bye")]}, [], {"msg_9": said("Yo", "msg_9")}
    )
    assert [m["content"] for m in made.chat["messages"]] == ["Hi", "Yo", "Bye"]
    assert made.input_items[1] == said("Yo", "msg_9")


def test_a_reference_to_nothing_is_refused():
    with pytest.raises(NotFound) as caught:
        messages([user("Hi"), {"type": "item_reference", "id": "msg_9"}])
    assert (caught.value.param, caught.value.code) == ("input", "item_not_found")
    assert refusal([user("Hi"), {"type": "item_reference", "id": 5}]).param == "input[1].id"


# ---------------------------------------------------------------- as they are kept
def test_items_are_complete_to_the_official_sdk():
    items = as_items(
        [
            user("Hi"), user([{"type": "input_image", "image_url": PIXEL}]),
            {"role": "assistant", "content": "Yo"}, thought("Hmm"), called("c1"), answered("c1"),
            answered("c1", [{"type": "input_text", "text": "x"}]),
        ]
    )  # fmt: skip
    for item in items:
        ITEM.validate_python(item)
        assert item["id"]
        assert item["type"] == "reasoning" or item["status"] == "completed"
    assert items[0]["content"] == [{"type": "input_text", "text": "Hi"}]
    assert items[1]["content"][0]["detail"] == "auto"
    assert items[2]["content"] == [{"type": "output_text", "text": "Yo", "annotations": [], "logprobs": []}]
    assert items[5]["output"] == "ok"


# ---------------------------------------------------------------- what a client can hold
# fmt: off
# fmt: on


# fmt: off
CLIENT_RUN: list[tuple[Json, Json, str, Json, str]] = [
    ({"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"], "env": {}}},
     {"type": "local_shell_call_output", "id": "c", "output": "b.txt"},
     "local_shell", {"command": ["ls"]}, "b.txt"),
    ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "false"], "timeout_ms": None}},
     {"type": "shell_call_output", "call_id": "c",
      "output": [{"stdout": "b", "stderr": "e", "outcome": {"type": "exit", "exit_code": 1}}]},
     "shell", {"commands": ["ls", "false"]}, "b\ne\n[exit code 1]"),
    ({"type": "apply_patch_call", "call_id": "c",
      "operation": {"type": "update_file", "path": "a", "diff": "+2"}},
     {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such line"},
     "apply_patch", {"type": "update_file", "path": "a", "diff": "+2"}, "failed: no such line"),
    ({"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "mail"}},
     {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [{"name": "send"}]},
     "tool_search", {"query": "mail"}, "Tools that can be called now: send"),
    ({"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
     {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
     "computer", {"action": {"type": "click", "x": 1, "y": 2}}, "[a screenshot]"),
]
# fmt: on


@pytest.mark.parametrize(("call", "output", "name", "arguments", "text"), CLIENT_RUN)
def test_what_the_client_ran_is_a_call_and_its_output(call, output, name, arguments, text):
    _, asked, came = messages([user("Go"), call, output])
    function = asked["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == (name, arguments)
    assert came == {"role": "tool", "tool_call_id": "c", "content": text}


def test_an_unknown_item_is_left_out_and_named_and_kept():
    made = planned([user("Hi"), {"type": "hologram\r\n", "x": 1}, {"type": "hologram\r\n"}, user("Ho")])
    assert [m["content"] for m in made.chat["messages"]] == ["Hi", "Ho"]
    assert made.left_out == ("hologram??",)
    assert made.input_items[1]["x"] == 1
    with pytest.raises(InvalidRequest) as caught:
        as_items([{"type": "hologram"}], param="items", only_known=True)
    assert caught.value.param == "items[0].type"
