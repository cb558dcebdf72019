"""Tools and items of the Responses API that a chat completion does not have, and their chat forms.

Tools that the client itself runs (its shell, its patches, its tool search) become functions; what the model
calls comes back as the item type that the client waits for. What a host has run (web search, MCP servers …)
cannot be asked for here, but a client may hold it in its history: it becomes a line of text.

Shapes: the official SDK's `response_input_item_param` and `tool_param`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)

Item = dict[str, Any]
Schema = dict[str, Any]

LONGEST_LINE = 4_000  # characters of what a host returned


# ---------------------------------------------------------------- run by the client
@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs. `fields` and `arguments` convert between a call item's own fields and the
    arguments of the function that the model is offered."""

    type: str  # of the tool
    call: str  # the type of its call items
    prefix: str  # of a call item's id
    description: str
    parameters: Schema
    fields: Callable[[Mapping[str, Any]], Item]
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    half_written: str = "incomplete"  # the status of a call that was cut off

    @property
    def output(self) -> str:
        """The type of the item that answers a call."""
        return "tool_search_output" if self.type == "tool_search" else f"{self.call}_output"


def _schema(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT: Schema = {"type": "string"}
_WORDS: Schema = {"type": "array", "items": {"type": "string"}}
_WHOLE: Schema = {"type": "integer"}


def _taken(given: Mapping[str, Any], **shapes: type) -> Item:
    """Return those of the named arguments that have the wanted type: models invent others."""
    return {name: given[name] for name, shape in shapes.items() if isinstance(given.get(name), shape)}


def _words(value: Any) -> list[str]:
    """Return a command as a list of words; models also write one string."""
    if isinstance(value, str):
        return ["bash", "-lc", value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _local_shell_fields(given: Mapping[str, Any]) -> Item:
    env = given.get("env")
    named = {k: v for k, v in env.items() if isinstance(v, str)} if isinstance(env, dict) else {}
    more = _taken(given, timeout_ms=int, user=str, working_directory=str)
    return {"action": {"type": "exec", "command": _words(given.get("command")), "env": named, **more}}


def _shell_fields(given: Mapping[str, Any]) -> Item:
    commands = given.get("commands", given.get("command"))
    lines = [commands] if isinstance(commands, str) else commands
    said = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    more = _taken(given, timeout_ms=int, max_output_length=int)
    return {"action": {"commands": said, "timeout_ms": None, "max_output_length": None, **more}}


def _patch_fields(given: Mapping[str, Any]) -> Item:
    nested = given.get("operation")
    said = nested if isinstance(nested, dict) else given
    kind, path, diff = said.get("type"), said.get("path"), said.get("diff")
    operation: Item = {
        "type": kind if kind in _OPERATIONS else "update_file",
        "path": path if isinstance(path, str) else "",
    }
    if operation["type"] != "delete_file":
        operation["diff"] = diff if isinstance(diff, str) else ""
    return {"operation": operation}


def _search_fields(given: Mapping[str, Any]) -> Item:
    return {"execution": "client", "arguments": dict(given)}


def _action(item: Mapping[str, Any]) -> Mapping[str, Any]:
    action = item.get("action")
    said = action if isinstance(action, dict) else {}
    return {k: v for k, v in said.items() if v not in (None, {}) and (k, v) != ("type", "exec")}


def _operation(item: Mapping[str, Any]) -> Mapping[str, Any]:
    operation = item.get("operation")
    return operation if isinstance(operation, dict) else {}


def _computer_action(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: item[name] for name in ("action", "actions") if item.get(name) is not None}


def _searched(item: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = item.get("arguments")
    return arguments if isinstance(arguments, dict) else {}


_OPERATIONS = ("create_file", "update_file", "delete_file")
_PATCH_WORDS = (
    "Create, update or delete one file. `diff` is a V4A diff, without the header lines: for a new file every"
    " line begins with `+`; for an update, lines of context begin with a blank, removed ones with `-`, added"
    " ones with `+`, and `@@` lines name the place."
)

CLIENT_TOOLS: Mapping[str, ClientTool] = {
    tool.type: tool
    for tool in (
        ClientTool(
            "local_shell",
            "local_shell_call",
            "lsh",
            "Run a command on the user's machine.",
            _schema(
                ("command",),
                command={**_WORDS, "description": "The program and its arguments."},
                working_directory=_TEXT,
                timeout_ms=_WHOLE,
            ),
            _local_shell_fields,
            _action,
        ),
        ClientTool(
            "shell",
            "shell_call",
            "sh",
            "Run shell commands on the user's machine.",
            _schema(
                ("commands",),
                commands={**_WORDS, "description": "Command lines, run one after the other."},
                timeout_ms=_WHOLE,
                max_output_length=_WHOLE,
            ),
            _shell_fields,
            _action,
        ),
        ClientTool(
            "apply_patch",
            "apply_patch_call",
            "apc",
            _PATCH_WORDS,
            _schema(
                ("type", "path"), type={"type": "string", "enum": list(_OPERATIONS)}, path=_TEXT, diff=_TEXT
            ),
            _patch_fields,
            _operation,
            half_written="in_progress",
        ),
        ClientTool(
            "tool_search",
            "tool_search_call",
            "tsc",
            "Search for tools that are not listed yet.",
            _schema(("query",), query=_TEXT),
            _search_fields,
            _searched,
        ),
    )
}
_COMPUTER = ClientTool(
    "computer", "computer_call", "cu", "", {}, lambda given: {"actions": dict(given)}, _computer_action
)
"""Only in histories: a model that sees no screen is not offered one."""

CALLS: Mapping[str, ClientTool] = {tool.call: tool for tool in (*CLIENT_TOOLS.values(), _COMPUTER)}
OUTPUTS = frozenset(tool.output for tool in CALLS.values())


def is_client_run(tool: Mapping[str, Any]) -> bool:
    """True for a tool of the request that its client runs itself."""
    if tool["type"] == "tool_search":
        return tool.get("execution") == "client"
    environment = tool.get("environment")  # of a shell: another than the client's is a host's container
    where = environment.get("type", "local") if isinstance(environment, dict) else "local"
    return tool["type"] in CLIENT_TOOLS and where == "local"


def offered(tool: Mapping[str, Any]) -> Schema:
    """Return the description and the parameters of the function that represents a client's tool."""
    known = CLIENT_TOOLS[tool["type"]]
    own = (
        {k: tool[k] for k in ("description", "parameters") if tool.get(k)}
        if known.type == "tool_search"
        else {}
    )
    return {"description": known.description, "parameters": known.parameters, **own}


def call_id_of(item: Mapping[str, Any]) -> Any:
    """Return what a call or its output is known by. A `local_shell_call_output` has only its `id`, which is
    the call's `call_id`."""
    return item.get("call_id") or item.get("id")


def is_host_run(item: Mapping[str, Any]) -> bool:
    """True for an item of a host's doing, though it has the type of what clients run: a tool search of the
    server's, a shell in a container."""
    kind = item.get("type")
    if kind in ("tool_search_call", "tool_search_output"):
        call_id = item.get("call_id")
        return item.get("execution") == "server" or not (isinstance(call_id, str) and call_id)
    environment = item.get("environment")
    return isinstance(environment, dict) and environment.get("type", "local") != "local"


def arguments_of(item: Mapping[str, Any]) -> str:
    """Return a call item's fields as the arguments of the function that represents its tool."""
    return json.dumps(CALLS[item["type"]].arguments(item), ensure_ascii=False)


def output_of(item: Mapping[str, Any]) -> str | list[Item]:
    """Return what a client's tool returned: text, or input parts."""
    kind, output = item["type"], item.get("output")
    if kind == "shell_call_output" and isinstance(output, list):
        return "\n".join(_chunk(chunk) for chunk in _objects(output))
    if kind == "apply_patch_call_output":
        status = str(item.get("status") or "completed")
        return f"{status}: {output}" if output else status
    if kind == "tool_search_output":
        names = ", ".join(_tool_names(item.get("tools")))
        return f"Tools that can be called now: {names}" if names else "No tool was found."
    if kind == "computer_call_output" and isinstance(output, dict):
        url = output.get("image_url")
        return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else "[a screenshot]"
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _chunk(chunk: Mapping[str, Any]) -> str:
    outcome = chunk.get("outcome")
    ended = outcome if isinstance(outcome, dict) else {}
    texts = [text for name in ("stdout", "stderr") if isinstance(text := chunk.get(name), str) and text]
    if ended.get("type") == "timeout":
        texts.append("[timed out]")
    elif ended.get("exit_code"):
        texts.append(f"[exit code {ended['exit_code']}]")
    return "\n".join(texts)


def _objects(value: Any) -> list[Item]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _tool_names(tools: Any) -> list[str]:
    names: list[str] = []
    for tool in _objects(tools):
        if isinstance(tool.get("name"), str):
            inner = _tool_names(tool.get("tools")) if tool.get("type") == "namespace" else []
            names += [f"{tool['name']}: {name}" for name in inner] or [tool["name"]]
    return names


# ---------------------------------------------------------------- run by a host
def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} …"


def _web_search(item: Item) -> str:
    action = item.get("action")
    said = action if isinstance(action, dict) else {}
    if said.get("type") in ("open_page", "find_in_page", "find"):
        return f"[Opened the web page {_short(said.get('url') or '')}]"
    query = said.get("query") or said.get("queries")
    return f"[Searched the web for: {_short(query)}]" if query else "[Searched the web]"


def _file_search(item: Item) -> str:
    texts = [str(result["text"]) for result in _objects(item.get("results")) if result.get("text")]
    found = f"; found: {_short(' … '.join(texts))}" if texts else ""
    return f"[Searched files for: {_short(item.get('queries') or [])}{found}]"


def _code(item: Item) -> str:
    logs = [str(output["logs"]) for output in _objects(item.get("outputs")) if output.get("logs")]
    printed = f"\nIt printed:\n{_short(''.join(logs))}" if logs else ""
    return f"[Ran code:\n{_short(item.get('code') or '')}{printed}]"


def _image(item: Item) -> str:
    prompt = item.get("revised_prompt")
    return f"[Made an image: {_short(prompt)}]" if prompt else "[Made an image]"


def _mcp_call(item: Item) -> str:
    error, output = item.get("error"), item.get("output")
    came = f"; it failed: {_short(error)}" if error else f"; it returned: {_short(output)}" if output else ""
    name, server = item.get("name"), item.get("server_label")
    return f"[Called `{name}` of the server `{server}` with {_short(item.get('arguments') or '{}')}{came}]"


def _mcp_request(item: Item) -> str:
    said = _short(item.get("arguments") or "{}")
    return f"[Asked to call `{item.get('name')}` of the server `{item.get('server_label')}` with {said}]"


def _container_shell(item: Item) -> str:
    return f"[Ran in a container: {_short(_action(item).get('commands') or [])}]"


def _container_output(item: Item) -> str:
    return f"[It returned: {_short(output_of(item))}]"


def _program(item: Item) -> str:
    return f"[Ran a program:\n{_short(item.get('code') or '')}]"


def _program_output(item: Item) -> str:
    return f"[It returned: {_short(item.get('result') or '')}]"


def _nothing(item: Item) -> str:
    return ""


HOSTED: Mapping[str, tuple[str, Callable[[Item], str]]] = {
    "web_search_call": ("ws", _web_search),
    "file_search_call": ("fs", _file_search),
    "code_interpreter_call": ("ci", _code),
    "image_generation_call": ("ig", _image),
    "mcp_call": ("mcp", _mcp_call),
    "mcp_list_tools": ("mcpl", _nothing),
    "mcp_approval_request": ("mcpr", _mcp_request),
    "program": ("prog", _program),
    "program_output": ("prog", _program_output),
    "shell_call": ("sh", _container_shell),
    "shell_call_output": ("sho", _container_output),
    "tool_search_call": ("tsc", _nothing),
    "tool_search_output": ("tso", _nothing),
    "configuration_update": ("cu", _nothing),
    "additional_tools": ("at", _nothing),
    "compaction_trigger": ("ct", _nothing),
}
"""Items that become a line of the assistant's text ("" for none), with the prefix of their ids."""


def line_of(item: Item) -> str:
    """Return the line that tells a model of an item that a host has made."""
    return HOSTED[item["type"]][1](item)


# ---------------------------------------------------------------- from others, as the user's
def in_user(item: Item) -> str:
    """Return an item that is neither the user's words nor the assistant's as text for a user message, in tags
    that set it apart from what the user typed."""
    if item["type"] == "mcp_approval_response":
        verdict = "approved" if item.get("approve") else "refused"
        reason = f": {_short(item['reason'])}" if item.get("reason") else ""
        return f"<approval>The call was {verdict}{reason}</approval>"
    texts = [text for part in _objects(item.get("content")) if isinstance(text := part.get("text"), str)]
    return f"<agent_message>{_short(' '.join(texts))}</agent_message>" if texts else ""


IN_USER: Mapping[str, str] = {"mcp_approval_response": "mcpa", "agent_message": "amsg"}
"""Such items, with the prefix of their ids."""

COMPACTIONS: frozenset[str] = frozenset(("compaction", "compaction_summary", "context_compaction"))


Tool = dict[str, Any]
_MODES = ("auto", "none", "required")
_EMPTY_SCHEMA = {"type": "object", "properties": {}}
_CALLABLE = ("function", "custom")

# The argument of the function that represents a custom tool.
CUSTOM_ARGUMENT = "input"


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as its client knows it. `kind` is the tool's type; a client's own tool is named by it."""

    kind: str
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class TranslatedTools:
    """A request's tools: what the chat body says of them, what the response echoes, what is left out."""

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
        return self.names.get(key) or flat_name(key)


def translate_tools(body: Body, loaded: Iterable[Tool] = ()) -> TranslatedTools:
    """Return the tools, the choice and `parallel_tool_calls` of a request. Raises InvalidRequest.

    `loaded`: tools that the conversation's items have brought (see loaded_tools).
    """
    given = optional(body, "tools", ARRAY) or []
    tools = [_flat(tool, f"tools[{index}]") for index, tool in enumerate(given)]
    choice = _flat_choice(body.get("tool_choice"))
    parallel = optional(body, "parallel_tool_calls", BOOLEAN)
    found = list(_callable([*tools, *loaded]))
    names = _flat_names([key for key, _ in found])
    functions = {names[key]: _function(key, tool, names[key]) for key, tool in found}
    wanted = _wanted(choice, {flat: key for key, flat in names.items()})
    mode = _mode(choice, wanted)
    is_cut = len(wanted) > 1 or (isinstance(choice, dict) and choice["type"] == "allowed_tools")
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
    return TranslatedTools(chat, echo, _dropped(tools), names)


def loaded_tools(items: Iterable[Mapping[str, Any]]) -> Iterator[Tool]:
    """Yield the tools that items bring: what a tool search found, and what a client adds on the way. One
    that is malformed is passed over."""
    for item in items:
        if item.get("type") not in ("tool_search_output", "additional_tools"):
            continue
        tools = item.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("type"), str):
                yield from _readable(tool)


def _readable(tool: Tool) -> Iterator[Tool]:
    named = isinstance(tool.get("name"), str)
    if tool["type"] in _CALLABLE and named:
        schema = tool.get("parameters")
        yield {**tool, "parameters": schema if isinstance(schema, dict) else None}
    elif tool["type"] == "namespace" and named:
        inner = tool.get("tools")
        readable = [t for t in inner if isinstance(t, dict)] if isinstance(inner, list) else []
        yield {**tool, "tools": [r for t in readable if isinstance(t.get("type"), str) for r in _readable(t)]}


# ---------------------------------------------------------------- flat names
_LONGEST_NAME = 64  # characters that servers take
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")


def flat_name(key: ToolName, *, apart: bool = False) -> str:
    """Return a function name for a tool: of valid characters, and the same in every request. `apart`: with a
    digest, where the plain one is taken."""
    if key.namespace is None and not apart:
        return key.name
    prefix = "" if key.namespace is None else f"{key.namespace.rstrip('_')}__"
    name = _INVALID.sub("_", prefix + key.name)
    if name[:1].isdigit() or name[:1] == "-":
        name = f"_{name}"  # Gemini wants a letter or an underscore there
    if not apart and len(name) <= _LONGEST_NAME:
        return name
    told = f"{key.kind}\0{key.namespace}\0{key.name}".encode("utf-8", "replace")
    digest = blake2b(told, digest_size=4).hexdigest()
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def _flat_names(keys: Sequence[ToolName]) -> dict[ToolName, str]:
    """Return a name for each tool. A function of the client's keeps its own; of those that would be named
    alike the others get a digest, all of them, so that no name depends on the order."""
    own = {key: key.name for key in keys if key.namespace is None and key.kind == "function"}
    others = [key for key in dict.fromkeys(keys) if key not in own]
    taken = Counter([*own.values(), *map(flat_name, others)])
    return own | {key: flat_name(key, apart=taken[flat_name(key)] > 1) for key in others}


# ---------------------------------------------------------------- what can be called
def _callable(tools: Iterable[Tool]) -> Iterator[tuple[ToolName, Tool]]:
    """Yield the tools that a function can stand for, those of namespaces one by one."""
    for tool in tools:
        if tool["type"] == "namespace":
            for t in tool.get("tools") or ():
                if t["type"] in _CALLABLE:
                    said = t.get("description") or tool.get("description")
                    yield ToolName(t["type"], t["name"], tool["name"]), {**t, "description": said}
        elif tool["type"] in _CALLABLE:
            yield ToolName(tool["type"], tool["name"]), tool
        elif is_client_run(tool):
            yield ToolName(tool["type"], tool["type"]), tool


def _dropped(tools: Iterable[Tool]) -> tuple[str, ...]:
    """Return the types of the tools of which nothing can be called."""
    gone = (tool for tool in tools if not any(True for _ in _callable([tool])))
    inner = (
        t["type"]
        for tool in tools
        if tool["type"] == "namespace"
        for t in tool.get("tools") or ()
        if t["type"] not in _CALLABLE
    )
    return tuple(dict.fromkeys(shown(kind) for kind in [*(tool["type"] for tool in gone), *inner]))


# ---------------------------------------------------------------- as the response echoes them
def _flat(tool: Any, param: str) -> Tool:
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
    """Return the flat names that the choice names; () where it is only a mode. Raises InvalidRequest."""
    if not isinstance(choice, dict) or choice["type"] in _MODES:
        return []
    if choice["type"] == "allowed_tools":
        named: list[str] = []
        for index, entry in enumerate(choice["tools"]):
            param = f"tool_choice.tools[{index}]"
            kind = required(checked(entry, OBJECT, param), "type", STRING, within=param)
            nested = entry.get(kind)
            named += _matching({**(nested if isinstance(nested, dict) else entry), "type": kind}, known)
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
        flat for flat, key in known.items() if key.kind == kind and name in (key.name, flat, _dotted(key))
    ]
    if space is not None:
        return [flat for flat in alike if known[flat].namespace == space]
    return [flat for flat in alike if known[flat].namespace is None] or alike


