"""How sure we are that a memory holds: a probability, moved by what is said for and against it.

Bayes with two likelihoods: somebody who holds a preference says so again with P_IF_TRUE, somebody who
does not with P_IF_FALSE. Nothing is ever certain: what was confirmed a hundred times can still change.
"""

from dataclasses import replace

from proxy.domain import Candidate, Memory

START = 0.6  # of what nobody said outright
P_IF_TRUE, P_IF_FALSE = 0.8, 0.3
DECAY = 0.7  # for each time that something the user said outright speaks against it
ARCHIVED_BELOW = 0.1
_CERTAIN = 0.99
_OUTRIGHT = frozenset(("api", "explicit", "verbatim", "import"))


def confirmed(confidence: float) -> float:
    """Return the confidence after one more statement of the same."""
    return _posterior(confidence, P_IF_TRUE, P_IF_FALSE)


def corrected(confidence: float) -> float:
    """Return the confidence after one statement against it."""
    return _posterior(confidence, 1 - P_IF_TRUE, 1 - P_IF_FALSE)


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


def _posterior(prior: float, if_true: float, if_false: float) -> float:
    if prior >= _CERTAIN:
        return prior if if_true > if_false else _posterior(_CERTAIN - 1e-9, if_true, if_false)
    evidence = if_true * prior + if_false * (1 - prior)
    return min(_CERTAIN, if_true * prior / evidence) if evidence else prior
