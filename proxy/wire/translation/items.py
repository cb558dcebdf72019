"""Input items of the Responses API: one shape, each with an id, as they are listed, chained and replayed.

Also the tools that the client itself runs (its shell, its patches, its tool search), which a chat completion
does not have: they become functions, and what the model calls comes back as the item type that the client
waits for. And what a client stores for us in an item's `encrypted_content`.

Shapes: the official SDK's `response_input_item_param` and `tool_param`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol
from uuid import uuid4

from proxy.domain.errors import NotFound
from proxy.wire.body import (
    ARRAY,
    OBJECT,
    STRING,
    checked,
    dict_in,
    dicts_in,
    dump,
    loads,
    missing,
    optional,
    refused,
    required,
    shown,
    text_in,
    unsupported,
    wrong_type,
)

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")


# ---------------------------------------------------------------- tools that the client runs
@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs. `fields` and `arguments` convert between a call item's own fields and the
    arguments of the function that the model is offered."""

    type: str  # of the tool
    call: str  # the type of its call items
    prefix: str  # of a call item's id
    description: str
    parameters: Item
    fields: Callable[[Mapping[str, Any]], Item]
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    half_written: str = "incomplete"  # the status of a call that was cut off


def schema_of(required: tuple[str, ...], **properties: Item) -> Item:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT: Item = {"type": "string"}
_WORDS: Item = {"type": "array", "items": {"type": "string"}}
_WHOLE: Item = {"type": "integer"}
_OPERATIONS = ("create_file", "update_file", "delete_file")


def _strings(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


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


def shell_action(item: Mapping[str, Any]) -> Item:
    """Return what a shell call asks for, as the arguments of its function."""
    action = dict_in(item, "action")
    return {k: v for k, v in action.items() if v not in (None, {}) and (k, v) != ("type", "exec")}


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
            shell_action,
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
            shell_action,
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
    "computer",
    "computer_call",
    "cu",
    "",
    {},
    lambda given: {"actions": dict(given)},
    lambda item: {name: item[name] for name in ("action", "actions") if item.get(name) is not None},
)

CLIENT_CALLS: Mapping[str, ClientTool] = {tool.call: tool for tool in (*CLIENT_TOOLS.values(), _COMPUTER)}
CLIENT_OUTPUTS = frozenset(
    "tool_search_output" if call == "tool_search_call" else f"{call}_output" for call in CLIENT_CALLS
)


def call_id_of(item: Mapping[str, Any]) -> Any:
    """Return the id that a call and its output share. A `local_shell_call_output` has only its `id`, which is
    the call's `call_id`."""
    return item.get("call_id") or item.get("id")


# ---------------------------------------------------------------- types of items, and how their ids begin
HOSTED: Mapping[str, str] = {
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "program": "prog",
    "program_output": "prog",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "configuration_update": "cu",
    "additional_tools": "at",
    "compaction_trigger": "ct",
}
"""Items of what a host has run."""
IN_USER: Mapping[str, str] = {"mcp_approval_response": "mcpa", "agent_message": "amsg"}
"""Items that are neither the user's words nor the assistant's."""
COMPACTIONS: frozenset[str] = frozenset(("compaction", "compaction_summary", "context_compaction"))

_PREFIXES: Mapping[str, str] = {
    **HOSTED,
    **IN_USER,
    **dict.fromkeys(COMPACTIONS, "cmp"),
    **{kind: tool.prefix for kind, tool in CLIENT_CALLS.items()},
    **dict.fromkeys(CLIENT_OUTPUTS, "out"),
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}
_OURS = re.compile(r"[a-z]{2,4}_(.+)_\d+")


def output_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of a response's output item. It names the response: see response_of."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def response_of(item_id: str) -> str | None:
    """Return the id of the response that an item of ours came from, so that a reference to it can be
    looked up; None for an id that is not an output item's of ours."""
    match = _OURS.fullmatch(item_id)
    return f"resp_{match[1]}" if match else None


# ---------------------------------------------------------------- the input
def as_items(
    given: object,
    earlier: Sequence[Item] = (),
    referenced: Mapping[str, Item] | None = None,
    param: str = "input",
    *,
    only_known: bool = False,
) -> tuple[Item, ...]:
    """Return `input`, a string or an array, as items whose ids are unique, among `earlier` too.

    A reference becomes the item it names, taken from `referenced`; one to an item of `earlier` or of
    this very input adds nothing, since that is in the context already. Raises InvalidRequest; with
    `only_known` also for an item of a type that is not known, NotFound for a reference to nothing.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise wrong_type(param, "a string or an array", given)
    known = (item for item in chain(earlier, given) if isinstance(item, dict) and not _is_reference(item))
    present = {item_id for item in known if isinstance(item_id := item.get("id"), str)}
    taken = {item.get("id") for item in earlier}
    items: list[Item] = []
    for index, raw in enumerate(given):
        if not _is_reference(checked(raw, OBJECT, f"{param}[{index}]")):
            items.append(_as_item(raw, f"{param}[{index}]", taken, only_known))
        elif raw["id"] not in present:
            present.add(raw["id"])
            if raw["id"] not in (referenced or {}):
                text = f"Item with id '{shown(raw['id'])}' not found."
                raise NotFound(text, param=param, code="item_not_found")
            items.append(dict((referenced or {})[raw["id"]]))
    return tuple(items)


def referenced_ids(given: object) -> tuple[str, ...]:
    """Return the ids that the references in `input` name, for the caller to look up."""
    return tuple(item["id"] for item in given if _is_reference(item)) if isinstance(given, list) else ()


def _is_reference(item: Any) -> bool:
    """True for `{"type": "item_reference", "id": …}`; the type may be left out."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item)


