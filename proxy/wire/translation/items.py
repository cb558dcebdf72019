"""Normalise a request's input to items: one shape, each with an id, as they are listed, chained and
replayed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import uuid4

from proxy.domain.errors import NotFound
from proxy.wire.translation.checks import (
    ARRAY,
    OBJECT,
    STRING,
    checked,
    missing,
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)
from proxy.wire.translation.parts import as_parts
from proxy.wire.translation.tool_items import CALLS, COMPACTIONS, HOSTED, IN_USER, OUTPUTS, call_id_of

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
        where = f"{param}[{index}]"
        if not _is_reference(checked(raw, OBJECT, where)):
            items.append(_as_item(raw, where, taken, only_known))
        elif raw["id"] not in present:
            present.add(raw["id"])
            items.append(_resolved(raw["id"], referenced or {}, param))
    return tuple(items)


def referenced_ids(given: object) -> tuple[str, ...]:
    """Return the ids that the references in `input` name, for the caller to look up."""
    return tuple(item["id"] for item in given if _is_reference(item)) if isinstance(given, list) else ()


# ---------------------------------------------------------------- ids
_OURS = re.compile(r"[a-z]{2,4}_(.+)_\d+")


def output_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of a response's output item. It tells the response: see response_of."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def response_of(item_id: str) -> str | None:
    """Return the id of the response that an item of ours came from, so that a reference to it can be
    looked up; None for an id that is not an output item's of ours."""
    match = _OURS.fullmatch(item_id)
    return f"resp_{match[1]}" if match else None


def _free_id(raw: Item, prefix: str, taken: set[Any]) -> str:
    given = raw.get("id")
    usable = isinstance(given, str) and given and given not in taken
    chosen = str(given) if usable else f"{prefix}_{uuid4().hex}"
    taken.add(chosen)
    return chosen


# ---------------------------------------------------------------- references
def _is_reference(item: Any) -> bool:
    """True for `{"type": "item_reference", "id": …}`; the type may be left out."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item)


def _resolved(item_id: str, referenced: Mapping[str, Item], param: str) -> Item:
    if item_id not in referenced:
        raise NotFound(f"Item with id '{shown(item_id)}' not found.", param=param, code="item_not_found")
    return dict(referenced[item_id])


# ---------------------------------------------------------------- one item of each type
def _as_item(raw: Item, param: str, taken: set[Any], only_known: bool) -> Item:
    kind = optional(raw, "type", STRING, within=param) or "message"
    if kind == "item_reference":
        required(raw, "id", STRING, within=param)
    form = _FORMS.get(kind)
    if form is None:
        if only_known:
            raise unsupported(f"{param}.type", f"an item of type '{shown(kind)}'")
        form = _UNKNOWN
    fields = form.fields(raw, param)
    return {**raw, "type": kind, "id": _free_id(raw, form.prefix, taken), **fields}


def _message(raw: Item, param: str) -> Item:
    role = required(raw, "role", STRING, within=param)
    if role not in ROLES:
        raise refused(f"{param}.role", f"'{shown(role)}' is not one of {', '.join(ROLES)}")
    if "content" not in raw:
        raise missing(f"{param}.content")
    return {**_status(raw), "content": as_parts(raw["content"], role, f"{param}.content")}


def _call(argument: str) -> Callable[[Item, str], Item]:
    def fields(raw: Item, param: str) -> Item:
        _require(raw, ("call_id", "name", argument), param)
        return _status(raw)

    return fields


def _output(raw: Item, param: str) -> Item:
    _require(raw, ("call_id",), param)
    if "output" not in raw:
        raise missing(f"{param}.output")
    output = raw["output"]
    # A string stays one: that is how the client will want to see it again.
    parts = output if isinstance(output, str) else as_parts(output, "tool", f"{param}.output")
    return {**_status(raw), "output": parts}


def _client_call(raw: Item, param: str) -> Item:
    call_id = call_id_of(raw)
    if not isinstance(call_id, str) and raw["type"] != "tool_search_call":
        raise missing(f"{param}.call_id")
    return {**_status(raw), "call_id": call_id}


def _client_output(raw: Item, param: str) -> Item:
    call_id = call_id_of(raw)
    if not isinstance(call_id, str) and raw["type"] != "tool_search_output":
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


def _require(raw: Item, names: Iterable[str], param: str) -> None:
    for name in names:
        required(raw, name, STRING, within=param)


@dataclass(frozen=True, slots=True)
class _Form:
    """How items of one type are checked and completed."""

    prefix: str  # of a new id
    fields: Callable[[Item, str], Item]  # what is set; raises InvalidRequest


_UNKNOWN = _Form("item", _as_given)
_FORMS = {
    **{kind: _Form(prefix, _as_given) for kind, (prefix, _) in HOSTED.items()},
    **{kind: _Form(prefix, _as_given) for kind, prefix in IN_USER.items()},
    **{kind: _Form("cmp", _compaction) for kind in COMPACTIONS},
    **{kind: _Form(tool.prefix, _client_call) for kind, tool in CALLS.items()},
    **{kind: _Form("out", _client_output) for kind in OUTPUTS},
    "message": _Form("msg", _message),
    "function_call": _Form("fc", _call("arguments")),
    "function_call_output": _Form("fco", _output),
    "custom_tool_call": _Form("ctc", _call("input")),
    "custom_tool_call_output": _Form("ctco", _output),
    "reasoning": _Form("rs", _reasoning),
}
