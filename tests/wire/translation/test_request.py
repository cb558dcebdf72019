"""A Responses request as a chat completion: fields, tools and what the response echoes."""

import re
from typing import Any

import pytest

from proxy.domain.errors import InvalidRequest
from proxy.wire.translation.request import ChatPlan, plan

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f", "parameters": FUNCTION["parameters"]}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def planned(**body: Any) -> ChatPlan:
    return plan({"model": "m", "input": "Hi", **body}, [])


def chat_of(**body: Any) -> dict[str, Any]:
    """Return a request's fields except model and messages."""
    chat = planned(**body).chat
    return {name: value for name, value in chat.items() if name not in ("model", "messages")}


def refusal(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        planned(**body)
    return caught.value


# ---------------------------------------------------------------- fields


SHARED = {
    "temperature": 0.2, "top_p": 0.9, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
    "service_tier": "flex", "presence_penalty": 0.1, "frequency_penalty": 0.3,
}  # fmt: skip
UNKNOWN_TO_CHAT = {
    "background": False, "client_metadata": {"a": "b"}, "context_management": [],
    "include": ["reasoning.encrypted_content"], "max_tool_calls": 3, "metadata": {"a": "b"},
    "previous_response_id": "resp_1", "prompt": None, "store": False, "stream": False, "truncation": "auto",
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "chat"),
    [
        (SHARED, SHARED),
        (UNKNOWN_TO_CHAT, {}),
        ({"seed": 7, "guided": {"a": None}}, {"seed": 7, "guided": {"a": None}}),  # the upstream may know it
        (
            {"reasoning": {"effort": "low"}, "text": {"verbosity": "high"}},
            {"reasoning_effort": "low", "verbosity": "high"},
        ),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
    ],
)
def test_fields_have_the_names_that_chat_completions_know(body, chat):
    assert chat_of(**body) == chat


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        ),
    ],
)
def test_text_format_becomes_response_format(given, expected):
    assert chat_of(text={"format": given}).get("response_format") == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"), ({"input": 3}, "input"), ({"model": None}, "model"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"), ({"text": "plain"}, "text"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"conversation": {"id": "conv_\u00e9"}}, "conversation"), ({"conversation": {}}, "conversation.id"),
        ({"truncation": "middle"}, "truncation"), ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"), ({"safety_identifier": "s" * 129}, "safety_identifier"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}, "tools[0].parameters"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_by_name(body, param):
    assert refusal(**body).param == param


# ---------------------------------------------------------------- tools
def test_hosted_tools_are_left_out_and_named_once():
    tools = [{"type": "web_search"}, FUNCTION, {"type": "namespace", "name": "n"}, {"type": "web_search"}]
    made = planned(tools=tools, tool_choice="auto", parallel_tool_calls=False)
    assert made.dropped == ("web_search", "namespace")
    assert made.chat["tools"] == [CHAT_FUNCTION]
    assert made.chat["tool_choice"] == "auto"
    assert made.chat["parallel_tool_calls"] is False
    assert [tool["type"] for tool in made.echo["tools"]] == [
        "web_search", "function", "namespace", "web_search",
    ]  # fmt: skip


def test_a_custom_tool_is_a_function_of_one_string():
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    tool = {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar}
    made = planned(tools=[tool], tool_choice={"type": "custom", "name": "patch"})
    function = made.chat["tools"][0]["function"]
    assert function["name"] == "patch"
    assert "Edits." in function["description"]
    assert "start: /a+/" in function["description"]
    assert function["parameters"]["required"] == ["input"]
    assert made.chat["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    assert made.dropped == ()
    assert made.echo["tools"] == [tool]


# ---------------------------------------------------------------- namespaces, and the client's own tools
def space(name: str, *tools: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "namespace", "name": name, "description": "d",
        "tools": [FUNCTION | {"name": t} for t in tools], **fields,
    }  # fmt: skip


def names_of(**body: Any) -> list[str]:
    return [tool["function"]["name"] for tool in planned(**body).chat.get("tools", [])]


def test_flat_names_are_valid_unique_and_do_not_depend_on_the_order():
    tools = [
        space("a", "b__c"), space("a__b", "c"), space("1 naïve", "x.y"), space("long" * 20, "tool" * 20),
        FUNCTION | {"name": "a__z"}, space("a", "z"), {"type": "shell"}, FUNCTION | {"name": "shell"},
    ]  # fmt: skip
    names = names_of(tools=tools)
    assert len(set(names)) == len(names) == 8
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in names)
    assert {"a__z", "shell"} <= set(names)
    assert set(names_of(tools=tools[::-1])) == set(names)


def named(name: str, **more: str) -> dict[str, Any]:
    return {"type": "function", "name": name, **more}


def nested(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


MAIL = {"type": "namespace", "name": "mail"}


@pytest.mark.parametrize(
    ("choice", "names", "mode"),
    [
        (named("send"), 3, nested("mail__send")),
        (named("search", namespace="mail"), 3, nested("mail__search")),
        (named("search"), 2, "required"),
        (MAIL, 2, "required"),
        ({"type": "allowed_tools", "mode": "required", "tools": [named("send")]}, 1, "required"),
    ],
)
def test_a_choice_may_name_tools_of_a_namespace(choice, names, mode):
    chat = chat_of(tools=[space("tickets", "search"), space("mail", "search", "send")], tool_choice=choice)
    assert (len(chat["tools"]), chat["tool_choice"]) == (names, mode)


# ---------------------------------------------------------------- echo
