"""Find the exchanges that mention a memory that is being forgotten, though no row links the two."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, column
from proxy.text.words import CJK, STOP_WORDS, fold, sentences

# ---------------------------------------------------------------- exchanges
Session = tuple[str | None, str]
"""Project and name: a session may still have responses when retention has removed its row."""

_THESE = rows.seqs_in(":these")
_WORDS = f"SELECT content FROM memories WHERE seq IN {_THESE}"
_QUOTES = f"SELECT span FROM evidence WHERE memory IN {_THESE}"
_MAY_MENTION = """
    SELECT x.seq, n.project, n.name, x.said, x.answer, x.explicit = 1 OR x.personal = 1
    FROM sessions n JOIN exchanges x ON x.session = n.id
    WHERE n.owner = :owner AND x.seq <= :exchanges AND (x.extraction <> 'done' OR n.id IN (
        SELECT e.session FROM json_each(:seen) seen
        CROSS JOIN exchanges e ON e.seq = CAST(seen.value AS INTEGER)))"""
SHARE = 0.5  # of a fact's words
FEW = 4  # words; of so many all are wanted, but for the first, which mostly names the user
ENOUGH = 3  # words; a shorter fact is only found in a text that says something about its user
CLOSE = 3  # neighbouring sentences
_BEGINNING = 5  # letters of a word that its forms have in common: "travelling", "travel"; of a shorter one,
_LAST = 1  # all but the last: "lives", "living"
_SHORTEST = 3  # fewer begin too many words: "tea", "teacher"
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
# Facts name the year, and the date if the user said "tomorrow".
_DATE = re.compile(r"\b(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?\b")
_WORD = re.compile(rf"[^\W_{CJK}]{{3,}}|[{CJK}]{{2,}}")
_GAP = re.compile(r"[\W_]+")


def mentioning_exchanges(
    tx: Connection, ours: dict[str, Any], verdicts: "Verdicts"
) -> Iterator[tuple[str, int, Session]]:
    """Yield "exchanges" where the user's words mention one of `:these` memories, "answers" where only the
    answer does; the exchange's number; its session. `:seen`: exchanges of sessions that are searched."""
    facts = MentionMatcher(column(tx, _WORDS, ours), column(tx, _QUOTES, ours), verdicts)
    for seq, project, name, said, answer, personal in tx.execute(_MAY_MENTION, ours):
        if facts.is_in(said, personal=bool(personal)):
            yield "exchanges", seq, (project, name)
        elif facts.is_in(answer, personal=False):
            yield "answers", seq, (project, name)


# ---------------------------------------------------------------- words alone
@dataclass(frozen=True, slots=True)
class _Fact:
    words: tuple[str, ...]  # their beginnings
    numbers: frozenset[str]
    names_user: bool = False  # its first word may be for its user, who does not use it

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the words of which SHARE must be there, or all of FEW."""
        return self.words[1:] if self.names_user and ENOUGH <= len(self.words) <= FEW else self.words

    def may_be_in(self, folded: str) -> bool:
        """False where the text (in searchable form) surely lacks the words, or a number."""
        words = [word.strip() for word in self.wanted]
        return _holds(folded, words) and all(number in folded for number in self.numbers)

    @property
    def is_short(self) -> bool:
        return len(self.words) + len(self.numbers) < ENOUGH


Case = tuple[tuple[_Fact, ...], str]


@dataclass(slots=True)
class Verdicts:
    """Which texts state a fact, of those that hold its words. Finding the sentences of a long text takes up
    to 0.1 s: each is judged once, and outside of transactions.

    `put_off`: answer no for now, and collect what is asked until `settle` judges it, in any thread."""

    put_off: bool = False
    _known: dict[Case, bool] = field(default_factory=dict)
    _asked: dict[Case, None] = field(default_factory=dict)

    def mentions(self, facts: tuple[_Fact, ...], text: str) -> bool:
        case = facts, text
        if (known := self._known.get(case)) is not None:
            return known
        if self.put_off:
            self._asked[case] = None
            return False
        return self._known.setdefault(case, _judge(*case))

    def settle(self) -> None:
        self._known |= {case: _judge(*case) for case in self._asked}
        self._asked.clear()
        self.put_off = False


class MentionMatcher:
    """Facts that are being forgotten, and the words of their users that they were learnt from."""

    def __init__(
        self, contents: Iterable[str], quotes: Iterable[str], verdicts: Verdicts | None = None
    ) -> None:
        facts = dict.fromkeys(fact for text in contents if (fact := _fact(text, names_user=True)))
        said = (_fact(text, names_user=False) for text in quotes)
        facts |= dict.fromkeys(fact for fact in said if fact and not fact.is_short)
        self._facts = tuple(facts)
        self._verdicts = verdicts or Verdicts()

    def is_in(self, text: str, *, personal: bool) -> bool:
        """Return whether the text states one of the facts. `personal`: it says something about its user."""
        wanted = [fact for fact in self._facts if personal or not fact.is_short]
        folded = _searchable(text)
        # Nearly always none, and cheap then.
        may = tuple(fact for fact in wanted if fact.may_be_in(folded))
        return bool(may) and self._verdicts.mentions(may, text)


def _judge(facts: tuple[_Fact, ...], text: str) -> bool:
    """Return whether one of the facts is stated in neighbouring sentences."""
    if not (facts := tuple(_held(text, facts))):
        return False
    said = sentences(text)
    short, others = [f for f in facts if f.is_short], [f for f in facts if not f.is_short]
    near = (" ".join(said[at : at + CLOSE]) for at in range(len(said)))
    return any(_held(one, short) for one in said) or any(_held(some, others) for some in near)


def _fact(text: str, *, names_user: bool) -> _Fact | None:
    """Return what of the text can be looked for; None if there is nothing."""
    folded = _searchable(_DATE.sub(" ", text))
    numbers, words = frozenset(_NUMBER.findall(folded)), dict[str, None]()
    for word in _WORD.findall(folded):
        if word[0] >= "\u2e80":  # the bigrams of scripts without spaces
            words |= dict.fromkeys(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in STOP_WORDS and not word.isdigit():
            # As it is in a text with a form of the word, if the gaps are single blanks.
            word = word.removesuffix("s")
            beginning = word[: min(_BEGINNING, max(_SHORTEST, len(word) - _LAST))]
            words[f" {word} " if len(word) <= _SHORTEST else f" {beginning}"] = None
    return _Fact(tuple(words), numbers, names_user) if words or numbers else None


def _searchable(text: str) -> str:
    """Return the text folded, without thousands separators."""
    return fold(text).replace(",", "")


def _held(text: str, facts: Sequence[_Fact]) -> list[_Fact]:
    """Return the facts that have their words and numbers anywhere in the text."""
    if not facts:
        return []
    folded = _searchable(text)
    spaced = f" {_GAP.sub(' ', folded)} "
    return [
        fact for fact in facts if _holds(spaced, fact.wanted) and fact.numbers <= set(_NUMBER.findall(folded))
    ]


def _holds(spaced: str, words: Sequence[str]) -> bool:
    spare = len(words) * (1 - SHARE) if len(words) > FEW else 0
    for word in words:
        if word not in spaced and not (word[-1] == " " and f"{word[:-1]}s " in spaced):
            spare -= 1
            if spare < 0:
                return False
    return True
