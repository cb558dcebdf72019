"""Extract plain text from the bodies of both APIs, and cut text into token-sized pieces."""

import re
from typing import Any

from proxy.demo.answers import Said

_PIECE = re.compile(r"[\u2e80-\uffef]{1,2}|\s*[^\s\u2e80-\uffef]{1,8}|\s+")


def said_in(items: Any) -> list[Said]:
    """Return the messages among a list of chat messages or Responses items; other items are passed over."""
    if isinstance(items, str):
        return [Said("user", items)]
    return [Said(item["role"], text_of(item.get("content"))) for item in items if "role" in item]


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or its text parts joined by newlines."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))


def pieces(text: str) -> list[str]:
    """Return the text in pieces about as long as a model's tokens; joined they are the text."""
    return _PIECE.findall(text)


def estimated_tokens(text: str) -> int:
    """Return about how many tokens the text has."""
    return len(pieces(text))