def _dotted(key: ToolName) -> str:
    return f"{key.namespace}.{key.name}"


def _mode(choice: Any, wanted: Sequence[str]) -> Any:
    """Return the chat body's `tool_choice`. Few servers know `allowed_tools`, so the list is cut instead."""
    if not isinstance(choice, dict):
        return choice
    if choice["type"] == "allowed_tools":
        return choice.get("mode", "auto")
    if choice["type"] in _MODES:
        return choice["type"]
    if len(wanted) > 1:
        return "required"
    return {"type": "function", "function": {"name": wanted[0]}}


# ---------------------------------------------------------------- as the chat body says them
def _function(key: ToolName, tool: Tool, name: str) -> Body:
    if key.kind == "custom":
        said = _custom(tool)
    elif key.kind in CLIENT_TOOLS:
        said = offered(tool)
    else:
        said = {field: tool.get(field) for field in ("description", "parameters", "strict")}
        # Some servers fail on a function without a schema, which means one without parameters.
        said["parameters"] = _EMPTY_SCHEMA if said["parameters"] is None else said["parameters"]
    return {"name": name, **{field: value for field, value in said.items() if value is not None}}


def _custom(tool: Tool) -> Body:
    """Return a function of one string for a tool that takes free text, its grammar told in words."""
    form = tool.get("format")
    says = [tool.get("description") or "", *_grammar_words(form if isinstance(form, dict) else {})]
    schema = {
        "type": "object",
        "properties": {CUSTOM_ARGUMENT: {"type": "string", "description": "The tool's whole input."}},
        "required": [CUSTOM_ARGUMENT],
        "additionalProperties": False,
    }
    return {"description": "\n\n".join(filter(None, says)), "parameters": schema}


def _grammar_words(grammar: Mapping[str, Any]) -> list[str]:
    if grammar.get("type") != "grammar":
        return []
    nested = grammar.get("grammar")
    said = nested if isinstance(nested, dict) else grammar
    return [f"The input follows this {said.get('syntax', '')} grammar:\n{said.get('definition', '')}"]
