"""Leave out memories that the conversation already shows."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from proxy.domain.core import Memory, Message
from proxy.text.terms import fold, terms

SHARE = 0.8  # of a memory's terms in one message: it has been said
AT_LEAST = 3  # terms; fewer are found in too much
SPAN_CHARS = 8  # a shorter evidence span ("yes") proves nothing
LOOK_BACK_CHARS = 16_000  # of the conversation's end, at most

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")
# A full stop ends a sentence after three letters; after fewer ("Dr.", "z. B.") it may not.
_SENTENCE = re.compile(r"(?<=\w{3})\.\s+|(?<=[!?。！？\n])\s*")

T = TypeVar("T")


def unseen(shown: Sequence[T], messages: Sequence[Message], *, memory: Callable[[T], Memory]) -> list[T]:
    """Return what holds a memory that no message says: neither literally, nor by the words that it was
    extracted from, nor by most of its terms with all of its numbers.

    A question says nothing: "is my budget still $7,500?" must not hide the budget.
    """
    said = _statements(messages) if shown else []
    if not said:
        return list(shown)
    everything = "\n".join(said)
    return [one for one in shown if not _is_said(memory(one), said, everything)]


def _is_said(memory: Memory, said: Sequence[str], everything: str) -> bool:
    content = _flat(memory.content)
    if content in everything:
        return True
    if any(
        len(span) >= SPAN_CHARS and span in everything for e in memory.evidence if (span := _flat(e.span))
    ):
        return True
    if not all(number in everything for number in _NUMBER.findall(content)):
        return False
    # A term is a part of its word: looking for it in the text is ten times faster than splitting the text.
    wanted = [t for t in dict.fromkeys(terms(content)) if len(t) > 2 or (len(t) == 2 and t > "\u2e7f")]
    if len(wanted) < AT_LEAST or not _holds(everything, wanted):
        return False
    return any(_holds(text, wanted) for text in said)


def _holds(text: str, wanted: Sequence[str]) -> bool:
    """True if the text holds SHARE of the terms. Stops at the first term too many that is missing."""
    spare = len(wanted) * (1 - SHARE) + 1e-9
    for term in wanted:
        if term not in text:
            spare -= 1
            if spare < 0:
                return False
    return True


def _statements(messages: Sequence[Message]) -> list[str]:
    """Return what the messages state, newest first, folded and in one line each, without questions."""
    said: list[str] = []
    left = LOOK_BACK_CHARS
    for message in reversed(messages):
        if left <= 0:
            break
        text = message.text[-left:]
        left -= len(text)
        if "?" in text or "？" in text:
            sentences = (sentence.rstrip(" \"'”’»」)") for sentence in _SENTENCE.split(text))
            text = " . ".join(s for s in sentences if not s.endswith(("?", "？")))
        if stated := _flat(text):
            said.append(stated)
    return said


def _flat(text: str) -> str:
    folded = _THOUSANDS.sub("", fold(text, 2 * LOOK_BACK_CHARS))
    return " ".join(folded.split()).rstrip(" .!。")
