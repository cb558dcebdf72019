"""Test which of a text's words occur in another text: the cheap test behind ranking and "already visible".

Splitting every candidate into terms costs 10 µs each, on every request. Terms are stems, and a stem is a
part of its word, so looking for the term inside the folded text answers the same question in a tenth.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from proxy.chinese import simplified
from proxy.terms import STOP_WORDS, fold

CJK = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_NEGATION = re.compile(
    r"\b(?:no|not|never|cannot|without|nothing|none|nobody|kein\w*|nicht|jamais|pas|nunca|sin|non|mai)\b"
    r"|n['’]t\b|不|没|未|别|无|ない|ません|않|안 "
)
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
_WORD = re.compile(rf"[^\W_{CJK}]{{3,}}|[{CJK}]{{2,}}")
# In Latin script two letters are found inside too many words.
_SHORTEST = 3
MEMORY_CHARS = 4_000  # of a memory are looked at: the longest that the API takes
_BEGINNING = 7


def searchable(text: str, most: int | None = None) -> str:
    """Return the text, or its first `most` characters, in the form in which `held` looks for terms: folded,
    no thousands separators, Chinese in simplified signs."""
    return simplified(fold(text, most)).replace(",", "")


def held(wanted: Collection[str], text: str) -> list[str]:
    """Return those of the terms that stand in `text` (in searchable form)."""
    return [t for t in wanted if t in text]


def is_content(term: str) -> bool:
    """True for a term that means something where it is found inside another text: a word from three letters,
    a number, a bigram of a script without spaces."""
    return len(term) >= _SHORTEST or term.isdigit() or (len(term) == 2 and term > "\u2e7f")


@dataclass(frozen=True, slots=True)
class Saying:
    """What a text says, reduced to what can be looked for. Its numbers and whether it says "not" are read
    from `folded`, the text in searchable form, where that matters: hardly ever."""

    folded: str
    words: tuple[str, ...]


def saying(text: str) -> Saying:
    """Return what the text of a memory says."""
    folded = searchable(text, MEMORY_CHARS)
    return Saying(folded, _words(folded))


def _words(folded: str) -> tuple[str, ...]:
    """Return the beginnings of the distinct content words, and the bigrams of scripts without spaces.

    A beginning does for a stem here ("prefers", "preferred"), at a tenth of what `terms` costs.
    """
    found: dict[str, None] = {}
    for word in _WORD.findall(folded):
        if word[0] >= "\u2e80":
            found.update((word[i : i + 2], None) for i in range(len(word) - 1))
        elif word not in STOP_WORDS:
            found[word.removesuffix("s")[:_BEGINNING]] = None
    return tuple(found)


def is_negated(text: str) -> bool:
    """True if the text (in searchable form) holds a "not" of one of the known languages."""
    return bool(_NEGATION.search(text))


def holds(text: str, wanted: Saying, share: float) -> bool:
    """True if `text` (in searchable form) holds this share of the words, and all the numbers.

    Cheap where it is false, which is nearly always: it stops at the first word too many that is missing, and
    looks at numbers (as `restates` at "not") where the words are there.
    """
    spare = len(wanted.words) * (1 - share) + 1e-9
    for word in wanted.words:
        if word not in text:
            spare -= 1
            if spare < 0:
                return False
    return all(number in text for number in _NUMBER.findall(wanted.folded))


def restates(text: str, wanted: Saying, *, share: float, at_least: int) -> bool:
    """True if `text` (in searchable form) holds the saying and agrees with it about "not".

    A saying of fewer than `at_least` words is never restated: "vegan" alone does not say who is vegan.
    """
    if len(wanted.words) < at_least or not holds(text, wanted, share):
        return False
    return is_negated(text) == is_negated(wanted.folded)
