"""Memory without a language model: the user's own sentences, stored as said.

Nothing is rephrased, so nothing can be invented. Which of the sentences are stored: see verdicts.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from proxy.admit.safety.filters import REDACTED, clean
from proxy.admit.safety.planted import REMOVED
from proxy.admit.safety.policy import SafetyPolicy
from proxy.domain.core import Candidate, Evidence, Exchange
from proxy.domain.judging import Judge
from proxy.learn.asks import heard
from proxy.learn.extraction.dates import anchored
from proxy.learn.extraction.grounding import Grounded, window_of
from proxy.learn.extraction.verdicts import Judged, judged
from proxy.text.sentences import is_question, sentences
from proxy.text.terms import normalise, terms

MOST_PER_EXCHANGE = 10
_MOST_CHARS, _MOST_STEPS_CHARS, _FEWEST_CHARS = 500, 1_000, 6
_CONFIDENCE = 0.8
_STEP = re.compile(r"\s*(?:\d{1,2}[.):\uff09、]|[①-⑳])\s*(?=\S)")


async def from_sentences(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return what the user stated in the exchanges. Without a judge nothing: no form tells a statement from
    small talk. Raises EmbeddingFailed."""
    if judge is None:
        return Judged()
    found: dict[str, Grounded] = {}
    for exchange in exchanges:
        reading = await judge.read(exchange.said, closely=True)
        asked = max(reading.asks.remember, reading.asks.rule)
        if reading.needs.small_talk > max(reading.needs.memory, asked, 0.5):
            continue
        for one in candidates(exchange, policy)[:MOST_PER_EXCHANGE]:
            found.setdefault(normalise(one.candidate.content), one)
    return await judged(judge, list(found.values()))


async def asked_for(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return only what the user asked to be remembered, and rules: of a message that asks, the sentences that
    do, else all that it states. Raises EmbeddingFailed."""
    asking = [e for e in exchanges if (await heard(judge, e.said)).is_explicit]
    found = await from_sentences(judge, asking, policy)
    explicit = tuple(c for c in found.stored if c.source == "explicit")
    return replace(found, stored=explicit or found.stored, held=())


def candidates(exchange: Exchange, policy: SafetyPolicy) -> list[Grounded]:
    """Return the sentences of the exchange that may be worth storing, each with the words around it; numbered
    steps as one procedure."""
    parts = _with_steps(clean(exchange.said, policy))
    return [
        Grounded(_candidate(part, is_steps, exchange), window_of([p for p, _ in parts], n, n, part), True)
        for n, (part, is_steps) in enumerate(parts)
        if _may_be_stored(part, is_steps)
    ]


def _with_steps(said: str) -> list[tuple[str, bool]]:
    """Return the sentences; runs of numbered lines as one, with the line that introduces them."""
    found: list[tuple[str, bool]] = []
    for is_step, group in groupby(said.splitlines(), key=lambda line: bool(_STEP.match(line))):
        lines = list(group)
        if not is_step or len(lines) < 2:
            found += [(s, False) for line in lines for s in sentences(line)]
            continue
        if found and found[-1][0].endswith((":", "\uff1a")):
            lines.insert(0, found.pop()[0])
        found.append(("\n".join(lines), True))
    return found


def _may_be_stored(part: str, is_steps: bool) -> bool:
    shortest = _FEWEST_CHARS - 2 * (not part.isascii())
    if not shortest <= len(part) <= (_MOST_STEPS_CHARS if is_steps else _MOST_CHARS):
        return False
    return not (
        is_question(part) or part.endswith((":", "\uff1a")) or REMOVED in part or REDACTED in part
    ) and bool(terms(part))


def _candidate(text: str, is_steps: bool, exchange: Exchange) -> Candidate:
    type_ = "procedural" if is_steps else "semantic"
    return Candidate(
        type=type_,
        content=anchored(text[0].upper() + text[1:], type_, exchange.local),
        confidence=_CONFIDENCE,
        evidence=text,
        source="verbatim",
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        origin=Evidence(exchange.session_id, exchange.id, text[:500]),
    )
