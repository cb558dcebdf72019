"""Convert content parts between the form that the Responses API keeps in items and that of chat messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.domain.errors import InvalidRequest
from proxy.wire.translation.checks import (
    ARRAY,
    OBJECT,
    STRING,
    checked,
    missing,
    refused,
    required,
    shown,
    unsupported,
    wrong_type,
)

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
