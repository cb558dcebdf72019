"""Decide by the statement head which grounded candidates are stored.

It reads the candidate together with the user's words: whether it follows from them with its sign and its
subject, who it is about, and how it was meant. One batch for a job.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from proxy.domain.core import Candidate
from proxy.domain.judging import Judge, Statement
from proxy.learn.extraction.grounding import Grounded

FOLLOWS, DOUBTFUL = 0.5, 0.35
# A good fact that is dropped is lost, so being about the user and being meant need no majority. On held-out
# lines of twelve languages .92 of the good candidates pass, .43 of the bad ones (majorities: .83 and .26).
ABOUT_USER, MEANT = 0.1, 0.3  # a friend's name is rarely judged to be about the user
HEDGED = 0.6  # the highest confidence of what was said with reserve
_ASSISTANT = 0.7  # the same of what the user only confirmed
_STORED = frozenset(("stated", "hedged", "rule", "remember"))
# Dates that were resolved, and the day of a statement: the user did not say them.
_RESOLVED = re.compile(r"(?:['’]s)? ?[(\uff08][^()\uff08\uff09]*\d{4}-\d\d[^()\uff08\uff09]*[)\uff09]")


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates by outcome: stored, held for review with a reason, dropped by reason."""

    stored: tuple[Candidate, ...] = ()
    held: tuple[tuple[Candidate, str], ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a candidate, and why it is not stored."""

    does: Literal["keep", "hold", "drop"]
    reason: str = ""


async def judged(judge: Judge | None, grounded: Sequence[Grounded]) -> Judged:
    """Return the candidates by outcome. Without a judge, those are stored that quote the user's words
    literally. Raises EmbeddingFailed."""
    if judge is None:
        literal = tuple(one.candidate for one in grounded if one.literal)
        return Judged(literal, dropped=+Counter(no_judge=len(grounded) - len(literal)))
    if not grounded:
        return Judged()
    statements = await judge.statements([(one.window, as_said(one)) for one in grounded])
    stored, held = list[Candidate](), list[tuple[Candidate, str]]()
    dropped: Counter[str] = Counter()
    for one, statement in zip(grounded, statements, strict=True):
        verdict = verdict_on(statement)
        if verdict.does == "keep":
            stored.append(_as_meant(one.candidate, statement.manner))
        elif verdict.does == "hold":
            held.append((one.candidate, verdict.reason))
        else:
            dropped[verdict.reason] += 1
    return Judged(tuple(stored), tuple(held), dropped)


def verdict_on(statement: Statement) -> Verdict:
    """Return the outcome of a candidate with this judgement."""
    if statement.user < ABOUT_USER:
        return Verdict("drop", "other_person" if statement.other >= statement.nobody else "nobody")
    if sum(statement.sense.get(manner, 0.0) for manner in _STORED) < MEANT:
        if statement.manner == "quoted" and statement.follows >= FOLLOWS:
            return Verdict("hold", "quoted")
        return Verdict("drop", statement.manner)
    if statement.follows >= FOLLOWS:
        return Verdict("keep")
    return Verdict("hold", "doubtful") if statement.follows >= DOUBTFUL else Verdict("drop", "not_said")


def as_said(one: Grounded) -> str:
    """Return the content without the dates that were resolved for it."""
    return _RESOLVED.sub("", one.candidate.content)


def _as_meant(candidate: Candidate, manner: str) -> Candidate:
    """Return the candidate with the confidence, type and importance that its manner gives it."""
    highest = HEDGED if manner == "hedged" else _ASSISTANT if candidate.source == "assistant" else 1.0
    candidate = replace(candidate, confidence=min(candidate.confidence, highest))
    if manner == "rule" and candidate.type == "semantic":
        candidate = replace(candidate, type="preference")
    if manner in ("rule", "remember") and candidate.source != "assistant":
        candidate = replace(candidate, source="explicit", importance=0.8)
    return candidate
