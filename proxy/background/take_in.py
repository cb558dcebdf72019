"""Memories that were exported, taken in again: as they were, through the gate's safety."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.background.admit import Gate
from proxy.background.embedding import vectors_of
from proxy.background.filters import redact, safe_id
from proxy.background.policy import SafetyPolicy
from proxy.background.refusals import refusal_of
from proxy.domain import Candidate, Create, Evidence, Memory, MemoryFilter, Scope, Stamp
from proxy.errors import Conflict

_ATTEMPTS = 64
_FULL = "this user's memory is full"
_FORGOTTEN = "the user forgot something while the import ran; send the file again if it is still wanted"


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one memory: imported, refused for a reason, or known already."""

    imported: bool
    refusal: str = ""


async def take_in(gate: Gate, scope: Scope, memories: Sequence[Memory], *, began: Stamp) -> list[Taken]:
    """Store memories of one user with their ids, times and links; known ids and current twins are skipped.

    Stores nothing if the user has forgotten something since `began`: an import must not bring back what
    was forgotten while it ran.
    """
    refusals = await asyncio.to_thread(lambda: [_refusal(m, gate.policy) for m in memories])
    known = await _stored(gate, scope, [m for m, why in zip(memories, refusals, strict=True) if not why])
    fresh = [m for m, why in zip(memories, refusals, strict=True) if not why and m.id not in known]
    failed = await _create(gate, scope, fresh, began) if fresh else {}
    stored = await _stored(gate, scope, fresh) - known
    seen: set[str] = set()
    taken: list[Taken] = []
    for memory, why in zip(memories, refusals, strict=True):
        refusal = why or failed.get(memory.id, "")
        imported = not refusal and memory.id in stored and memory.id not in seen
        seen.add(memory.id)
        taken.append(Taken(imported, refusal))
    return taken


async def _create(gate: Gate, scope: Scope, fresh: Sequence[Memory], began: Stamp) -> dict[str, str]:
    """Apply the memories in one transaction; returns why which of them were refused, by id."""
    storable = await asyncio.to_thread(lambda: [_redacted(m, gate.policy) for m in fresh])
    vectors = await vectors_of(gate.embedder, [m.content for m in storable])
    changes = [Create(memory, vector) for memory, vector in zip(storable, vectors, strict=True)]
    for _ in range(_ATTEMPTS):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != began.generation:
            return {memory.id: _FORGOTTEN for memory in fresh}
        try:
            applied = await gate.memories.apply(scope, changes, expect=stamp)
        except Conflict:
            continue
        return dict.fromkeys(applied.refused, _FULL)
    raise Conflict("the user's memories keep changing")


async def _stored(gate: Gate, scope: Scope, memories: Sequence[Memory]) -> set[str]:
    """Return the ids of those that the user has."""
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True)
    return {m.id for m in memories if await gate.memories.get(where, m.id) is not None}


def _refusal(memory: Memory, policy: SafetyPolicy) -> str:
    """Return why the memory must not be stored, "" if it may."""
    refused = refusal_of(
        Candidate(
            type=memory.type,
            content=memory.content,
            tags=memory.tags,
            evidence="\n".join(e.span for e in memory.evidence),
            source=memory.source,
        ),
        policy,
    )
    return f"`content`: {refused[1]}" if refused else ""


def _redacted(memory: Memory, policy: SafetyPolicy) -> Memory:
    """Return the memory without what must not reach the disk; one that holds nothing of it, as it is."""
    return replace(
        memory,
        content=redact(memory.content, policy),
        tags=tuple(redact(tag, policy) for tag in memory.tags),
        evidence=tuple(
            Evidence(safe_id(e.session_id), safe_id(e.exchange_id), redact(e.span, policy))
            for e in memory.evidence
        ),
    )
