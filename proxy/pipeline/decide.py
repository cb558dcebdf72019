"""Does this turn need memory? (requirements B1–B4)

A search costs two milliseconds, a missed memory costs the user's trust: everything is searched unless a
rule is sure. A rule looks at the instruction alone (a pasted text says "I" without meaning the user) and
never fires where the instruction is personal or points at something said before.
"""

import re
from dataclasses import dataclass

from proxy.domain import Message, Turn
from proxy.pipeline import questions
from proxy.pipeline.greeting import is_greeting
from proxy.pipeline.live import Live, live
from proxy.pipeline.paste import beside_the_paste, names_something, own_words
from proxy.terms import fold, plain
from proxy.wordlists import any_of, whole_words

INSTRUCTION_CHARS = 400  # a longer instruction is a story; search
INSPECTED_CHARS = 600  # of a paste: its instruction stands in front, or it is searched


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to search; where not, the reason for the response header."""

    search: bool
    reason: str = ""


_SEARCH = Verdict(search=True)


def decide(turn: Turn) -> Verdict:
    """Return whether memory could help with the turn's last user message."""
    if turn.tool_forced:
        return Verdict(False, "tool_forced")
    text = turn.query.strip()
    query = text[:INSPECTED_CHARS]
    if not query:
        return Verdict(False, "no_query")
    if own := own_words(text):
        return _around_paste(own)
    if is_greeting(query):
        # After a question "ok" is an answer, and what it agrees to may need memory.
        return _SEARCH if was_asked(turn.messages) else Verdict(False, "greeting")
    return _of_question(query)


def _around_paste(own: str) -> Verdict:
    beside = beside_the_paste(own)
    if is_personal(own) or points_back(beside) or questions.is_agreed(own):
        return _SEARCH
    of_paste = beside != own and not names_something(own)
    if of_paste or questions.is_transformation(own):
        return Verdict(False, "self_contained")
    return _SEARCH


def worth_searching(question: str) -> bool:
    """True unless a rule is sure that memory could not help with the question, whatever was said before."""
    return _of_question(question.strip()[:INSPECTED_CHARS]).search


def _of_question(query: str) -> Verdict:
    instruction, payload = questions.split_payload(query)
    if len(instruction) > INSTRUCTION_CHARS or is_personal(instruction):
        return _SEARCH
    works_on_it = questions.is_transformation(instruction) or questions.means_the_text(instruction)
    if payload and works_on_it and not _asks_besides(instruction, payload):
        return Verdict(False, "self_contained")
    if questions.is_calculation(query) or questions.needs_nothing(query):
        return Verdict(False, "self_contained")
    leaning = questions.without_dummies(instruction)
    if live(query) is Live.SURE:
        return Verdict(False, "tool_answers")
    if not points_back(leaning) and questions.is_general_fact(query):
        return Verdict(False, "general_fact")
    return _SEARCH


def _asks_besides(instruction: str, payload: str) -> bool:
    """True for "sum up the order: how many, how much"; a question that is to be translated is a text."""
    return questions.asks(payload) and not questions.is_translation(instruction)


def is_personal(text: str) -> bool:
    """True if the text says I, my, we … in one of the known languages, requests ("tell me") aside."""
    # "US" is a country, "us" is we: told apart before folding.
    if re.search(r"\bus\b", text):
        return True
    folded = _REQUEST.sub(" ", plain(text))
    return bool(_PERSONAL.search(folded))


def points_back(text: str) -> bool:
    """True if the text leans on something said before ("that one", "again", "上次")."""
    return bool(_POINTER.search(fold(text)))


def was_asked(messages: tuple[Message, ...]) -> bool:
    """True if the assistant's last message ends with a question."""
    last = next((m.text for m in reversed(messages) if m.role == "assistant"), "")
    return last.rstrip(" \n\"'*_)”」").endswith(("?", "？"))


_REQUEST = re.compile(any_of("personal", "requests"))
# Spanish and Portuguese verbs say "we" in their ending; "gramos" is no verb.
_WE = (
    r"\b(?!(?:\w*gramos|ultimos|proximos|maximos|minimos|primos|\w*onimos|decimos|extremos|tramos|ramos"
    r"|optimos|racimos)\b)\w{2,}(?:amos|emos|imos)\b"
)
_MY = r"(?<!\w)[내제] "  # in Korean: one syllable that stands alone
_PERSONAL = re.compile(rf"{whole_words('personal', 'personal')}|{_WE}|{_MY}")
_POINTER = re.compile(whole_words("personal", "pointers"))
