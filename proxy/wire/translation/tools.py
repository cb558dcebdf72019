"""Convert a request's tools, and the choice among them, to functions: the only tools of a chat completion.

Functions pass. Custom tools, the client's own (shell, patches) and those in a namespace (an MCP server of
Codex) become functions under flat names; `TranslatedTools.offered` leads from such a name back to the tool,
so that a call gets the item type, name and namespace that the client waits for.

Hosted tools (web search, file search, MCP servers …) run at OpenAI. Clients send them unasked and break on a
refusal, so they are left out and named; only a choice that demands one is refused.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from proxy.wire.body import (
    ARRAY,
    BOOLEAN,
    OBJECT,
    STRING,
    Body,
    checked,
    dict_in,
    dicts_in,
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)
from proxy.wire.translation.items import CLIENT_TOOLS, Item, schema_of

_MODES = ("auto", "none", "required")
_CALLABLE = ("function", "custom")

CUSTOM_ARGUMENT = "input"  # of the function that represents a custom tool


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as its client knows it. `kind` is the tool's type; a client's own tool is named by it."""

    kind: str
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class TranslatedTools:
    """A request's tools: as the chat body has them, as the response echoes them, and what is left out."""

    chat: Body
    echo: Body
    dropped: tuple[str, ...]
    names: Mapping[ToolName, str]  # under which the model knows them

    @property
    def offered(self) -> dict[str, ToolName]:
        """The tools by the names that the model knows."""
        return {name: key for key, name in self.names.items()}

    def flat(self, key: ToolName) -> str:
        """Return the name under which the model knows a tool, also one that is offered no more."""
        return self.names.get(key) or _flat_name(key)


def translate_tools(body: Body, loaded: Iterable[Item] = ()) -> TranslatedTools:
    """Return the tools, the choice and `parallel_tool_calls` of a request. Raises InvalidRequest.

    `loaded`: tools that the conversation's items have brought (see loaded_tools).
    """
    given = optional(body, "tools", ARRAY) or []
    tools = [_flat(tool, f"tools[{index}]") for index, tool in enumerate(given)]
    choice = _flat_choice(body.get("tool_choice"))
    parallel = optional(body, "parallel_tool_calls", BOOLEAN)
    found = list(_callable([*tools, *loaded]))
    # A function of the client's keeps its own name; of the tools that would be named alike all others get a
    # digest, so that no name depends on the order.
    own = {key: key.name for key, _ in found if key.namespace is None and key.kind == "function"}
    others = [key for key in dict.fromkeys(key for key, _ in found) if key not in own]
    taken = Counter([*own.values(), *map(_flat_name, others)])
    names = own | {key: _flat_name(key, apart=taken[_flat_name(key)] > 1) for key in others}
    functions = {names[key]: _function(key, tool, names[key]) for key, tool in found}
    wanted = _wanted(choice, {flat: key for key, flat in names.items()})
    mode, is_cut = choice, len(wanted) > 1
    if isinstance(choice, dict):
        if choice["type"] == "allowed_tools":  # few servers know it, so the list is cut instead
            mode, is_cut = choice.get("mode", "auto"), True
        elif choice["type"] in _MODES:
            mode = choice["type"]
        else:
            mode = "required" if is_cut else {"type": "function", "function": {"name": wanted[0]}}
    chosen = [{"type": "function", "function": functions[name]} for name in (wanted if is_cut else functions)]
    chat: Body = {}
    if chosen:  # without tools both are refused by OpenAI, and an empty list too
        given_values = {"tools": chosen, "tool_choice": mode, "parallel_tool_calls": parallel}
        chat = {name: value for name, value in given_values.items() if value is not None}
    elif mode == "required":
        raise unsupported("tool_choice", "'required' with no function to call")
    echo = {
        "tools": tools,
        "tool_choice": "auto" if choice is None else choice,
        "parallel_tool_calls": parallel is not False,
    }
    dropped = [tool["type"] for tool in tools if not any(_callable([tool]))]
    for tool in (each for each in tools if each["type"] == "namespace"):
        dropped += [inner["type"] for inner in tool.get("tools") or () if inner["type"] not in _CALLABLE]
    return TranslatedTools(chat, echo, tuple(dict.fromkeys(map(shown, dropped))), names)


