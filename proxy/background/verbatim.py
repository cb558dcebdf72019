"""Memory without a language model: the user's own statements, stored as said.

Kept are declarative first-person sentences and explicit asks ("remember that …"), outside of pasted
blocks, code, quotations and fiction. Nothing is rephrased, so nothing can be invented.
"""

import re

from proxy.background.cues import is_explicit, statements
from proxy.background.filters import clean
from proxy.background.policy import DEFAULT, SafetyPolicy
from proxy.background.provenance import told
from proxy.domain import Batch, Candidate, Evidence, Exchange
from proxy.terms import fold, normalise

MAX_PER_EXCHANGE = 10
_MIN_CHARACTERS, _MAX_CHARACTERS = 6, 500
_CONFIDENCE, _HEDGED_CONFIDENCE = 0.8, 0.5

_LEAD_IN = re.compile(
    r"^\s*(?:(?:ok(?:ay)?|please|also|and|so|hi|hello|hey|btw|by the way|fyi)[,:\s]+)*"
    r"(?:(?:remember|note|keep in mind|bear in mind|don'?t forget|do not forget|memori[sz]e)(?: that)?[:,\s]+"
    r"|请?(?:帮我)?(?:记住|记得|记一下)[:,\uff1a\uff0c\s]*)?",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:i think|i guess|i suppose|maybe|perhaps|might|not sure|probably|possibly|half a notion|vielleicht"
    r"|quizas|tal vez|peut-etre)\b|可能|也许|大概|或许|好像|不确定"
)
_PRIVATE = re.compile(  # other people's matters, told in confidence
    r"\b(?:privately|between us|in confidence|custody|divorc\w+|sick leave|left (?:him|her)"
    r"|got (?:sacked|fired)|(?:he|she)(?:'s| is| was| has)? (?:just )?(?:been )?diagnosed)\b"
    r"|离婚|^[^我咱]{1,12}(?:查出|确诊|流产|被裁|抑郁)"
)
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
        for candidate in _of(exchange, policy):
            found.setdefault(normalise(candidate.content), candidate)
    return tuple(found.values())


def _of(exchange: Exchange, policy: SafetyPolicy) -> list[Candidate]:
    said = [s for s in statements(told(clean(exchange.said, policy))) if not _PRIVATE.search(fold(s))]
    return [c for s in said if (c := _candidate(s, exchange)) is not None][:MAX_PER_EXCHANGE]


def _candidate(sentence: str, exchange: Exchange) -> Candidate | None:
    content = _LEAD_IN.sub("", sentence, count=1).strip()
    if not _MIN_CHARACTERS - 2 * (not content.isascii()) <= len(content) <= _MAX_CHARACTERS:
        return None
    folded, explicit = fold(content).replace("’", "'"), is_explicit(sentence)
    return Candidate(
        type=next((name for name, cue in _TYPE_CUES if cue.search(folded)), "semantic"),
        content=content[0].upper() + content[1:],
        confidence=_HEDGED_CONFIDENCE if _HEDGED.search(folded) else _CONFIDENCE,
        evidence=sentence,
        source="explicit" if explicit else "verbatim",
        importance=0.8 if explicit else 0.5,
        observed_at=exchange.at,
        origin=Evidence(exchange.session_id, exchange.id, sentence),
    )