def _as_item(raw: Item, param: str, taken: set[Any], only_known: bool) -> Item:
    kind = optional(raw, "type", STRING, within=param) or "message"
    if kind == "item_reference":
        required(raw, "id", STRING, within=param)
    if only_known and kind not in _PREFIXES:
        raise unsupported(f"{param}.type", f"an item of type '{shown(kind)}'")
    given = raw.get("id")
    if not isinstance(given, str) or not given or given in taken:
        given = f"{_PREFIXES.get(kind, 'item')}_{uuid4().hex}"
    taken.add(given)
    return {**raw, "type": kind, "id": given, **_checked_fields(raw, kind, param)}


def _checked_fields(raw: Item, kind: str, param: str) -> Item:
    """Return the fields that readers rely on, for an item of this type. Raises InvalidRequest."""
    status = {"status": raw.get("status") or "completed"}
    match kind:
        case "message":
            role = required(raw, "role", STRING, within=param)
            if role not in ROLES:
                raise refused(f"{param}.role", f"'{shown(role)}' is not one of {', '.join(ROLES)}")
            if "content" not in raw:
                raise missing(f"{param}.content")
            return {**status, "content": _as_parts(raw["content"], role, f"{param}.content")}
        case "function_call" | "custom_tool_call":
            for name in ("call_id", "name", "arguments" if kind == "function_call" else "input"):
                required(raw, name, STRING, within=param)
            return status
        case "function_call_output" | "custom_tool_call_output":
            required(raw, "call_id", STRING, within=param)
            if "output" not in raw:
                raise missing(f"{param}.output")
            output = raw["output"]
            # A string stays one: that is how the client will want to see it again.
            parts = output if isinstance(output, str) else _as_parts(output, "tool", f"{param}.output")
            return {**status, "output": parts}
        case "reasoning":
            return {"summary": optional(raw, "summary", ARRAY, within=param) or []}
    if kind in CLIENT_CALLS or kind in CLIENT_OUTPUTS:
        call_id = call_id_of(raw)
        if not isinstance(call_id, str) and not kind.startswith("tool_search"):
            raise missing(f"{param}.call_id")
        return {**status, "call_id": call_id} if kind in CLIENT_CALLS else status
    if kind in COMPACTIONS:
        optional(raw, "encrypted_content", STRING, within=param)
    return {}


def _as_parts(content: object, role: str, param: str) -> list[Item]:
    """Return content, a string or an array, as an array of parts with the fields that readers rely on."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise wrong_type(param, "a string or an array", content)
    parts: list[Item] = []
    for index, part in enumerate(content):
        within = f"{param}[{index}]"
        kind = required(checked(part, OBJECT, within), "type", STRING, within=within)
        # "text" is the word of chat completions: clients that moved from there still send it.
        if kind in ("text", "input_text", "output_text"):
            required(part, "text", STRING, within=within)
            if role == "assistant":
                parts.append({"annotations": [], "logprobs": [], **part, "type": "output_text"})
            else:
                parts.append({**part, "type": "input_text"})
        else:
            parts.append({"detail": "auto", **part} if kind == "input_image" else dict(part))
    return parts


# ---------------------------------------------------------------- what a client stores for us
# Clients that keep no state at the server (`store: false`) send `encrypted_content` back. Models that think
# between their tool calls need their thoughts then, and some servers (Gemini, Anthropic behind OpenRouter)
# refuse to continue without their signatures, which a client's own item types have no field for.
THOUGHTS, COMPACTION = "thoughts", "compaction"


class Seals(Protocol):
    """Packs a text so that only this proxy can read it, and only for its owner."""

    def seal(self, kind: str, text: str) -> str:
        """Return the text as one opaque word."""
        ...

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text; None for what we did not seal, sealed for another, or as another kind."""
        ...


class Packed:
    """Packed, not secret: used if there is no key. The client knows what is in it: it has sent it."""

    _MARK = "mp3."  # distinguishes ours from what another server sealed

    def seal(self, kind: str, text: str) -> str:
        raw = f"{kind}\0{text}".encode("utf-8", "replace")
        return self._MARK + base64.urlsafe_b64encode(raw).decode("ascii")

    def open(self, kind: str, sealed: object) -> str | None:
        if not isinstance(sealed, str) or not sealed.startswith(self._MARK):
            return None
        try:
            text = base64.urlsafe_b64decode(sealed[len(self._MARK) :]).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return None
        said, _, text = text.partition("\0")
        return text if said == kind else None


PACKED = Packed()


@dataclass(frozen=True, slots=True)
class Thoughts:
    """What a model thought before it answered or called, as it has to come back."""

    text: str = ""
    details: list[Item] = field(default_factory=list)  # `reasoning_details`, as OpenRouter gives them
    calls: Mapping[str, Item] = field(default_factory=dict)  # `extra_content` of calls, by call id

    def seal(self, seals: Seals) -> str:
        """Return them as one word."""
        said = {"text": self.text, "details": self.details, "calls": self.calls}
        return seals.seal(THOUGHTS, dump({name: value for name, value in said.items() if value}).decode())


def thoughts_in(item: Mapping[str, Any], seals: Seals) -> Thoughts:
    """Return what a reasoning item has sealed; nothing if another server sealed it, or for another owner."""
    text = seals.open(THOUGHTS, item.get("encrypted_content"))
    try:
        said = loads(text.encode("utf-8", "replace")) if text else {}
    except (ValueError, RecursionError):
        said = {}
    said = said if isinstance(said, dict) else {}
    return Thoughts(
        text=text_in(said, "text"),
        details=dicts_in(said.get("details")),
        calls={call_id: v for call_id, v in dict_in(said, "calls").items() if isinstance(v, dict)},
    )
