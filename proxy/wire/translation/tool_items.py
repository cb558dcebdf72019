"""Tool items of the Responses API that a chat completion does not have, and their chat forms.

Tools that the client itself runs (its shell, its patches, its tool search) become functions; what the model
calls comes back as the item type that the client waits for. What a host has run (web search, MCP servers …)
cannot be asked for here, but a client may have it in its history: it becomes a line of text.

Shapes: the official SDK's `response_input_item_param` and `tool_param`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.wire.body import dict_in, dicts_in, text_in

Item = dict[str, Any]
Schema = dict[str, Any]

MAX_LINE_CHARS = 4_000  # of what a host returned


def _strings(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


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


def schema_of(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT: Schema = {"type": "string"}
_WORDS: Schema = {"type": "array", "items": {"type": "string"}}
_WHOLE: Schema = {"type": "integer"}


def _typed(given: Mapping[str, Any], **shapes: type) -> Item:
    """Return those of the named arguments that have the wanted type: models invent others."""
    return {name: given[name] for name, shape in shapes.items() if isinstance(given.get(name), shape)}


def _local_shell_fields(given: Mapping[str, Any]) -> Item:
    command = given.get("command")
    words = ["bash", "-lc", command] if isinstance(command, str) else _strings(command)
    env = {name: value for name, value in dict_in(given, "env").items() if isinstance(value, str)}
    more = _typed(given, timeout_ms=int, user=str, working_directory=str)
    return {"action": {"type": "exec", "command": words, "env": env, **more}}


def _shell_fields(given: Mapping[str, Any]) -> Item:
    commands = given.get("commands", given.get("command"))
    lines = [commands] if isinstance(commands, str) else _strings(commands)
    more = _typed(given, timeout_ms=int, max_output_length=int)
    return {"action": {"commands": lines, "timeout_ms": None, "max_output_length": None, **more}}


def _patch_fields(given: Mapping[str, Any]) -> Item:
    said = dict_in(given, "operation") or given
    kind = said.get("type")
    operation: Item = {"type": kind if kind in _OPERATIONS else "update_file", "path": ""}
    operation |= _typed(said, path=str)
    if operation["type"] != "delete_file":
        operation |= {"diff": "", **_typed(said, diff=str)}
    return {"operation": operation}


def _action(item: Mapping[str, Any]) -> Mapping[str, Any]:
    action = dict_in(item, "action")
    return {k: v for k, v in action.items() if v not in (None, {}) and (k, v) != ("type", "exec")}


def _computer_action(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: item[name] for name in ("action", "actions") if item.get(name) is not None}


_OPERATIONS = ("create_file", "update_file", "delete_file")

CLIENT_TOOLS: Mapping[str, ClientTool] = {
    tool.type: tool
    for tool in (
        ClientTool(
            "local_shell",
            "local_shell_call",
            "lsh",
            "Run a command on the user's machine.",
            schema_of(
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
            schema_of(
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
            "Create, update or delete one file. `diff` is a V4A diff, without the header lines: for a new"
            " file every line begins with `+`; for an update, lines of context begin with a blank, removed"
            " ones with `-`, added ones with `+`, and `@@` lines name the place.",
            schema_of(
                ("type", "path"), type={"type": "string", "enum": list(_OPERATIONS)}, path=_TEXT, diff=_TEXT
            ),
            _patch_fields,
            lambda item: dict_in(item, "operation"),
            half_written="in_progress",
        ),
        ClientTool(
            "tool_search",
            "tool_search_call",
            "tsc",
            "Search for tools that are not listed yet.",
            schema_of(("query",), query=_TEXT),
            lambda given: {"execution": "client", "arguments": dict(given)},
            lambda item: dict_in(item, "arguments"),
        ),
    )
}
# Only in histories: a model that sees no screen is not offered one.
_COMPUTER = ClientTool(
    "computer", "computer_call", "cu", "", {}, lambda given: {"actions": dict(given)}, _computer_action
)

CLIENT_CALLS: Mapping[str, ClientTool] = {tool.call: tool for tool in (*CLIENT_TOOLS.values(), _COMPUTER)}
CLIENT_OUTPUTS = frozenset(tool.output for tool in CLIENT_CALLS.values())


def is_client_run(tool: Mapping[str, Any]) -> bool:
    """True for a tool of the request that its client runs itself."""
    if tool["type"] == "tool_search":
        return tool.get("execution") == "client"
    # An environment other than the client's is a host's container.
    return tool["type"] in CLIENT_TOOLS and dict_in(tool, "environment").get("type", "local") == "local"


def call_id_of(item: Mapping[str, Any]) -> Any:
    """Return the id that a call and its output share. A `local_shell_call_output` has only its `id`, which is
    the call's `call_id`."""
    return item.get("call_id") or item.get("id")


def is_host_run(item: Mapping[str, Any]) -> bool:
    """True for an item that a host has made, though it has the type of what clients run: a tool search of the
    server's, a shell in a container."""
    if item.get("type") in ("tool_search_call", "tool_search_output"):
        call_id = item.get("call_id")
        return item.get("execution") == "server" or not (isinstance(call_id, str) and call_id)
    return str(dict_in(item, "environment").get("type", "local")) != "local"


