"""Find what repeats a memory that is being forgotten, though no row links the two: exchanges that mention it,
and stored responses that were made with those in view."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, column
from proxy.text.words import CJK, STOP_WORDS, fold, sentences

# ---------------------------------------------------------------- exchanges
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
) -> Iterator[tuple[str, int, tuple[str | None, str]]]:
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


# ---------------------------------------------------------------- responses
Session = tuple[str | None, str]
"""Project and name: a session may still have responses when retention has removed its row."""

_NAMED = """
    (SELECT json_extract(value, '$[0]') AS project, json_extract(value, '$[1]') AS name
     FROM json_each(:sessions))"""
_OF_SESSIONS = f"""
    SELECT x.seq FROM {_NAMED} n
    JOIN stored_responses x ON x.owner = :owner AND x.session = n.name WHERE x.project IS n.project"""
_ITEMS_OF_SESSIONS = f"""
    SELECT i.seq FROM {_NAMED} n
    JOIN conversation_items i ON i.session = n.name AND i.project IS n.project
    JOIN conversations c ON c.seq = i.conversation AND c.owner = :owner"""
# Who continued a response was shown all of it.
_LATER = f"""
    WITH RECURSIVE led (seq, owner, id) AS (
        SELECT r.seq, r.owner, r.id FROM stored_responses r WHERE r.seq IN {rows.seqs_in(":responses_led")}
        UNION
        SELECT later.seq, later.owner, later.id
        FROM led JOIN stored_responses later
        ON later.previous_id = led.id AND later.owner = led.owner
    )
    SELECT r.seq, r.project, r.session FROM led JOIN stored_responses r ON r.seq = led.seq"""
_OF_CONVERSATIONS = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.conversation_id IN (
        SELECT conversation_id FROM stored_responses WHERE seq IN {rows.seqs_in(":responses_led")}
        UNION
        SELECT c.id FROM conversation_items i JOIN conversations c ON c.seq = i.conversation
        WHERE i.seq IN {rows.seqs_in(":items_led")}
        UNION
        SELECT id FROM conversations WHERE seq IN {rows.seqs_in(":conversations_led")})"""
# A response with an input that names an item has a copy of it.
_REFERRING = f"""
    SELECT r.seq, r.project, r.session FROM stored_responses r
    WHERE r.owner = :owner AND r.recalled <> '[]' AND EXISTS (
        SELECT 1 FROM json_each(r.recalled) shown
        JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
        WHERE led.seq IN {rows.seqs_in(":responses_led")})"""
_ITEMS = f"""
    SELECT i.seq, i.project, i.session FROM stored_responses r
    JOIN conversations c ON c.owner = r.owner AND c.id = r.conversation_id
    JOIN conversation_items i ON i.conversation = c.seq
    WHERE r.seq IN {rows.seqs_in(":responses_led")}
    UNION
    SELECT i.seq, i.project, i.session FROM (
        SELECT conversation, min(seq) AS first FROM conversation_items
        WHERE seq IN {rows.seqs_in(":items_led")} GROUP BY conversation) led
    JOIN conversation_items i ON i.conversation = led.conversation AND i.seq >= led.first
    WHERE i.seq <= :items"""
# Sessions that something led to out of another, whatever else leads to them. CROSS JOIN, plus: each by its
# name, and looked for among the numbers.
_CROSSED = f"""
    SELECT r.project, r.session FROM stored_responses r
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = r.previous_id
    WHERE r.seq IN {rows.seqs_in(":responses_led")} AND +led.seq IN {rows.seqs_in(":responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT r.project, r.session FROM stored_responses r CROSS JOIN json_each(r.recalled) shown
    CROSS JOIN stored_responses led ON led.owner = r.owner AND led.id = shown.value
    WHERE r.seq IN {rows.seqs_in(":responses_led")} AND +led.seq IN {rows.seqs_in(":responses_led")}
    AND (led.session <> r.session OR led.project IS NOT r.project)
    UNION
    SELECT i.project, i.session FROM conversation_items i
    WHERE i.seq IN {rows.seqs_in(":items_all")} AND i.conversation IN (
        SELECT conversation FROM conversation_items
        WHERE seq IN {rows.seqs_in(":items_all")} AND session IS NOT NULL
        GROUP BY conversation HAVING count(DISTINCT json_array(project, session)) > 1)"""
_ANSWERS = f"""
    SELECT x.seq FROM {_NAMED} named
    CROSS JOIN sessions n ON n.owner = :owner AND n.name = named.name AND n.project IS named.project
    CROSS JOIN exchanges x ON x.session = n.id WHERE x.seq <= :exchanges"""


class LinkedResponses:
    """What was found so far. `sessions`: where it was stated or shown."""

    def __init__(self, tx: Connection, ours: dict[str, Any], sessions: Collection[Session]) -> None:
        self._tx, self._ours, self._sessions = tx, ours, sessions
        self._linked: dict[int, Session] = {}  # responses, as they were led to
        self.linked_items: tuple[int, ...] = ()
        self._said_in: set[Session] = set()  # sessions of the conversation items that are erased
        self._crossed: set[Session] = set()

    def follow(self, responses: set[int], items: set[int], conversations: set[int]) -> None:
        """Add to the responses and items those of the sessions; find what they and the conversations lead
        to."""
        self._ours["sessions"] = rows.as_json(self._sessions)
        responses.update(column(self._tx, _OF_SESSIONS, self._ours))
        items.update(column(self._tx, _ITEMS_OF_SESSIONS, self._ours))
        self._ours |= {"items_led": rows.as_json(items), "conversations_led": rows.as_json(conversations)}
        while True:
            self._ours["responses_led"] = rows.as_json({*responses, *self._linked})
            more = dict(row for query in (_LATER, _OF_CONVERSATIONS, _REFERRING) for row in self._rows(query))
            if not (new := more.keys() - responses - self._linked.keys()):
                break
            self._linked |= {seq: more[seq] for seq in sorted(new)}
        found = dict(self._rows(_ITEMS))
        self.linked_items, self._said_in = tuple(sorted(found.keys() - items)), {*found.values()}
        self._ours["items_all"] = rows.as_json({*found, *items})
        self._crossed = set(self._tx.execute(_CROSSED, self._ours))

    @property
    def linked_responses(self) -> tuple[int, ...]:
        """Those found last first: after a crash, what is left of them is found again."""
        return tuple(reversed(self._linked))

    def answers(self) -> Iterable[int]:
        """Return the exchanges of the sessions that were reached by what leads from one to another."""
        reached = {*self._linked.values(), *self._said_in} - {*self._sessions} | self._crossed
        self._ours["sessions"] = rows.as_json(sorted(reached, key=str))
        return column(self._tx, _ANSWERS, self._ours)

    def _rows(self, query: str) -> Iterator[tuple[int, Session]]:
        for seq, project, session in self._tx.execute(query, self._ours):
            yield seq, (project, session)
