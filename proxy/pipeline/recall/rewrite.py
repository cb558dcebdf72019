"""Build the search query from what the user typed.

A self-contained question is searched as it is. A vague one ("How much?", "那是哪天?") takes its topic from
the last user messages. A long paste is reduced to its question: embedding costs 14 ms for 150 tokens, and
the vector of a paste is the vector of nothing in particular.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.gloss import question_gloss
from proxy.pipeline.decision.own import points_back
from proxy.pipeline.decision.paste import own_words
from proxy.pipeline.recall.several import questions_of
from proxy.sentences import sentences
from proxy.terms import terms

MAX_PIECES = 60  # words, or characters of a script without spaces, that are embedded
MAX_TERMS = 48  # distinct terms that are looked up
MAX_CHARS = 2000  # of a paste are looked at: its head and its tail

VAGUE_TERMS = 2  # so few content words name no topic
VAGUE_CHARS = 200  # a longer message names its topic
_GLOSSED = 0.8  # of the text in a gloss: enough to count its words
LEANING_TERMS = 3  # "climbing slowly. what was the limit?"
POINTING_TERMS = 6  # "that one, what is it now?": more words, and still no topic of its own

_PIECE = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\\S(?:(?![\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])\\S)*"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# "It" and "es" may be nobody, "il" where it rains or has to be, "Sie" the one who is spoken to.
_SOMEBODY = re.compile(
    r"\W*(?:(?i:and|but|so) )?"
    r"(?:(?i:can|could|may|will|would|does|did|is|was|has|should|are|were|do|have) )?(?i:he|she|they)\b"
    r"|\W*(?:(?i:et|mais|est-ce qu')\s?)?(?i:ils?|elles?)"
    r" (?!y a|faut|fait|pleut|est (?:possible|tard|vrai|temps))"
    r"|\W*(?:(?i:und|aber|darf|kann|muss|soll|hat|ist|wird) )?(?:er|Er|sie) \w"
    r"|\W*(?:(?i:y|pero) )?(?i:él|ella|ellos|ellas)\b|(?:那|可是)?[他她]",
)
_ASKED = re.compile(r"[?？][\"')\]”’»」』]*\Z")


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for: `text` is embedded, `terms` are looked up. `text` is never longer than
    MAX_PIECES words. `parts`: the questions in it, where there are several (see `several`).

    Of a model: `imagined`, an answer made up, is embedded with the text; `extra` terms find candidates, and
    say nothing about how much of the question a memory covers; `time` names one, in English."""

    text: str
    terms: tuple[str, ...]
    imagined: str = ""
    parts: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    time: str = ""


def is_vague(text: str) -> bool:
    """True if the text alone does not say what it is about."""
    if len(text) > VAGUE_CHARS:
        return False
    count = _content_words(text)
    return count <= VAGUE_TERMS or (count <= POINTING_TERMS and (points_back(text) or _leans(text)))


def may_lean(text: str) -> bool:
    """True if the text is so short that in the middle of a conversation it may ask about what was just said,
    though it names a topic."""
    return _content_words(text[:VAGUE_CHARS]) <= LEANING_TERMS


def _leans(text: str) -> bool:
    """True if the text begins with somebody whom only what was said before can name: "Can he sign alone?" """
    return _SOMEBODY.match(text) is not None


def rewrite(text: str, history: Sequence[str]) -> Query:
    """Return the query for a user message, its topic taken from `history` if it names none.

    `history`: the user messages before it, oldest first, as many as may lend their words.
    """
    # Of a paste, what stands around it: its own words would look up everything in it.
    text = own_words(text) or _shorten(text)
    question = _question(text)
    if not history or not is_vague(question):
        return Query(question, _distinct(terms(text)), parts=questions_of(question))
    earlier = [_question(_shorten(message)) for message in history]
    said = "\n".join([*earlier, question])
    # The newest words first, so that the bound cuts the oldest.
    found = [t for message in (text, *reversed(earlier)) for t in terms(message)]
    return Query(_tail(said, MAX_PIECES), _distinct(found))


def as_it_is(text: str) -> Query:
    """Return the query for a text that needs no history and asks one thing."""
    return Query(text, _distinct(terms(text)))


@lru_cache(maxsize=16)  # of questions, while the rules look at them in turn
def _content_words(text: str) -> float:
    """Return the number of distinct content words; two CJK characters count as one word.

    In a language that the lexicon knows they are counted in English, whose stop words are known.
    """
    said = question_gloss(text)
    found = set(terms(said.text if said.known >= _GLOSSED else text))
    unspaced = sum(1 for t in found if len(t) == 1 and t > "\u2e7f")
    spaced = sum(1 for t in found if t <= "\u2e7f")
    return spaced + unspaced / 2


def _shorten(text: str) -> str:
    """Return the head and the tail of a paste: people put the question at either end."""
    if len(text) <= MAX_CHARS:
        return text
    return text[: MAX_CHARS // 2] + "\n" + text[-MAX_CHARS // 2 :]


def _question(text: str) -> str:
    """Return at most MAX_PIECES words: the whole text, else its last questions, else head and tail."""
    if _pieces(text) <= MAX_PIECES:
        return text
    prose = _CODE.sub("\n", text)
    if not prose.strip():
        prose = text
    asked = [s for s in sentences(prose) if _ASKED.search(s)]
    if asked:
        return _tail(" ".join(asked[-2:]), MAX_PIECES)
    if _pieces(prose) <= MAX_PIECES:
        return prose.strip()
    return _head(prose, MAX_PIECES // 2) + " … " + _tail(prose, MAX_PIECES // 2 - 1)


def _pieces(text: str) -> int:
    return sum(1 for _ in _PIECE.finditer(text))


def _head(text: str, count: int) -> str:
    spans = [m.end() for m in _PIECE.finditer(text)]
    return text[: spans[count - 1]] if len(spans) > count else text


def _tail(text: str, count: int) -> str:
    spans = [m.start() for m in _PIECE.finditer(text)]
    return text[spans[-count] :] if len(spans) > count else text


def _distinct(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))[:MAX_TERMS]
