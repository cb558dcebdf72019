"""Import exported memories unchanged, through the safety part of the write gate."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from proxy.admit.admit import Gate
from proxy.admit.embedding import vectors_of, with_readings
from proxy.admit.safety.filters import redact, refusal_of, safe_id
from proxy.admit.safety.policy import SafetyPolicy
from proxy.domain.core import Candidate, Change, Create, Event, Evidence, Memory, MemoryFilter, Scope, Stamp
from proxy.domain.errors import Conflict

NOTHING_TOLD: Mapping[str, Sequence[Event]] = MappingProxyType({})
_REDACTED = frozenset(("secret", "pii"))  # in a history: removed from it, and the memory is imported
_ATTEMPTS = 64
_EMBEDDED_AT_ONCE = 8
_THREAD = ThreadPoolExecutor(
    1, "import"
)  # one for all imports: they wait for each other, and no user for them

P = ParamSpec("P")
T = TypeVar("T")
GiveWay = Callable[[float], Awaitable[None]]
"""Takes the seconds that a step took; returns when the next one may begin."""


async def at_once(_: float) -> None:
    """Begin the next step at once."""


_FULL = "this user's memory is full"
_FORGOTTEN = "the user forgot something while the import ran; send the file again if it is still wanted"


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one memory: imported, refused for a reason, or known already."""

    imported: bool
    refusal: str = ""


async def take_in(
    gate: Gate,
    scope: Scope,
    memories: Sequence[Memory],
    *,
    began: Stamp,
    now: float,
    histories: Mapping[str, Sequence[Event]] = NOTHING_TOLD,
    give_way: GiveWay = at_once,
) -> list[Taken]:
    """Store memories of one user with their ids, times, links and histories, each history with an event
    "imported" at `now` behind it; known ids and current twins are skipped.

    Stores nothing if the user has forgotten something since `began`: an import must not bring back what
    was forgotten while it ran.
    """
    refusals = [await _step(give_way, _refusal, m, histories.get(m.id, ()), gate.policy) for m in memories]
    allowed = [m for m, why in zip(memories, refusals, strict=True) if not why]
    # `apply` looks for them, too; here it saves an import that is sent again the embedding.
    known = await gate.memories.history(_whole(scope), [m.id for m in allowed])
    fresh = {m.id: m for m in reversed(allowed) if m.id not in known}
    failed, dropped = await _create(gate, scope, list(fresh.values())[::-1], histories, began, now, give_way)
    taken: list[Taken] = []
    for memory, why in zip(memories, refusals, strict=True):
        refusal = why or failed.get(memory.id, "")
        new = not refusal and fresh.pop(memory.id, None) is not None and memory.id not in dropped
        taken.append(Taken(new, refusal))
    return taken


async def _create(
    gate: Gate,
    scope: Scope,
    fresh: Sequence[Memory],
    histories: Mapping[str, Sequence[Event]],
    began: Stamp,
    now: float,
    give_way: GiveWay,
) -> tuple[dict[str, str], Set[str]]:
    """Apply the memories in one transaction; return why some were refused, by id, and the known ids."""
    if not fresh:
        return {}, frozenset()
    storable = [await _step(give_way, _storable, m, histories.get(m.id, ()), gate.policy) for m in fresh]
    changes: list[Change] = []
    for at in range(0, len(storable), _EMBEDDED_AT_ONCE):
        began_s = time.monotonic()
        some = storable[at : at + _EMBEDDED_AT_ONCE]
        vectors = await vectors_of(gate.embedder, [m.content for m, _ in some])
        created = [
            Create(memory, vector, (*past, Event(now, "imported", "api", memory.content)))
            for (memory, past), vector in zip(some, vectors, strict=True)
        ]
        changes += await with_readings(gate.judge, created)
        await give_way(time.monotonic() - began_s)
    for _ in range(_ATTEMPTS):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != began.generation:
            return {memory.id: _FORGOTTEN for memory in fresh}, frozenset()
        try:
            applied = await gate.memories.apply(scope, changes, expect=stamp)
        except Conflict:
            continue
        return dict.fromkeys(applied.refused, _FULL), frozenset(applied.dropped)
    raise Conflict("the user's memories keep changing")


async def _step(give_way: GiveWay, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Do one step in the thread of imports, then let turns go first."""
    began_s = time.monotonic()
    result = await asyncio.get_running_loop().run_in_executor(_THREAD, lambda: work(*args, **more))
    await give_way(time.monotonic() - began_s)
    return result


def _storable(
    memory: Memory, history: Sequence[Event], policy: SafetyPolicy
) -> tuple[Memory, tuple[Event, ...]]:
    return _redacted(memory, policy), _past(memory, history, policy)


def _whole(scope: Scope) -> MemoryFilter:
    return MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True)


def _refusal(memory: Memory, history: Sequence[Event], policy: SafetyPolicy) -> str:
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
    if refused:
        return f"`content`: {refused[1]}"
    for content in {event.content for event in history} - {memory.content}:
        refused = refusal_of(Candidate(type=memory.type, content=content), policy)
        if refused and refused[0] not in _REDACTED:
            return f"`history`: {refused[1]}"
    return ""


def _past(memory: Memory, history: Sequence[Event], policy: SafetyPolicy) -> tuple[Event, ...]:
    """Return the history as it may be stored; of a memory that has none, that it was created."""
    if not history:
        return (Event(memory.created_at, "created", memory.source, redact(memory.content, policy)),)
    storable = {content: redact(content, policy) for content in {event.content for event in history}}
    return tuple(replace(e, by=safe_id(e.by), content=storable[e.content]) for e in history)


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
