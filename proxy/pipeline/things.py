"""Things of everyday life that go by few names, and the words under which a memory would hold them: the table
of `words/things.txt`. They are looked for in a text as it stands and in its gloss."""

import re
from dataclasses import dataclass
from functools import cache

from proxy.wordlists import sections


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing with few names: how it is asked for, and the words under which memory would hold it.

    `with_value`: its price or its hour stands in the memory that names it, where it is told at all."""

    asked: re.Pattern[str]
    told_by: str
    with_value: bool = False

    @property
    def told(self) -> re.Pattern[str]:
        """The words of a memory that tells it: compiled at the first question, since most are never asked."""
        return _compiled(self.told_by)


def asked_for(said: str) -> list[Thing]:
    """Return the things that the (folded, English) question names."""
    words = _WORD.findall(said)
    phrases = (
        " ".join(words[at : at + length])
        for at in range(len(words))
        if words[at - 1] not in _INDEFINITE or at == 0
        for length in range(1, _LONGEST + 1)
    )
    named = [_named(at) for at in dict.fromkeys(_BY_NAME[p] for p in phrases if p in _BY_NAME)]
    return (
        [*(thing for thing in _PATTERNS if thing.asked.search(said)), *named] if _ANY.search(said) else named
    )


def _thing(asked: str, told: str, with_value: bool = False) -> Thing:
    bound = "" if _HAN.search(asked) else r"\b"  # Chinese words have no bounds
    return Thing(re.compile(rf"{bound}(?:{asked}){bound}"), rf"{_STARTS}(?:{told})", with_value)


@cache
def _named(at: int) -> Thing:
    asked, told = _NAMES[at].split(_TOLD)
    return _thing(asked, f"{asked}|{told}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_TOLD, _VALUE = " => ", "! "
_HAN = re.compile("[\u3400-\u9fff]")
_STARTS = r"(?:\b|(?<=[\u3400-\u9fff]))"
_TABLE = sections("things")
_PATTERNS = tuple(
    _thing(asked.removeprefix(_VALUE), told or asked, asked.startswith(_VALUE))
    for asked, _, told in (line.partition(_TOLD) for line in _TABLE["patterns"])
)
_ANY = re.compile("|".join(thing.asked.pattern for thing in _PATTERNS))

# Literal names are looked up: as a pattern they would cost half a millisecond a question.
_NAMES = _TABLE["names"]
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_INDEFINITE = frozenset({"a", "an", "any"})
_BY_NAME = {
    name + ending: at
    for at, line in enumerate(_NAMES)
    for name in line.partition(_TOLD)[0].split("|")
    for ending in ("", "s", "es")
}
_LONGEST = max(name.count(" ") for name in _BY_NAME) + 1
