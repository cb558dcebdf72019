"""Convert tools and the choice among them: functions pass, custom tools pass as functions, hosted ones
cannot.

Hosted tools (web search, file search, MCP servers, Codex' namespaces …) run at OpenAI. Clients send them
unasked and break on a refusal, so they are left out and named; only a choice that demands one is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.wire.body import Body
from proxy.wire.translation.checks import (
    ARRAY,
    BOOLEAN,
    OBJECT,
    STRING,
    checked,
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)
from proxy.wire.translation.messages import CUSTOM_ARGUMENT

Tool = dict[str, Any]
_MODES = ("auto", "none", "required")
_EMPTY_SCHEMA = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tools:
    """A request's tools: what the chat body says of them, what the response echoes, what is left out."""

    chat: Body
    echo: Body
    dropped: tuple[str, ...]


def translate_tools(body: Body) -> Tools:
    """Return the tools, the choice and `parallel_tool_calls` of a request. Raises InvalidRequest."""
    given = optional(body, "tools", ARRAY) or []
    tools = [_flat(tool, f"tools[{index}]") for index, tool in enumerate(given)]
    choice = _flat_choice(body.get("tool_choice"))
    parallel = optional(body, "parallel_tool_calls", BOOLEAN)
    chosen = _allowed(tools, choice)
    callable_tools = [_chat_tool(tool) for tool in chosen if tool["type"] in _CALLABLE]
    mode = _chat_choice(choice, callable_tools)
    chat: Body = {}
    if callable_tools:  # without tools both are refused by OpenAI, and an empty list too
        given_values = {"tools": callable_tools, "tool_choice": mode, "parallel_tool_calls": parallel}
        chat = {name: value for name, value in given_values.items() if value is not None}
    echo = {
        "tools": tools,
        "tool_choice": "auto" if choice is None else choice,
        "parallel_tool_calls": parallel is not False,
    }
    return Tools(chat, echo, _dropped(tools))


def custom_names(tools: Iterable[Tool]) -> frozenset[str]:
    """Return the names of the custom tools among those that a response echoes."""
    return frozenset(tool["name"] for tool in tools if tool["type"] == "custom")


def _dropped(tools: Iterable[Tool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(shown(tool["type"]) for tool in tools if tool["type"] not in _CALLABLE))


# ---------------------------------------------------------------- as the response echoes them
def _flat(tool: Any, param: str) -> Tool:
    """Return the tool in the API's flat shape, also if it came in the nested one of chat completions."""
    kind = required(checked(tool, OBJECT, param), "type", STRING, within=param)
    if kind not in _CALLABLE:
        return dict(tool)
    nested = optional(tool, kind, OBJECT, within=param)
    within = param if nested is None else f"{param}.{kind}"
    holder = tool if nested is None else nested
    required(holder, "name", STRING, within=within)
    optional(holder, "description", STRING, within=within)
    if kind == "custom":
        return {"description": None, "format": {"type": "text"}, **holder, "type": kind}
    optional(holder, "parameters", OBJECT, within=within)
    optional(holder, "strict", BOOLEAN, within=within)
    return {"description": None, "parameters": None, "strict": None, **holder, "type": kind}


def _flat_choice(choice: Any) -> Any:
    """Return `tool_choice` in the flat shape; None where there is none."""
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in _MODES:
            raise refused("tool_choice", f"'{shown(choice)}' is not one of {', '.join(_MODES)}")
        return choice
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "a string or an object", choice)
    kind = required(choice, "type", STRING, within="tool_choice")
    nested = choice.get(kind)
    flat = {"type": kind, **nested} if isinstance(nested, dict) else choice
    if kind in _CALLABLE:
        required(flat, "name", STRING, within="tool_choice")
    elif kind == "allowed_tools":
        required(flat, "tools", ARRAY, within="tool_choice")
        if flat.get("mode", "auto") not in ("auto", "required"):
            raise refused("tool_choice.mode", "it is not one of auto, required")
    return flat


# ---------------------------------------------------------------- as the chat body says them
def _allowed(tools: Sequence[Tool], choice: Any) -> Sequence[Tool]:
    """Return the tools that `allowed_tools` leaves. Few servers know that choice, so the list is cut."""
    if not (isinstance(choice, dict) and choice["type"] == "allowed_tools"):
        return tools
    allowed = [_flat_entry(entry, f"tool_choice.tools[{i}]") for i, entry in enumerate(choice["tools"])]
    return [tool for tool in tools if (tool["type"], tool.get("name")) in allowed]


def _flat_entry(entry: Any, param: str) -> tuple[str, Any]:
    kind = required(checked(entry, OBJECT, param), "type", STRING, within=param)
    nested = entry.get(kind)
    return kind, (nested if isinstance(nested, dict) else entry).get("name")


def _chat_choice(choice: Any, tools: Sequence[Tool]) -> Any:
    """Return the chat body's `tool_choice`. One that demands a tool that cannot be had is refused."""
    kind = choice["type"] if isinstance(choice, dict) else choice
    if kind == "allowed_tools":
        kind = choice.get("mode", "auto")
    if kind in _CALLABLE:
        if choice["name"] not in (tool["function"]["name"] for tool in tools):
            raise refused("tool_choice", f"there is no tool '{shown(choice['name'])}' in 'tools'")
        return {"type": "function", "function": {"name": choice["name"]}}
    if isinstance(choice, dict) and kind not in _MODES:
        raise unsupported("tool_choice", f"the hosted tool '{shown(kind)}'")
    if kind == "required" and not tools:
        raise unsupported("tool_choice", "'required' with no function to call")
    return kind


def _chat_tool(tool: Tool) -> Tool:
    return {"type": "function", "function": _CALLABLE[tool["type"]](tool)}


def _function(tool: Tool) -> Body:
    # Some servers fail on a function without a schema, which means one without parameters.
    parameters = _EMPTY_SCHEMA if tool["parameters"] is None else tool["parameters"]
    named = {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": parameters,
        "strict": tool["strict"],
    }
    return {name: value for name, value in named.items() if value is not None}


def _custom(tool: Tool) -> Body:
    """Return a function of one string for a tool that takes free text, its grammar told in words."""
    grammar = tool["format"] if isinstance(tool["format"], dict) else {}
    says = [tool["description"] or "", *_grammar_words(grammar)]
    schema = {
        "type": "object",
        "properties": {CUSTOM_ARGUMENT: {"type": "string", "description": "The tool's whole input."}},
        "required": [CUSTOM_ARGUMENT],
        "additionalProperties": False,
    }
    return {"name": tool["name"], "description": "\n\n".join(filter(None, says)), "parameters": schema}


def _grammar_words(grammar: Mapping[str, Any]) -> list[str]:
    if grammar.get("type") != "grammar":
        return []
    nested = grammar.get("grammar")
    said = nested if isinstance(nested, dict) else grammar
    return [f"The input follows this {said.get('syntax', '')} grammar:\n{said.get('definition', '')}"]


_CALLABLE = {"function": _function, "custom": _custom}
