"""The text of messages, as both APIs write them. What is not understood gives no text and no error."""

from collections.abc import Iterable, Iterator
from typing import Any

from proxy.block import GAP, strip_blocks
from proxy.domain import Message

# Content parts that people or models wrote, and where their text is. Images, audio and files give none.
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


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
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def conversation(entries: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without the system messages that have no text: our block was all they held."""
    return (m for m in entries if m.text or m.role not in ("system", "developer"))


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
    """Return the text of one content part, or of content that is a string, as it stands."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field else None
    return text if isinstance(text, str) else ""
