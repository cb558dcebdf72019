"""Decide whether this turn needs memory.

A search costs two milliseconds, a missed memory costs the user's trust: everything is searched unless a
rule is sure. A rule looks at the instruction alone (a pasted text says "I" without meaning the user) and
never fires where the instruction is personal or points at something said before.
"""

from dataclasses import dataclass

from proxy.domain import Message, Turn
from proxy.pipeline.decision.brought import brings_its_own, is_for_somebody
from proxy.pipeline.decision.commands import is_command
from proxy.pipeline.decision.errands import is_errand
from proxy.pipeline.decision.facts import is_general_fact
from proxy.pipeline.decision.greeting import is_greeting
from proxy.pipeline.decision.live import Live, live
from proxy.pipeline.decision.own import is_personal, points_back
from proxy.pipeline.decision.paste import beside_the_paste, names_something, own_words
from proxy.pipeline.decision.payload import (
    asks,
    is_agreed,
    is_transformation,
    is_translation,
    means_the_text,
    needs_nothing,
    split_payload,
    without_dummies,
)
from proxy.pipeline.decision.public import is_public, without_doubt
from proxy.pipeline.decision.sums import is_calculation
from proxy.reasons import Reason

INSTRUCTION_CHARS = 400  # a longer instruction is a story; search
INSPECTED_CHARS = 600  # of a paste: its instruction stands in front, or it is searched


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to search; where not, the reason for the response header."""

    search: bool
    reason: Reason | None = None


_SEARCH = Verdict(search=True)


def decide(turn: Turn) -> Verdict:
    """Return whether memory could help with the turn's last user message."""
    if turn.tool_forced:
        return Verdict(False, Reason.TOOL_FORCED)
    text = turn.query.strip()
    query = text[:INSPECTED_CHARS]
    if not query:
        return Verdict(False, Reason.NO_QUERY)
    if own := own_words(text):
        return _around_paste(own)
    if is_greeting(query):
        # After a question "ok" is an answer, and what it agrees to may need memory.
        return _SEARCH if was_asked(turn.messages) else Verdict(False, Reason.GREETING)
    if turn.pastes:
        return _around_paste(text)
    return _of_question(query)


def _around_paste(own: str) -> Verdict:
    beside = beside_the_paste(own)
    if is_personal(own) or points_back(beside) or is_agreed(own):
        return _SEARCH
    of_paste = beside != own and not names_something(own)
    if of_paste or is_transformation(own):
        return Verdict(False, Reason.SELF_CONTAINED)
    return _SEARCH


def worth_searching(question: str) -> bool:
    """True unless a rule is sure that memory could not help with the question, whatever was said before."""
    return _of_question(question.strip()[:INSPECTED_CHARS]).search


def _of_question(query: str) -> Verdict:
    query = without_doubt(query)
    if brings_its_own(query):
        return Verdict(False, Reason.SELF_CONTAINED)
    if is_errand(query):
        return Verdict(False, Reason.TOOL_ANSWERS)
    instruction, payload = split_payload(query)
    if len(instruction) > INSTRUCTION_CHARS or is_personal(instruction):
        return _SEARCH
    works_on_it = is_transformation(instruction) or means_the_text(instruction)
    works_on_it = works_on_it and not is_for_somebody(instruction)
    if payload and works_on_it and not _asks_besides(instruction, payload):
        return Verdict(False, Reason.SELF_CONTAINED)
    if is_calculation(query) or needs_nothing(query):
        return Verdict(False, Reason.SELF_CONTAINED)
    leaning = without_dummies(instruction)
    if live(query) is Live.SURE or is_public(query) or is_command(query):
        return Verdict(False, Reason.TOOL_ANSWERS)
    if not points_back(leaning) and is_general_fact(query):
        return Verdict(False, Reason.GENERAL_FACT)
    return _SEARCH


def _asks_besides(instruction: str, payload: str) -> bool:
    """True for "sum up the order: how many, how much"; a question that is to be translated is a text."""
    return asks(payload) and not is_translation(instruction)


def was_asked(messages: tuple[Message, ...]) -> bool:
    """True if the assistant's last message ends with a question."""
    last = next((m.text for m in reversed(messages) if m.role == "assistant"), "")
    return last.rstrip(" \n\"'*_)”」").endswith(("?", "？"))