def loaded_tools(items: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """Yield the tools that items bring: what a tool search found, and what a client adds on the way. One
    that is malformed is passed over."""
    for item in items:
        if item.get("type") not in ("tool_search_output", "additional_tools"):
            continue
        for tool in dicts_in(item.get("tools")):
            yield from _readable(tool)


def _readable(tool: Item) -> Iterator[Item]:
    named = isinstance(tool.get("name"), str)
    if tool.get("type") in _CALLABLE and named:
        schema = tool.get("parameters")
        yield {**tool, "parameters": schema if isinstance(schema, dict) else None}
    elif tool.get("type") == "namespace" and named:
        yield {**tool, "tools": [each for inner in dicts_in(tool.get("tools")) for each in _readable(inner)]}


# ---------------------------------------------------------------- flat names
_MAX_NAME_CHARS = 64  # characters that servers take
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")


def _flat_name(key: ToolName, *, apart: bool = False) -> str:
    """Return a function name for a tool: of valid characters, and the same in every request. `apart`: with a
    digest, if the plain one is taken."""
    if key.namespace is None and not apart:
        return key.name
    prefix = "" if key.namespace is None else f"{key.namespace.rstrip('_')}__"
    name = _INVALID.sub("_", prefix + key.name)
    if name[:1].isdigit() or name[:1] == "-":
        name = f"_{name}"  # Gemini wants a letter or an underscore there
    if not apart and len(name) <= _MAX_NAME_CHARS:
        return name
    whole = f"{key.kind}\0{key.namespace}\0{key.name}".encode("utf-8", "replace")
    digest = blake2b(whole, digest_size=4).hexdigest()
    return f"{name[: _MAX_NAME_CHARS - len(digest) - 1]}_{digest}"


# ---------------------------------------------------------------- what can be called
def _callable(tools: Iterable[Item]) -> Iterator[tuple[ToolName, Item]]:
    """Yield the tools that a function can represent, those of namespaces one by one."""
    for tool in tools:
        if tool["type"] == "namespace":
            for inner in (each for each in tool.get("tools") or () if each["type"] in _CALLABLE):
                said = inner.get("description") or tool.get("description")
                yield ToolName(inner["type"], inner["name"], tool["name"]), {**inner, "description": said}
        elif tool["type"] in _CALLABLE:
            yield ToolName(tool["type"], tool["name"]), tool
        elif _is_client_run(tool):
            yield ToolName(tool["type"], tool["type"]), tool


def _is_client_run(tool: Item) -> bool:
    if tool["type"] == "tool_search":
        return tool.get("execution") == "client"
    # An environment other than the client's is a host's container.
    return tool["type"] in CLIENT_TOOLS and dict_in(tool, "environment").get("type", "local") == "local"


# ---------------------------------------------------------------- as the response echoes them
def _flat(tool: Any, param: str) -> Item:
    """Return the tool in the API's flat shape, also if it came in the nested one of chat completions."""
    kind = required(checked(tool, OBJECT, param), "type", STRING, within=param)
    if kind == "namespace":
        required(tool, "name", STRING, within=param)
        optional(tool, "description", STRING, within=param)
        inner = optional(tool, "tools", ARRAY, within=param) or []
        flat = [_flat(t, f"{param}.tools[{index}]") for index, t in enumerate(inner)]
        return {**tool, "description": tool.get("description") or "", "tools": flat}
    if kind not in _CALLABLE:
        return dict(tool)
    holder, within = unwrapped(tool, kind, param)
    required(holder, "name", STRING, within=within)
    optional(holder, "description", STRING, within=within)
    if kind == "custom":
        return {"description": None, "format": {"type": "text"}, **holder, "type": kind}
    optional(holder, "parameters", OBJECT, within=within)
    optional(holder, "strict", BOOLEAN, within=within)
    return {"description": None, "parameters": None, "strict": None, **holder, "type": kind}


def unwrapped(given: Body, kind: str, param: str) -> tuple[Body, str]:
    """Return what holds the fields, and its path: chat completions wrap them once more, under the type."""
    nested = optional(given, kind, OBJECT, within=param)
    return (given, param) if nested is None else (nested, f"{param}.{kind}")


def _flat_choice(choice: Any) -> Any:
    """Return `tool_choice` in the flat shape; None for none."""
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in _MODES:
            raise refused("tool_choice", f"'{shown(choice)}' is not one of {', '.join(_MODES)}")
        return choice
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "a string or an object", choice)
    kind = required(choice, "type", STRING, within="tool_choice")
    nested = dict_in(choice, kind)
    flat = {"type": kind, **nested} if nested else choice
    if kind in (*_CALLABLE, "namespace"):
        required(flat, "name", STRING, within="tool_choice")
        optional(flat, "namespace", STRING, within="tool_choice")
    elif kind == "allowed_tools":
        required(flat, "tools", ARRAY, within="tool_choice")
        if flat.get("mode", "auto") not in ("auto", "required"):
            raise refused("tool_choice.mode", "it is not one of auto, required")
    return flat


