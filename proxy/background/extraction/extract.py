"""LLM extraction: one call for a batch of exchanges, and the checks that its answer has to pass.

The conversation is data: it is redacted, planted instructions are cut out, our own markers in it are
defused, and every part is cut to a bound (see transcript). The answer is data too: what is readable of it
(see repair) is held against the exchanges (see ground), and at most ten facts of it are kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from proxy.background.extraction import transcript
from proxy.background.extraction.ground import ground, sources
from proxy.background.extraction.repair import TAGS, read_facts
from proxy.background.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain import KINDS, Batch, Candidate, Memory
from proxy.ports import CompletionRequest
from proxy.prompts import prompt

ROLE = "memory_extraction"
PROMPT = "extraction.v1"
MAX_FACTS = 10  # of a batch of ten exchanges; one more for each exchange beyond
_NULLABLE = {"type": ["string", "null"]}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "content", "confidence", "tags", "evidence", "replaces"],
                "properties": {
                    "type": {"type": "string", "enum": sorted(KINDS)},
                    "content": {"type": "string"},
                    "confidence": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string", "enum": sorted(TAGS)}},
                    "evidence": {"type": "string"},
                    "replaces": _NULLABLE,
                },
            },
        }
    },
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What an answer holds: grounded candidates, and how many were dropped as not stated."""

    candidates: tuple[Candidate, ...]
    ungrounded: int = 0


def request(batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call for the batch; `known` are the related memories that it may replace.

    Takes some 10 ms for long exchanges: call it in a thread."""
    last = batch.pending[-1]
    user = Template(prompt("extraction_input.v1")).substitute(
        known="\n".join(transcript.memory_line(m, policy, last.timezone) for m in known) or "(none)",
        context=transcript.earlier(batch.context, policy) or "(none)",
        exchanges=transcript.conversation(batch.pending, policy),
    )
    return CompletionRequest(
        role=ROLE,
        system=prompt(PROMPT),
        user=user,
        model=last.model,
        scope=last.scope,
        session_id=last.session_id,
        schema=SCHEMA,
    )


def facts(answer: str, batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> Facts:
    """Return the answer's facts that the batch supports, each with its origin. Raises Unreadable.

    Takes some 10 ms for long exchanges: call it in a thread."""
    found = read_facts(answer)
    grounded = ground(found, sources(batch.pending, policy), known)
    kept = _best(grounded, max(MAX_FACTS, len(batch.pending)))
    return Facts(tuple(kept), max(0, len(found) - len(kept)))


def _best(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates in order: what was asked for first, what is surest next."""
    ranked = sorted(candidates, key=lambda c: (c.source != "explicit", -c.confidence))
    chosen = {id(c) for c in ranked[:limit]}
    return [c for c in candidates if id(c) in chosen]
