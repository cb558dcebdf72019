"""Build the search query: the text to embed, and the terms to look up.

A long paste is reduced to what the user says around it, since the model reads some 60 words, and the vector
of a paste has no particular meaning. Everything here is structure (length, lines, fences, question marks),
in any language.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.domain.core import Message
from proxy.text.terms import terms

MAX_WORDS = 60  # two characters of a script without spaces are one word
MAX_TERMS = 48  # distinct terms that are looked up
MAX_CHARS = 4_000  # of a message that are read: its head and its tail
LEANING_WORDS = 4  # so few words may refer to what was said before
_FRAME_CHARS = 240  # a line before or after a paste that asks something about it

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_PIECE = re.compile(rf"[{_UNSPACED}]|\S(?:(?![{_UNSPACED}])\S)*")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+[\"')\]”’»」』]*|\n|\Z)")
_ASKED = re.compile(r"[?？][\"')\]”’»」』]*\s*\Z")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search query: `text` is embedded, `terms` are looked up.

    From a model: `imagined`, an answer that is embedded with the text, and `extra` terms to look up.
    """

    text: str
    terms: tuple[str, ...]
    imagined: str = ""
    extra: tuple[str, ...] = ()


def query_of(message: str, before: str = "") -> SearchQuery:
    """Return the query for a message; `before`: the user's message before it, if this one refers to it."""
    text = readable(message)
    if not before:
        return SearchQuery(text, distinct(terms(text)))
    earlier = readable(before)
    # The newest words first, so that the bound cuts the oldest.
    return SearchQuery(f"{earlier}\n{text}", distinct((*terms(text), *terms(earlier))))


def leans(text: str) -> bool:
    """True if the text is so short that it may make no sense without the message before it."""
    return _words(text[:MAX_CHARS]) <= LEANING_WORDS


def was_asked(messages: Sequence[Message]) -> bool:
    """True if the assistant's last message ends with a question: then "ok" is an answer."""
    last = next((m.text for m in reversed(messages) if m.role == "assistant"), "")
    return last.rstrip(" \n\"'*_)”」").endswith(("?", "？"))


def readable(text: str) -> str:
    """Return at most MAX_WORDS words: the whole text, else what frames a paste, else its last questions, else
    its head and tail."""
    text = text.strip()
    if len(text) > MAX_CHARS:
        text = f"{text[: MAX_CHARS // 2]}\n{text[-MAX_CHARS // 2 :]}"
    if _words(text) <= MAX_WORDS:
        return text
    prose = _CODE.sub("\n", text).strip() or text
    if frame := _frame(prose):
        return frame
    asked = [s.strip() for s in _SENTENCE.findall(prose) if _ASKED.search(s)]
    if asked and _words(both := " ".join(asked[-2:])) <= MAX_WORDS:
        return both
    if _words(prose) <= MAX_WORDS:
        return prose
    return f"{_head(prose, MAX_WORDS // 2)} … {_tail(prose, MAX_WORDS // 2)}"


def distinct(found: Sequence[str]) -> tuple[str, ...]:
    """Return the terms without repetitions, MAX_TERMS of them."""
    return tuple(dict.fromkeys(found))[:MAX_TERMS]


def _frame(prose: str) -> str:
    """Return the short paragraphs before and after a paste; "" if the text has no such frame."""
    paragraphs = [p.strip() for p in re.split(r"\n\s*\n", prose) if p.strip()]
    if len(paragraphs) < 2:
        return ""
    ends = dict.fromkeys((paragraphs[0], paragraphs[-1]))
    short = [p for p in ends if len(p) <= _FRAME_CHARS and _words(p) <= MAX_WORDS // 2]
    pasted = sum(map(len, paragraphs)) - sum(map(len, short))
    return "\n".join(short) if short and pasted > _FRAME_CHARS else ""


def _words(text: str) -> float:
    pieces = [m.group() for m in _PIECE.finditer(text)]
    unspaced = sum(1 for p in pieces if len(p) == 1 and p >= "\u3040")
    return len(pieces) - unspaced / 2


def _head(text: str, words: int) -> str:
    ends = [m.end() for m in _PIECE.finditer(text)]
    return text[: ends[words - 1]] if len(ends) > words else text


def _tail(text: str, words: int) -> str:
    starts = [m.start() for m in _PIECE.finditer(text)]
    return text[starts[-words] :] if len(starts) > words else text