# ---------------------------------------------------------------- the choice
def _wanted(choice: Any, known: Mapping[str, ToolName]) -> list[str]:
    """Return the flat names that the choice names; () if it is only a mode. Raises InvalidRequest."""
    if not isinstance(choice, dict) or choice["type"] in _MODES:
        return []
    if choice["type"] == "allowed_tools":
        named: list[str] = []
        for index, entry in enumerate(choice["tools"]):
            param = f"tool_choice.tools[{index}]"
            kind = required(checked(entry, OBJECT, param), "type", STRING, within=param)
            named += _matching({**(dict_in(entry, kind) or entry), "type": kind}, known)
        return [name for name in known if name in named]
    found = _matching(choice, known)
    if not found and choice["type"] in (*_CALLABLE, "namespace"):
        raise refused("tool_choice", f"there is no tool '{shown(choice['name'])}' in 'tools'")
    if not found:
        raise unsupported("tool_choice", f"the hosted tool '{shown(choice['type'])}'")
    return found


def _matching(entry: Mapping[str, Any], known: Mapping[str, ToolName]) -> list[str]:
    """Return the flat names of the tools that an entry names. A name without its namespace means the tool
    that has none, else all of that name."""
    kind, name, space = entry["type"], entry.get("name"), entry.get("namespace")
    if kind == "namespace":
        return [flat for flat, key in known.items() if key.namespace == name]
    if kind not in _CALLABLE:
        return [flat for flat, key in known.items() if key.kind == kind]
    alike = [
        flat
        for flat, key in known.items()
        if key.kind == kind and name in (key.name, flat, f"{key.namespace}.{key.name}")
    ]
    if space is not None:
        return [flat for flat in alike if known[flat].namespace == space]
    return [flat for flat in alike if known[flat].namespace is None] or alike


# ---------------------------------------------------------------- as the chat body says them
def _function(key: ToolName, tool: Item, name: str) -> Body:
    """Return the function that represents the tool. One that takes free text takes one string, and its
    grammar is described in words."""
    said: Body
    if key.kind == "custom":
        form, says = dict_in(tool, "format"), [tool.get("description") or ""]
        if form.get("type") == "grammar":
            given = dict_in(form, "grammar") or form
            syntax, definition = given.get("syntax", ""), given.get("definition", "")
            says.append(f"The input follows this {syntax} grammar:\n{definition}")
        argument = {"type": "string", "description": "The tool's whole input."}
        schema = schema_of((CUSTOM_ARGUMENT,), **{CUSTOM_ARGUMENT: argument})
        said = {"description": "\n\n".join(filter(None, says)), "parameters": schema}
    elif key.kind in CLIENT_TOOLS:
        known = CLIENT_TOOLS[key.kind]
        said = {"description": known.description, "parameters": known.parameters}
        if known.type == "tool_search":
            said |= {field: tool[field] for field in said if tool.get(field)}
    else:
        said = {field: tool.get(field) for field in ("description", "parameters", "strict")}
        # Some servers fail on a function without a schema, which means one without parameters.
        if said["parameters"] is None:
            said["parameters"] = {"type": "object", "properties": {}}
    return {"name": name, **{field: value for field, value in said.items() if value is not None}}
