"""Summarise an ended session with one LLM call, and check that what the summary says happened.

The summary becomes an episodic memory like any other, through the gate. A model that does not know the task
answers with anything, and a lazy one with nothing in many words: neither passes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

from proxy.admit.safety.filters import reject
from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import Candidate, Evidence, Exchange
from proxy.domain.ports import CompletionRequest
from proxy.learn.extraction import transcript
from proxy.learn.extraction.repair import objects
from proxy.prompts import prompt
from proxy.text.sentences import without_inner_stops
from proxy.text.terms import fold, terms

ROLE = "memory_summary"
MAX_SUMMARY = 600  # characters
_MAX_CONTENT = 780  # with actions and outcomes: what a memory may hold
_MOST_TOPICS, _MOST_ITEMS, _MAX_ITEM = 5, 4, 120
_SUPPORT = 0.5  # share of the summary's terms that must be in the session: the rest is narration
_SAYS, _SUBSTANCE = 2, 6  # terms of an exchange that says something ("My budget is $3,000"), and of them all
_TELLING = 4  # terms of the session that it must tell
_CONFIDENCE = 0.8
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<![.!?:;\"“(]\s)(?<=[\w,]\s)[A-Z][\w'’-]+")


def has_substance(exchanges: Sequence[Exchange]) -> bool:
    """True if at least two exchanges say something, and all of them enough to be summed up. Whether a summary
    tells anything is judged when it is there."""
    said = [frozenset(terms(e.said)) for e in exchanges if e.answer.strip()]
    saying = [found for found in said if len(found) >= _SAYS]
    return len(saying) >= 2 and len(frozenset().union(*saying)) >= _SUBSTANCE


def request(exchanges: Sequence[Exchange], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call for the session's exchanges, of which the last ones matter most."""
    last = exchanges[-1]
    return CompletionRequest(
        role=ROLE,
        system=prompt("summary.v1"),
        user=Template(prompt("summary_input.v1")).substitute(
            exchanges=transcript.conversation(exchanges, policy)
        ),
        model=last.model,
        scope=last.scope,
        session_id=last.session_id,
    )


def read(
    answer: str, exchanges: Sequence[Exchange], before: str | None, policy: SafetyPolicy = DEFAULT
) -> Candidate | None:
    """Return the summary that the answer holds, in place of the one `before`; None for a poor one: with
    nothing to say, too long, or telling of names, numbers and things that the session does not hold."""
    told = next((found for found in objects(answer) if isinstance(found.get("summary"), str)), None)
    if told is None:
        return None
    summary = " ".join(told["summary"].split())
    source = _Source(exchanges, policy)
    if len(summary) > MAX_SUMMARY or not source.holds(summary):
        return None
    candidate = _candidate(summary, told, source, exchanges[-1], before)
    return None if reject(candidate, policy) else candidate


def _candidate(
    summary: str, told: Mapping[str, Any], source: "_Source", last: Exchange, before: str | None
) -> Candidate:
    content = summary
    for label, key in (("Done", "actions"), ("Outcome", "outcomes")):
        items = [item for item in _items(told.get(key), _MOST_ITEMS) if source.knows(item)]
        addition = f" {label}: {'; '.join(items)}." if items else ""
        content += addition if len(content) + len(addition) <= _MAX_CONTENT else ""
    topics = tuple(topic for topic in _items(told.get("topics"), _MOST_TOPICS) if source.knows(topic))
    return Candidate(
        type="episodic",
        content=content,
        confidence=_CONFIDENCE,
        tags=tuple(topic[:40] for topic in topics),
        replaces=before,
        source="summary",
        importance=_importance(told.get("importance")),
        observed_at=last.said_at,
        timezone=last.timezone,
        origin=Evidence(last.session_id, last.id),
    )


def _items(value: Any, most: int) -> list[str]:
    given = value if isinstance(value, list) else [value]
    texts = (" ".join(item.split()).rstrip(" .;") for item in given if isinstance(item, str))
    return [text for text in dict.fromkeys(texts) if 0 < len(text) <= _MAX_ITEM][:most]


def _importance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 0.5
    return min(1.0, max(0.0, float(value)))


class _Source:
    """What the session holds, to compare a summary with."""

    def __init__(self, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> None:
        text = "\n".join(part for e in exchanges for part in _seen(e, policy))
        self._text, self._terms = fold(text), frozenset(terms(text))

    def holds(self, text: str) -> bool:
        """True if the text tells something, and nothing that was not said."""
        words = frozenset(terms(text))
        told = words & self._terms
        return len(told) >= _TELLING and len(told) >= _SUPPORT * len(words) and self._names(text)

    def knows(self, text: str) -> bool:
        """True if most words of a short phrase were said, and all its names and numbers."""
        words = frozenset(terms(text))
        return bool(words) and len(words & self._terms) >= _SUPPORT * len(words) and self._names(text)

    def _names(self, text: str) -> bool:
        given = (*_NUMBER.findall(text), *_NAME.findall(without_inner_stops(text)))
        return all(fold(name).replace(",", "") in self._plain for name in given)

    @property
    def _plain(self) -> str:
        return self._text.replace(",", "")


def _seen(exchange: Exchange, policy: SafetyPolicy) -> Iterator[str]:
    yield transcript.said(exchange, policy)
    yield transcript.answer(exchange, policy)
    # "Tomorrow" becomes a date.
    yield f"{exchange.local:%Y-%m-%d %Y %B %d %A}"
