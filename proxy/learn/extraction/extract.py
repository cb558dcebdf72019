"""LLM extraction: one call for a batch of exchanges, and the checks that its answer has to pass.

The conversation is data: it is redacted, planted instructions are cut out, our own markers in it are
defused, and every part is cut to a bound (see transcript). The answer is data too: what is readable of it
(see repair) is compared with the user's words (see grounding), the statement head judges it (see verdicts),
and at most ten facts of it are stored.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import Template
from typing import Any

from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import KINDS, Batch, Candidate, Memory
from proxy.domain.judging import Judge
from proxy.domain.ports import CompletionRequest, Embedder
from proxy.learn.extraction import transcript
from proxy.learn.extraction.grounding import ground, sources
from proxy.learn.extraction.repair import TAGS, read_facts
from proxy.learn.extraction.verdicts import Judged, judged
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


async def facts(
    answer: str,
    batch: Batch,
    known: Sequence[Memory],
    policy: SafetyPolicy = DEFAULT,
    *,
    judge: Judge | None,
    embedder: Embedder | None = None,
) -> Judged:
    """Return the answer's facts by outcome, each with its origin. Raises Unreadable,
    EmbeddingFailed."""
    found = await asyncio.to_thread(read_facts, answer)  # some 10 ms for a long one
    before = batch.context[-1] if batch.context else None
    shown = await asyncio.to_thread(sources, batch.pending, policy, before)
    grounded = await ground(found, shown, known, embedder)
    result = await judged(judge, grounded)
    best = _best(result.stored, max(MAX_FACTS, len(batch.pending)))
    if ungrounded := len(found) - len(grounded):
        result.dropped["ungrounded"] += ungrounded
    if surplus := len(result.stored) - len(best):
        result.dropped["surplus"] += surplus
    return replace(result, stored=tuple(best))


def _best(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates in order: what was asked for first, what is surest next."""
    ranked = sorted(candidates, key=lambda c: (c.source != "explicit", -c.confidence))
    chosen = {id(c) for c in ranked[:limit]}
    return [c for c in candidates if id(c) in chosen]
