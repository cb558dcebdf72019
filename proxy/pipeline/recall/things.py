"""Look up everyday things that go by few names, and the words under which a memory would hold them: the
table of `words/things.txt`. They are looked for in a text as it stands and in its gloss.
"""

import re
from dataclasses import dataclass
from functools import cache
from weakref import WeakValueDictionary

from proxy.gloss import gloss
from proxy.pipeline.recall.beside import asked_part
from proxy.terms import fold
from proxy.wordlists import alternatives, sections

_READ_CHARS = 600  # of a memory: what a question of one thing asks for stands in its beginning
_GLOSS_CHARS = 6 * _READ_CHARS  # a Chinese character may be a word


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing with few names: how it is asked for, and the words under which memory would hold it.

    `with_value`: its price or its hour stands in the memory that names it, where it is told at all.
    `event`: makes the question, so that it has to be told beside whatever else is asked."""

    asked: re.Pattern[str]
    told_by: str
    with_value: bool = False
    event: bool = False

    @property
    def told(self) -> re.Pattern[str]:
        """The words of a memory that tells it: compiled at the first question, since most are never asked."""
        return _compiled(self.told_by)


def asked_for(said: str, *, of_somebody: bool = False) -> list[Thing]:
    """Return the things that the (folded, English) question names.

    `of_somebody`: without what is told of each person, such as a birthday."""
    words = _WORD.findall(said)
    phrases = (
        " ".join(words[at : at + length])
        for at in range(len(words))
        if words[at - 1] not in _INDEFINITE or at == 0
        for length in range(1, _LONGEST + 1)
    )
    named = [_named(at) for at in dict.fromkeys(_BY_NAME[p] for p in phrases if p in _BY_NAME)]
    if not _ANY.search(said):
        return named
    rows = _OF_THINGS if of_somebody else (*_OF_ANYBODY, *_OF_THINGS)
    return [*(thing for thing in rows if thing.asked.search(said)), *named]


def asked_of_person(said: str) -> list[Thing]:
    """Return what the (folded, English) question asks of somebody, of that which is told of each person."""
    return [thing for thing in _OF_PERSONS if thing.asked.search(said)]


class Reading:
    """Contents as they are looked at, each folded and glossed at most once.

    Lives as long as the question it is read for: what is remembered must not outlive a forget."""

    def __init__(self) -> None:
        self._folded: dict[str, str] = {}
        self._english: dict[str, str] = {}

    @property
    def holds(self) -> int:
        """Return how many contents it remembers."""
        return len(self._folded)

    def folded(self, content: str) -> str:
        """Return the beginning of the content, folded."""
        if content not in self._folded:
            self._folded[content] = fold(content, _READ_CHARS)
        return self._folded[content]

    def english(self, content: str) -> str:
        """Return the beginning of the content in English, folded (dearer)."""
        if content not in self._english:
            self._english[content] = fold(gloss(content[:_READ_CHARS]).text, _GLOSS_CHARS)
        return self._english[content]


def reading_for(question: str) -> Reading:
    """Return the reading that all rules share which look at this question, or at its part that asks."""
    key = asked_part(question).strip()
    if (shared := _READINGS.get(key)) is None:
        shared = _READINGS[key] = Reading()
    return shared


def _thing(asked: str, told: str, with_value: bool = False, event: bool = False) -> Thing:
    bound = "" if _HAN.search(asked) else r"\b"  # Chinese words have no bounds
    return Thing(re.compile(rf"{bound}(?:{asked}){bound}"), rf"{_STARTS}(?:{told})", with_value, event)


def _rows(section: str, event: bool = False) -> tuple[Thing, ...]:
    rows = (line.partition(_TOLD) for line in _TABLE[section])
    return tuple(
        _thing(asked.removeprefix(_VALUE), told or asked, asked.startswith(_VALUE), event)
        for asked, _, told in rows
    )


@cache
def _named(at: int) -> Thing:
    asked, told = _NAMES[at].split(_TOLD)
    return _thing(asked, f"{asked}|{told}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_TOLD, _VALUE = " => ", "! "
_HAN = re.compile("[\u3400-\u9fff]")
_STARTS = r"(?:\b|(?<=[\u3400-\u9fff])|(?=[\u3400-\u9fff]))"
_TABLE = sections("things")
_OF_ANYBODY = _rows("of anybody")
_OF_PERSONS = (*_OF_ANYBODY, *_rows("of a person"))
_OF_THINGS = (*_rows("patterns"), *_rows("events", event=True))
_ANY = re.compile(alternatives(thing.asked.pattern for thing in (*_OF_ANYBODY, *_OF_THINGS)))

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
_READINGS: WeakValueDictionary[str, Reading] = WeakValueDictionary()  # by the part that asks