def arguments_of(item: Mapping[str, Any]) -> str:
    """Return a call item's fields as the arguments of the function that represents its tool."""
    return json.dumps(CLIENT_CALLS[item["type"]].arguments(item), ensure_ascii=False)


def output_of(item: Mapping[str, Any]) -> str | list[Item]:
    """Return what a client's tool returned: text, or input parts."""
    kind, output = item["type"], item.get("output")
    if kind == "shell_call_output" and isinstance(output, list):
        return "\n".join(map(_shell_output, dicts_in(output)))
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


def _shell_output(chunk: Mapping[str, Any]) -> str:
    outcome = dict_in(chunk, "outcome")
    texts = [text for name in ("stdout", "stderr") if (text := text_in(chunk, name))]
    if outcome.get("type") == "timeout":
        texts.append("[timed out]")
    elif outcome.get("exit_code"):
        texts.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(texts)


def _tool_names(tools: Any) -> list[str]:
    names: list[str] = []
    for tool in dicts_in(tools):
        if isinstance(tool.get("name"), str):
            inner = _tool_names(tool.get("tools")) if tool.get("type") == "namespace" else []
            names += [f"{tool['name']}: {name}" for name in inner] or [tool["name"]]
    return names


# ---------------------------------------------------------------- run by a host
def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]} …"


def _web_search(item: Item) -> str:
    action = dict_in(item, "action")
    if action.get("type") in ("open_page", "find_in_page", "find"):
        return f"[Opened the web page {_short(action.get('url') or '')}]"
    query = action.get("query") or action.get("queries")
    return f"[Searched the web for: {_short(query)}]" if query else "[Searched the web]"


def _file_search(item: Item) -> str:
    texts = [str(result["text"]) for result in dicts_in(item.get("results")) if result.get("text")]
    found = f"; found: {_short(' … '.join(texts))}" if texts else ""
    return f"[Searched files for: {_short(item.get('queries') or [])}{found}]"


def _code(item: Item) -> str:
    logs = [str(output["logs"]) for output in dicts_in(item.get("outputs")) if output.get("logs")]
    printed = f"\nIt printed:\n{_short(''.join(logs))}" if logs else ""
    return f"[Ran code:\n{_short(item.get('code') or '')}{printed}]"


def _image(item: Item) -> str:
    prompt = item.get("revised_prompt")
    return f"[Made an image: {_short(prompt)}]" if prompt else "[Made an image]"


def _mcp_call(item: Item) -> str:
    error, output = item.get("error"), item.get("output")
    returned = f"; it returned: {_short(output)}" if output else ""
    outcome = f"; it failed: {_short(error)}" if error else returned
    return f"[Called {_mcp(item)}{outcome}]"


def _mcp(item: Item) -> str:
    arguments = _short(item.get("arguments") or "{}")
    return f"`{item.get('name')}` of the server `{item.get('server_label')}` with {arguments}"


def _nothing(item: Item) -> str:
    return ""


HOSTED: Mapping[str, tuple[str, Callable[[Item], str]]] = {
    "web_search_call": ("ws", _web_search),
    "file_search_call": ("fs", _file_search),
    "code_interpreter_call": ("ci", _code),
    "image_generation_call": ("ig", _image),
    "mcp_call": ("mcp", _mcp_call),
    "mcp_list_tools": ("mcpl", _nothing),
    "mcp_approval_request": ("mcpr", lambda item: f"[Asked to call {_mcp(item)}]"),
    "program": ("prog", lambda item: f"[Ran a program:\n{_short(item.get('code') or '')}]"),
    "program_output": ("prog", lambda item: f"[It returned: {_short(item.get('result') or '')}]"),
    "shell_call": ("sh", lambda item: f"[Ran in a container: {_short(_action(item).get('commands') or [])}]"),
    "shell_call_output": ("sho", lambda item: f"[It returned: {_short(output_of(item))}]"),
    "tool_search_call": ("tsc", _nothing),
    "tool_search_output": ("tso", _nothing),
    "configuration_update": ("cu", _nothing),
    "additional_tools": ("at", _nothing),
    "compaction_trigger": ("ct", _nothing),
}
"""Items that become a line of the assistant's text ("" for none), with the prefix of their ids."""


# ---------------------------------------------------------------- from others, as the user's
def in_user(item: Item) -> str:
    """Return an item that is neither the user's words nor the assistant's as text for a user message, in tags
    that set it apart from what the user typed."""
    if item["type"] == "mcp_approval_response":
        verdict = "approved" if item.get("approve") else "refused"
        reason = f": {_short(item['reason'])}" if item.get("reason") else ""
        return f"<approval>The call was {verdict}{reason}</approval>"
    texts = [part["text"] for part in dicts_in(item.get("content")) if isinstance(part.get("text"), str)]
    return f"<agent_message>{_short(' '.join(texts))}</agent_message>" if texts else ""


IN_USER: Mapping[str, str] = {"mcp_approval_response": "mcpa", "agent_message": "amsg"}
"""Such items, with the prefix of their ids."""

COMPACTIONS: frozenset[str] = frozenset(("compaction", "compaction_summary", "context_compaction"))
