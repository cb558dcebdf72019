"""Normalise a request's input to items: one shape, each with an id, as they are listed, chained and
replayed.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol
from uuid import uuid4

from proxy.domain.errors import InvalidRequest, NotFound
from proxy.wire.body import (
    ARRAY,
    OBJECT,
    STRING,
    checked,
    dump,
    loads,
    missing,
    optional,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)
from proxy.wire.translation.tools import CALLS, COMPACTIONS, HOSTED, IN_USER, OUTPUTS, call_id_of

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


Part = dict[str, Any]


# ---------------------------------------------------------------- as items keep them
def as_parts(content: object, role: str, param: str) -> list[Part]:
    """Return content, a string or an array, as an array of parts with the fields that readers rely on."""
    if isinstance(content, str):
        return [_text_part(role, {"text": content})]
    if not isinstance(content, list):
        raise wrong_type(param, "a string or an array", content)
    return [_as_part(part, role, f"{param}[{index}]") for index, part in enumerate(content)]


def _as_part(part: Any, role: str, param: str) -> Part:
    kind = required(checked(part, OBJECT, param), "type", STRING, within=param)
    # "text" is the word of chat completions: clients that moved from there still send it.
    if kind in ("text", "input_text", "output_text"):
        required(part, "text", STRING, within=param)
        return _text_part(role, part)
    if kind == "input_image":
        return {"detail": "auto", **part}
    return dict(part)


def _text_part(role: str, part: Mapping[str, Any]) -> Part:
    if role == "assistant":
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return {**part, "type": "input_text"}


# ---------------------------------------------------------------- as chat messages say them
def chat_content(parts: Sequence[Part], param: str) -> str | list[Part]:
    """Return a chat message's content: a string where one text is all there is, since every server
    understands that, else chat parts. Raises InvalidRequest for a part that has no chat form."""
    if len(parts) == 1 and parts[0].get("type") == "input_text":
        return _text(parts[0])
    return [_chat_part(part, f"{param}[{index}]") for index, part in enumerate(parts)]


def tool_content(parts: Sequence[Part], param: str) -> str | list[Part]:
    """Return a tool message's content: one string while all parts are text, since few servers take an
    array from a tool; images and files stay parts, for the upstream to judge.

    A part that has no chat form becomes a word: the client has it in its history, and would be refused again
    and again."""
    parts = [part if _has_form(part, param) else _word_for(part) for part in parts]
    if all(part.get("type") == "input_text" for part in parts):
        return "\n".join(_text(part) for part in parts)
    return chat_content(parts, param)


def _has_form(part: Part, param: str) -> bool:
    try:
        _chat_part(part, param)
    except InvalidRequest:
        return False
    return True


def _word_for(part: Part) -> Part:
    return {"type": "input_text", "text": f"[{shown(str(part.get('type')))}]"}


def spoken(parts: Sequence[Part], param: str) -> str:
    """Return what an assistant's message says. A refusal is what it said too."""
    return "".join(_spoken(part, f"{param}[{index}]") for index, part in enumerate(parts))


def _spoken(part: Part, param: str) -> str:
    if part.get("type") == "refusal":
        refusal: str = required(part, "refusal", STRING, within=param)
        return refusal
    if part.get("type") != "output_text":
        raise _unknown(part, param, ("output_text", "refusal"))
    return _text(part)


def _text(part: Part) -> str:
    text: str = part["text"]
    return text


def _chat_part(part: Part, param: str) -> Part:
    form = _CHAT_FORMS.get(str(part.get("type")))
    if form is None:
        raise _unknown(part, param, _CHAT_FORMS)
    return form(part, param)


def _text_form(part: Part, param: str) -> Part:
    return {"type": "text", "text": _text(part)}


