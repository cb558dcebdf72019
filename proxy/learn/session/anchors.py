"""A user's standing instructions for the session ("anchors"), found by the heads of the encoder.

They are in force from the very next turn on, whatever becomes of the conversation that the client sends.
An instruction that changes an older one takes its slot, so that the older one ends.
"""

from collections.abc import Sequence
from hashlib import blake2b

from proxy.admit.safety.filters import REDACTED
from proxy.admit.safety.planted import REMOVED, is_planted
from proxy.domain.judging import Judge
from proxy.domain.notes import MOST_ANCHOR_CHARS, MOST_ANCHORS, Anchor
from proxy.learn.extraction.grounding import window_of
from proxy.text.sentences import sentences

_MOST_SENTENCES, _MOST_CHARS = 12, 400  # of a message; longer sentences tell something


async def anchors_of(judge: Judge, said: str, in_force: Sequence[Anchor] = ()) -> tuple[Anchor, ...]:
    """Return the standing instructions of a message that sets some (see asks.Heard.is_rule), at most ten.

    `said` is redacted. A sentence that held a secret or a planted instruction gives none. Raises
    EmbeddingFailed."""
    rules = [bounded(rule) for rule in await _rules(judge, said)][:MOST_ANCHORS]
    pairs = [(old.text, rule) for rule in rules for old in in_force]
    relations = await judge.relations(pairs) if pairs else []
    found: list[Anchor] = []
    for number, rule in enumerate(rules):
        related = zip(in_force, relations[number * len(in_force) :], strict=False)
        slot = next((old.slot for old, r in related if r.apart < max(r.same, r.changed)), None)
        found.append(Anchor(slot or slot_of(rule), rule))
    return tuple(found)


async def _rules(judge: Judge, said: str) -> list[str]:
    """Return the sentences that set a rule; if none does by itself, the one that is most likely to."""
    parts = sentences(said)
    safe = [n for n, s in enumerate(parts) if _is_safe(s)][-_MOST_SENTENCES:]
    if len(safe) <= 1:
        return [parts[n] for n in safe]
    pairs = [(window_of(parts, n, n, parts[n]), parts[n]) for n in safe]
    statements = await judge.statements(pairs)
    rules = [parts[n] for n, s in zip(safe, statements, strict=True) if s.manner == "rule"]
    likely = max(zip(safe, statements, strict=True), key=lambda one: one[1].sense.get("rule", 0.0))
    return rules or [parts[likely[0]]]


def slot_of(rule: str) -> str:
    """Return the slot of an instruction that is about nothing that an older one is about."""
    return f"rule-{blake2b(rule.encode(), digest_size=8).hexdigest()}"


def bounded(text: str) -> str:
    """Return the text, cut at a blank where it is too long for an anchor."""
    if len(text) <= MOST_ANCHOR_CHARS:
        return text
    cut = text[: MOST_ANCHOR_CHARS - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[MOST_ANCHOR_CHARS // 2 :] else cut}…"


def _is_safe(sentence: str) -> bool:
    foreign = REDACTED in sentence or REMOVED in sentence or is_planted(sentence)
    return len(sentence) <= _MOST_CHARS and any(map(str.isalpha, sentence)) and not foreign
