"""Read the text of messages, as both APIs write them, and insert the memory block. Content that is not
understood gives no text and no error.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proxy.domain.core import Message
from proxy.text.markup import GAP, strip_blocks
from proxy.wire.authorship import may_be_clients, split

SYSTEM_ROLES = ("system", "developer")
# Content parts that people or models wrote, and the field of their text. Images, audio and files give none.
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# Parts without words. Audio is none of them: a user may have spoken it.
_SILENT_PARTS = frozenset(
    ("image", "image_url", "input_image", "computer_screenshot", "file", "input_file", "video", "video_url")
)


def text_of(content: object) -> str:
    """Return the plain text of a message's content, a string or parts (joined by newlines), without
    our own injected blocks. It can always be encoded as UTF-8."""
    parts = content if isinstance(content, list) else [content]
    return joined(part_text(part) for part in parts)


def joined(texts: Iterable[str]) -> str:
    """Return the texts as one, as a message's parts are joined: cleaned, one a line, empty ones left out."""
    cleaned = (strip_blocks(clean(text)) for text in texts)
    return "\n".join(text for text in cleaned if text)


def clean(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced.

    JSON may spell an emoji as two escapes, cut between two stream events; half of one cannot be stored.
    """
    if text.isascii() or (first := _first_half(text)) is None:
        return text
    end = len(text) - (_first_half(text[::-1]) or 0)
    return text[:first] + _joined(text[first:end]) + text[end:]


def _first_half(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        return e.start
    return None


def _joined(text: str) -> str:
    """Do what a codec with `replace` does, which takes half a second for a million of them."""
    units = np.array([text], f"<U{len(text)}").view("<u4")
    halves = np.flatnonzero(units & 0xFFFFF800 == 0xD800)
    values = units[halves]
    is_pair = (values[:-1] < 0xDC00) & (values[1:] >= 0xDC00) & (np.diff(halves) == 1)
    units[halves] = 0xFFFD
    firsts = np.flatnonzero(is_pair)
    units[halves[firsts]] = 0x10000 + ((values[firsts] & 0x3FF) << 10) + (values[firsts + 1] & 0x3FF)
    joined = np.delete(units, halves[firsts + 1]) if len(firsts) else units
    return joined.tobytes().decode("utf-32-le")


def spoken(entries: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without the system messages that have no text: our block was all they held."""
    return (m for m in entries if m.text or m.role not in SYSTEM_ROLES)


def message(role: str, text: str) -> Message:
    """Return the message, a user's with what the user typed of it."""
    if role != "user":
        return Message(role, text)
    found = split(text)
    if found.typed == text:
        return Message(role, text)
    return Message(role, text, found.typed, found.pasted)


def speakers(entries: Sequence[Any], role_of: Callable[[Any], str | None]) -> list[str | None]:
    """Return the role of each entry, as `role_of` says, but for two kinds of user messages that are a tool's:

    - one without words, after a tool's output: most models take no image in a tool's output, so agents send
      screenshots in this way;
    - one that the client wrote as a whole, after a user's message: the output of tools that the model calls
      in its text, a reminder, environment details.
    """
    found: list[str | None] = []
    returned = False  # a tool spoke last
    asked = False  # a user spoke before
    for entry in entries:
        role = role_of(entry)
        if role == "user":
            content = entry.get("content")
            if (returned and _is_wordless(content)) or (asked and _is_clients(content)):
                role = "tool"
            asked = asked or role == "user"
        if role not in SYSTEM_ROLES:
            returned = role == "tool"
        found.append(role)
    return found


def _is_clients(content: object) -> bool:
    """True if the content is text, and a client wrote all of it."""
    if isinstance(content, str) and not may_be_clients(content):
        return False
    parts = content if isinstance(content, list) else [content]
    return all(map(_is_silent, parts)) and split(text_of(content)).is_clients


def _is_wordless(content: object) -> bool:
    """True if the content has no words. A part of an unknown kind may have some."""
    parts = content if isinstance(content, list) else [content]
    return all(map(_is_silent, parts)) and not text_of(content).strip()


def _is_silent(part: object) -> bool:
    """True if what a part says, if anything, is its text."""
    if not isinstance(part, dict):
        return part is None or isinstance(part, str)
    kind = part.get("type")
    return isinstance(kind, str) and (kind in _TEXT_PARTS or kind in _SILENT_PARTS)


def with_text_after(content: object, text: str, part_type: str) -> Any:
    """Return the content with the text appended, in the content's own form; None if it has no known form."""
    if isinstance(content, str):
        return content + GAP + text
    if isinstance(content, list):
        return [*content, {"type": part_type, "text": text}]
    return None


def with_text_before(content: object, text: str, part_type: str) -> Any:
    """Return the content with the text prepended, in the content's own form; None if it has no known form."""
    if isinstance(content, str):
        return text + GAP + content
    if isinstance(content, list):
        return [{"type": part_type, "text": text}, *content]
    return None


def part_text(part: object) -> str:
    """Return the text of one content part, or of content that is a string, unchanged."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field else None
    return text if isinstance(text, str) else ""


# ---------------------------------------------------------------- placement
PLACEMENTS = ("before_last_user", "after_system", "merge_system", "in_user")


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How one API writes messages."""

    role_of: Callable[[Any], str | None]  # of a list entry; None for an entry that is not a message
    system: Callable[[str], dict[str, Any]]  # a system message that holds the text
    part_type: str  # of a text part in a request


def place(entries: list[Any], block: str, placement: str, form: MessageFormat) -> list[Any] | None:
    """Return a new list with the block in it. None if it has no place: there is no user message, or the
    message to extend has content of an unknown form. An unknown placement is a KeyError.

    What precedes the block is not changed, so that the provider's prompt cache still hits. No tool call is
    separated from its output, since a user message is never between the two.
    """
    roles = speakers(entries, form.role_of)
    if "user" not in roles:
        return None
    last_user = len(roles) - 1 - roles[::-1].index("user")
    is_system = (form.role_of(entry) in SYSTEM_ROLES for entry in entries)
    system_end = next((i for i, each in enumerate(is_system) if not each), len(entries))
    match placement:
        case "before_last_user":
            at = last_user
        case "after_system":
            at = system_end
        case "merge_system" if system_end:
            content = with_text_after(entries[system_end - 1].get("content"), block, form.part_type)
            return _with_content(entries, system_end - 1, content)
        case "merge_system":
            at = 0
        case "in_user":
            content = with_text_before(entries[last_user].get("content"), block, form.part_type)
            return _with_content(entries, last_user, content)
        case _:
            raise KeyError(placement)
    return [*entries[:at], form.system(block), *entries[at:]]


def _with_content(entries: list[Any], at: int, content: Any) -> list[Any] | None:
    if content is None:
        return None
    return [*entries[:at], {**entries[at], "content": content}, *entries[at + 1 :]]
