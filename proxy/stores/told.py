"""Decide whether an exchange tells a fact that is being forgotten: before a model has read the exchange,
nothing links the two but their words.

A wrong yes loses what the user said, a wrong no brings back what is forgotten: all of a fact's numbers, and
of its words half, of a few all, close together. The words that it was learnt from count as the fact does: who
says a thing twice says it alike.

1,135 facts of 40 personas against all that these said, without those words: three in four are found where
they were told, and 23 other messages of 41,352 are taken, most of which say the same or correct it. (Four
fifths of the words: one in four, and 1.)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.overlap import saying, searchable
from proxy.sentences import sentences

SHARE = 0.5  # of a fact's words
FEW = 4  # words; of so many all are wanted
ENOUGH = 3  # words; fewer are found in too much: only what says something about its user tells such a fact
CLOSE = 3  # sentences in which the words stand
_BEGINNING = 5  # letters of a word that its forms have in common: "travelling", "travel"; of a shorter one,
_LAST = 1  # all but the last: "lives", "living"
_SHORTEST = 3  # fewer begin too many words: "tea", "teacher"
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
# Facts name the year, and the date where somebody said "tomorrow".
_DATE = re.compile(r"\b(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?\b")
_SUBJECT = re.compile(
    r"\b(?:user|(?:be)?nutzer(?:in|s)?|utilisat(?:eur|rice)|usuari[oa]|utente)\b"
    r"|用户的?|用戶的?|使用者的?|ユーザー[のはが]?|사용자[는가의]?",
    re.I,
)
# Who goes somewhere says "we go", "I'm off" or "we fly".
_LIGHT = frozenset({"goe", "going", "gone", "went", "get", "getting", "got"})  # as `saying` has them
_GAP = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class _Fact:
    words: tuple[str, ...]
    numbers: frozenset[str]

    def may_be_in(self, folded: str) -> bool:
        """False where the text (in searchable form) surely lacks the words, or a number."""
        words = [word.strip() for word in self.words]
        return _holds(folded, words) and all(number in folded for number in self.numbers)

    @property
    def is_short(self) -> bool:
        return len(self.words) + len(self.numbers) < ENOUGH


Case = tuple[tuple[_Fact, ...], str]


@dataclass(slots=True)
class Verdicts:
    """Which texts tell facts whose words they hold: found out once, and where nobody waits for it. Where the
    sentences of a long text end takes up to 0.1 s to tell.

    `put_off`: say no for now, and note what is asked until `settle` has found it out, in whatever thread.
    """

    put_off: bool = False
    _known: dict[Case, bool] = field(default_factory=dict)
    _asked: dict[Case, None] = field(default_factory=dict)

    def tell(self, facts: tuple[_Fact, ...], text: str) -> bool:
        """Return whether the text tells one of the facts."""
        case = facts, text
        if (known := self._known.get(case)) is not None:
            return known
        if self.put_off:
            self._asked[case] = None
            return False
        return self._known.setdefault(case, _tell(*case))

    def settle(self) -> None:
        """Find out what was put off."""
        self._known |= {case: _tell(*case) for case in self._asked}
        self._asked.clear()
        self.put_off = False


class Told:
    """Facts that are being forgotten, and the words of their users that they were learnt from."""

    def __init__(
        self, contents: Iterable[str], quotes: Iterable[str], verdicts: Verdicts | None = None
    ) -> None:
        facts = dict.fromkeys(filter(None, map(_fact, contents)))
        facts |= dict.fromkeys(fact for fact in map(_fact, quotes) if fact and not fact.is_short)
        self._facts = tuple(facts)
        self._verdicts = verdicts or Verdicts()

    def is_in(self, text: str, *, personal: bool) -> bool:
        """Return whether the text tells one of the facts. `personal`: it says something about its user."""
        wanted = [fact for fact in self._facts if personal or not fact.is_short]
        folded = searchable(text)
        # Nearly always none, and cheap then.
        may = tuple(fact for fact in wanted if fact.may_be_in(folded))
        return bool(may) and self._verdicts.tell(may, text)


def _tell(facts: tuple[_Fact, ...], text: str) -> bool:
    """Return whether one of the facts stands in sentences that are close together."""
    if not (facts := tuple(_held(text, facts))):
        return False
    said = sentences(text)
    short, others = [f for f in facts if f.is_short], [f for f in facts if not f.is_short]
    near = (" ".join(said[at : at + CLOSE]) for at in range(len(said)))
    return any(_held(one, short) for one in said) or any(_held(some, others) for some in near)


def _fact(text: str) -> _Fact | None:
    """Return what of the text can be looked for; None if there is nothing."""
    bare = _DATE.sub(" ", _SUBJECT.sub(" ", text))
    words = dict.fromkeys(_beginning(word) for word in saying(bare).words if word not in _LIGHT)
    numbers = frozenset(_NUMBER.findall(searchable(bare)))
    return _Fact(tuple(words), numbers) if words or numbers else None


def _beginning(word: str) -> str:
    """Return what stands in a text that holds a form of the word, with gaps of one blank."""
    if word > "\u2e7f":
        return word
    if len(word) <= _SHORTEST:
        return f" {word} "
    return f" {word[: min(_BEGINNING, max(_SHORTEST, len(word) - _LAST))]}"


def _held(text: str, facts: Sequence[_Fact]) -> list[_Fact]:
    """Return those of the facts whose words and numbers are in the text, wherever."""
    if not facts:
        return []
    folded = searchable(text)
    spaced = f" {_GAP.sub(' ', folded)} "
    return [
        fact for fact in facts if _holds(spaced, fact.words) and fact.numbers <= set(_NUMBER.findall(folded))
    ]


def _holds(spaced: str, words: Sequence[str]) -> bool:
    spare = len(words) * (1 - SHARE) if len(words) > FEW else 0
    for word in words:
        if word not in spaced and not (word[-1] == " " and f"{word[:-1]}s " in spaced):
            spare -= 1
            if spare < 0:
                return False
    return True
