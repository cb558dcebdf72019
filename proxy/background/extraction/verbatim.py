"""Memory without a language model: the user's own statements, stored as said.

Nothing is rephrased, so nothing can be invented. Which sentences are kept: see worth.
"""

import re

from proxy.background.extraction.dates import anchored
from proxy.background.extraction.worth import Statement, statements
from proxy.background.safety.filters import clean
from proxy.background.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain import Batch, Candidate, Evidence, Exchange
from proxy.terms import normalise, plain

MAX_PER_EXCHANGE = 10
_CONFIDENCE, _HEDGED_CONFIDENCE = 0.8, 0.5
_TYPES = (
    (
        "preference",
        r"\b(?:prefer|like|love|hate|dislike|favou?rite|can't stand|rather|from now on"
        r"|always|never|call me)\b|喜欢|讨厌|偏好|习惯|以后|别给我"
        r"|prefier|me gusta|odio|lieber|mag |hasse|prefere|aime|deteste",
    ),
    (
        "procedural",
        r"\b(?:how (?:to|we|i)|steps?|first .{1,200} then|procedure|process is)\b|步骤|流程|先.{1,80}再",
    ),
    (
        "episodic",
        r"\b(?:yesterday|last (?:night|week|weekend|month|year|summer|winter|spring|autumn)"
        r"|this morning|\w+ ago)\b|昨天|上周|上个月|去年|前天|今早",
    ),
)
_TYPE_CUES = tuple((name, re.compile(pattern)) for name, pattern in _TYPES)


def candidates(batch: Batch, policy: SafetyPolicy = DEFAULT) -> tuple[Candidate, ...]:
    """Return what the user stated in the batch, in order, each statement once."""
    found: dict[str, Candidate] = {}
    for exchange in batch.pending:
        for statement in statements(clean(exchange.said, policy))[:MAX_PER_EXCHANGE]:
            found.setdefault(normalise(statement.content), candidate(statement, exchange))
    return tuple(found.values())


def asked_for(batch: Batch, policy: SafetyPolicy = DEFAULT) -> tuple[Candidate, ...]:
    """Return only what the user asked to be remembered."""
    return tuple(one for one in candidates(batch, policy) if one.source == "explicit")


def candidate(statement: Statement, exchange: Exchange) -> Candidate:
    """Return the statement as a candidate of its exchange."""
    return Candidate(
        type=type_of(statement),
        content=anchored(statement.content, type_of(statement), exchange.local),
        confidence=_HEDGED_CONFIDENCE if statement.hedged else _CONFIDENCE,
        evidence=statement.text,
        source="explicit" if statement.explicit else "verbatim",
        importance=0.8 if statement.explicit else 0.5,
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        origin=Evidence(exchange.session_id, exchange.id, statement.text[:500]),
    )


def type_of(statement: Statement) -> str:
    """Return the type that the statement's words point to; semantic where none does."""
    folded = plain(statement.content)
    if statement.steps:
        return "procedural"
    return next((name for name, cue in _TYPE_CUES if cue.search(folded)), "semantic")