def _image_form(part: Part, param: str) -> Part:
    if part.get("image_url") is None:
        if part.get("file_id") is not None:
            raise unsupported(f"{param}.file_id", "an image by its file id")
        raise missing(f"{param}.image_url")
    image = {"url": required(part, "image_url", STRING, within=param)}
    if part.get("detail") not in (None, "auto"):  # "auto" is what a chat completion assumes
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file_form(part: Part, param: str) -> Part:
    if part.get("file_url") is not None:
        raise unsupported(f"{param}.file_url", "a file by its URL")
    file = {
        name: checked(part[name], STRING, f"{param}.{name}")
        for name in ("file_id", "filename", "file_data")
        if part.get(name) is not None
    }
    if "file_id" not in file and "file_data" not in file:
        raise missing(f"{param}.file_data")
    return {"type": "file", "file": file}


def _audio_form(part: Part, param: str) -> Part:
    return {"type": "input_audio", "input_audio": required(part, "input_audio", OBJECT, within=param)}


_CHAT_FORMS: Mapping[str, Callable[[Part, str], Part]] = {
    "input_text": _text_form,
    "input_image": _image_form,
    "input_file": _file_form,
    "input_audio": _audio_form,
}


def _unknown(part: Part, param: str, known: Sequence[str] | Mapping[str, Any]) -> Exception:
    kind = shown(str(part.get("type")))
    return refused(f"{param}.type", f"'{kind}' is not one of {', '.join(known)}")


def reasoning_text(parts: object, param: str) -> str:
    """Return the text of a reasoning item's `content`, or of its `summary`."""
    if not parts:
        return ""
    told = [checked(part, OBJECT, param) for part in checked(parts, ARRAY, param)]
    return "".join(text for part in told if isinstance(text := part.get("text"), str))


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
    """Packed, not secret: for where there is no key. The client knows what is in it: it has sent it."""

    _MARK = "mp3."  # tells ours from what another server sealed
    _OLD = "mp1."  # thoughts, from before signatures were stored with them

    def seal(self, kind: str, text: str) -> str:
        """Return the text as one word."""
        raw = f"{kind}\0{text}".encode("utf-8", "replace")
        return self._MARK + base64.urlsafe_b64encode(raw).decode("ascii")

    def open(self, kind: str, sealed: object) -> str | None:
        """Return the text, also of thoughts that an earlier version has packed."""
        if not isinstance(sealed, str) or not sealed.startswith((self._MARK, self._OLD)):
            return None
        try:
            text = base64.urlsafe_b64decode(sealed[len(self._MARK) :]).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return None
        if sealed.startswith(self._OLD):
            return dump({"text": text}).decode() if kind == THOUGHTS else None
        said, _, text = text.partition("\0")
        return text if said == kind else None


PACKED = Packed()


# ---------------------------------------------------------------- thoughts
@dataclass(frozen=True, slots=True)
class Thoughts:
    """What a model thought before it spoke or called, as it has to come back."""

    text: str = ""
    details: list[Item] = field(default_factory=list)  # `reasoning_details`, as OpenRouter gives them
    calls: Mapping[str, Item] = field(default_factory=dict)  # `extra_content` of calls, by call id

    def seal(self, seals: Seals) -> str:
        """Return them as one word."""
        said = {"text": self.text, "details": self.details, "calls": self.calls}
        return seals.seal(THOUGHTS, dump({name: value for name, value in said.items() if value}).decode())


def thoughts_in(item: Mapping[str, Any], seals: Seals) -> Thoughts:
    """Return what a reasoning item has sealed; nothing where another server, or another's, is its seal."""
    text = seals.open(THOUGHTS, item.get("encrypted_content"))
    try:
        said = loads(text.encode("utf-8", "replace")) if text else {}
    except (ValueError, RecursionError):
        said = {}
    said = said if isinstance(said, dict) else {}
    words, calls = said.get("text"), said.get("calls")
    return Thoughts(
        text=words if isinstance(words, str) else "",
        details=details_of(said.get("details")),
        calls={k: v for k, v in calls.items() if isinstance(v, dict)} if isinstance(calls, dict) else {},
    )


def details_of(given: object) -> list[Item]:
    """Return the entries of `reasoning_details`."""
    return [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
