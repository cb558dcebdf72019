"""Input items of the Responses API: one shape, each with an id, as they are listed, chained and replayed.

Also what a client stores for us in an item's `encrypted_content`.
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
from proxy.wire.translation.tool_items import (
    CLIENT_CALLS,
    CLIENT_OUTPUTS,
    COMPACTIONS,
    HOSTED,
    IN_USER,
    call_id_of,
)

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")


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


# ---------------------------------------------------------------- ids
_OURS = re.compile(r"[a-z]{2,4}_(.+)_\d+")


def output_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of a response's output item. It names the response: see response_of."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def response_of(item_id: str) -> str | None:
    """Return the id of the response that an item of ours came from, so that a reference to it can be
    looked up; None for an id that is not an output item's of ours."""
    match = _OURS.fullmatch(item_id)
    return f"resp_{match[1]}" if match else None


# ---------------------------------------------------------------- one item of each type
def _as_item(raw: Item, param: str, taken: set[Any], only_known: bool) -> Item:
    kind = optional(raw, "type", STRING, within=param) or "message"
    if kind == "item_reference":
        required(raw, "id", STRING, within=param)
    if only_known and kind not in _KINDS:
        raise unsupported(f"{param}.type", f"an item of type '{shown(kind)}'")
    prefix, fields = _KINDS.get(kind, ("item", _as_given))
    given = raw.get("id")
    if not isinstance(given, str) or not given or given in taken:
        given = f"{prefix}_{uuid4().hex}"
    taken.add(given)
    return {**raw, "type": kind, "id": given, **fields(raw, param)}


def _message(raw: Item, param: str) -> Item:
    role = required(raw, "role", STRING, within=param)
    if role not in ROLES:
        raise refused(f"{param}.role", f"'{shown(role)}' is not one of {', '.join(ROLES)}")
    if "content" not in raw:
        raise missing(f"{param}.content")
    return {**_status(raw), "content": _as_parts(raw["content"], role, f"{param}.content")}


def _call(argument: str) -> Callable[[Item, str], Item]:
    def fields(raw: Item, param: str) -> Item:
        for name in ("call_id", "name", argument):
            required(raw, name, STRING, within=param)
        return _status(raw)

    return fields


def _output(raw: Item, param: str) -> Item:
    required(raw, "call_id", STRING, within=param)
    if "output" not in raw:
        raise missing(f"{param}.output")
    output = raw["output"]
    # A string stays one: that is how the client will want to see it again.
    parts = output if isinstance(output, str) else _as_parts(output, "tool", f"{param}.output")
    return {**_status(raw), "output": parts}


def _client_call(raw: Item, param: str) -> Item:
    return {**_client_output(raw, param), "call_id": call_id_of(raw)}


def _client_output(raw: Item, param: str) -> Item:
    if not isinstance(call_id_of(raw), str) and not raw["type"].startswith("tool_search"):
        raise missing(f"{param}.call_id")
    return _status(raw)


def _compaction(raw: Item, param: str) -> Item:
    optional(raw, "encrypted_content", STRING, within=param)
    return {}


def _as_given(raw: Item, param: str) -> Item:
    return {}


def _reasoning(raw: Item, param: str) -> Item:
    return {"summary": optional(raw, "summary", ARRAY, within=param) or []}


def _status(raw: Item) -> Item:
    return {"status": raw.get("status") or "completed"}


# By type: how new ids begin, and a function that checks an item and returns the fields to set.
_KINDS: Mapping[str, tuple[str, Callable[[Item, str], Item]]] = {
    **{kind: (prefix, _as_given) for kind, (prefix, _) in HOSTED.items()},
    **{kind: (prefix, _as_given) for kind, prefix in IN_USER.items()},
    **dict.fromkeys(COMPACTIONS, ("cmp", _compaction)),
    **{kind: (tool.prefix, _client_call) for kind, tool in CLIENT_CALLS.items()},
    **dict.fromkeys(CLIENT_OUTPUTS, ("out", _client_output)),
    "message": ("msg", _message),
    "function_call": ("fc", _call("arguments")),
    "function_call_output": ("fco", _output),
    "custom_tool_call": ("ctc", _call("input")),
    "custom_tool_call_output": ("ctco", _output),
    "reasoning": ("rs", _reasoning),
}


# ---------------------------------------------------------------- content parts
def _as_parts(content: object, role: str, param: str) -> list[Item]:
    """Return content, a string or an array, as an array of parts with the fields that readers rely on."""
    if isinstance(content, str):
        return [_text_part(role, {"text": content})]
    if not isinstance(content, list):
        raise wrong_type(param, "a string or an array", content)
    return [_as_part(part, role, f"{param}[{index}]") for index, part in enumerate(content)]


def _as_part(part: Any, role: str, param: str) -> Item:
    kind = required(checked(part, OBJECT, param), "type", STRING, within=param)
    # "text" is the word of chat completions: clients that moved from there still send it.
    if kind in ("text", "input_text", "output_text"):
        required(part, "text", STRING, within=param)
        return _text_part(role, part)
    if kind == "input_image":
        return {"detail": "auto", **part}
    return dict(part)


def _text_part(role: str, part: Mapping[str, Any]) -> Item:
    if role == "assistant":
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return {**part, "type": "input_text"}


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
        """Return the text as one word."""
        raw = f"{kind}\0{text}".encode("utf-8", "replace")
        return self._MARK + base64.urlsafe_b64encode(raw).decode("ascii")

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text."""
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
