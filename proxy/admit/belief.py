"""The confidence in a memory: raised by evidence for it, lowered by evidence against it.

Evidence for a memory counts by Bayes' rule: users repeat a preference that they have with probability
P_IF_TRUE, and state one that they do not have with P_IF_FALSE; no number of statements makes it certain.
Evidence against a memory that was only inferred lowers its confidence by a constant share.
"""

from dataclasses import replace

from proxy.domain.core import Candidate, Memory, Source

P_IF_TRUE, P_IF_FALSE = 0.8, 0.3
DECAY = 0.7  # for each time that something the user said outright speaks against it
ARCHIVED_BELOW = 0.1
_CERTAIN = 0.99
_OUTRIGHT: frozenset[Source] = frozenset(("api", "explicit", "verbatim"))


def confirmed(confidence: float) -> float:
    """Return the confidence after one more statement of the same; one above _CERTAIN stays as it is."""
    if confidence >= _CERTAIN:
        return confidence
    held = P_IF_TRUE * confidence
    return min(_CERTAIN, held / (held + P_IF_FALSE * (1 - confidence)))


def decayed(memory: Memory, at: float) -> Memory:
    """Return the memory after something said outright spoke against it; below 0.1 it is archived."""
    confidence = memory.confidence * DECAY
    return replace(memory, confidence=confidence, archived=confidence < ARCHIVED_BELOW, updated_at=at)


def is_inferred(one: Memory | Candidate) -> bool:
    """True for what a model made of a conversation without words of the user's to show for it."""
    if one.source in _OUTRIGHT:
        return False
    if one.source == "assistant":
        return True  # its evidence is the assistant's words
    spans = [one.evidence] if isinstance(one, Candidate) else [e.span for e in one.evidence]
    return not any(spans)
