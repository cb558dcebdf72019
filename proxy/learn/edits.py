"""Changes that people make by hand (add, correct, release, discard, import), through the same write gate as
extracted facts. Imported memories pass its safety part only, and are stored unchanged.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from proxy.admit.decision import decide_changes
from proxy.admit.gate import Basis, Gate, admit, relate, vector_of, vectors_of, weigh, with_readings
from proxy.admit.safety import SafetyPolicy, redact, refusal_of, safe_id, without_personal_data
from proxy.domain import timezones
from proxy.domain.core import (
    Candidate,
    Change,
    Confirm,
    Create,
    Edit,
    Event,
    Evidence,
    Memory,
    MemoryFilter,
    Release,
    Scope,
    Stamp,
    Supersede,
)
from proxy.domain.errors import Conflict, InvalidRequest, QuotaExceeded
from proxy.domain.ports import Clock, Quarantine
from proxy.learn.dates import anchored

# ---------------------------------------------------------------- import
NOTHING_TOLD: Mapping[str, Sequence[Event]] = MappingProxyType({})
_REDACTED = frozenset(("secret", "pii"))  # in a history: removed from it, and the memory is imported
_ATTEMPTS = 64  # a conflict means that another write went through: so many may be ahead of us
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


_IMPORT_FULL = "this user's memory is full"
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
        return dict.fromkeys(applied.refused, _IMPORT_FULL), frozenset(applied.dropped)
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


# ---------------------------------------------------------------- changes by hand
_JUDGED_HARMLESS = frozenset(("planted", "echo"))  # what the owner of a held candidate has decided about
_FULL = "This user's memory is full, and new memories are refused."
NOTHING_SAID: Mapping[str, datetime] = MappingProxyType({})
_MOST_TAGS = 20  # of one memory, as of one request


@dataclass(frozen=True, slots=True)
class Remember:
    """Changes by hand. Raises InvalidRequest for what the gate refuses, QuotaExceeded, Duplicate."""

    gate: Gate
    quarantine: Quarantine
    clock: Clock
    give_way: GiveWay = at_once  # of imports

    async def add(self, scope: Scope, candidate: Candidate, said: Collection[str] = ()) -> tuple[Memory, str]:
        """Return the memory that now states it, and "created", "superseded" or "confirmed". `said`: which
        of the candidate's `expires_at`, `importance` and `tags` a memory takes over that it confirms."""
        self._pass(candidate)
        candidate = await asyncio.to_thread(_dated, candidate)
        for _ in range(_ATTEMPTS):
            try:
                memory, change = await self._add(scope, candidate)
                if change == "confirmed":
                    memory = await self._taking_over(memory, candidate, said)
            except Conflict:  # the user forgot something at this very moment; the new memory is newer
                continue
            return memory, change
        raise Conflict("the user's memories keep changing")

    async def edit(
        self, where: MemoryFilter, memory_id: str, correct: Callable[[Memory], Memory]
    ) -> Memory | None:
        """Store what `correct` makes of the memory; read again if another write came first."""
        found = await self.gate.memories.get(where, memory_id)
        if found is None:
            return None
        where = replace(where, user=found.scope.user)
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(found.scope)
            memory = await self.gate.memories.get(where, memory_id)
            if memory is None:
                return None
            edited = self._edited(memory, correct(memory))
            change = Edit(edited, await vector_of(self.gate.embedder, edited.content))
            changes = await with_readings(self.gate.judge, (change,))
            try:
                applied = await self.gate.memories.apply(memory.scope, changes, expect=stamp)
            except Conflict:
                continue
            if applied.refused:
                raise QuotaExceeded(_FULL)
            return await self.gate.memories.get(where, memory_id)
        raise Conflict("the user's memories keep changing")

    async def release(self, scope: Scope, held_id: str) -> Memory | None:
        """Turn a held candidate into a memory, as if it were said now: its owner has just said so."""
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(scope)
            held = await self.quarantine.find(scope, held_id)
            if held is None:
                return None
            candidate = replace(held.candidate, observed_at=self.clock())
            self._pass(candidate, but=_JUDGED_HARMLESS)
            change = await self._weigh(held.scope, candidate, seed=held_id)
            try:
                applied = await self.gate.memories.apply(held.scope, (change, Release(held_id)), expect=stamp)
            except Conflict:
                continue
            if applied.refused:
                raise QuotaExceeded(_FULL)
            return await self._stating(held.scope, change)
        raise Conflict("the user's memories keep changing")

    async def discard(self, scope: Scope, held_id: str) -> bool:
        """Erase a held candidate; False if there is none."""
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(scope)
            if await self.quarantine.find(scope, held_id) is None:
                return False
            try:
                await self.gate.memories.apply(scope, (Release(held_id),), expect=stamp)
            except Conflict:
                continue
            return True
        raise Conflict("the user's memories keep changing")

    async def bring_in(
        self,
        scope: Scope,
        memories: Sequence[Memory],
        *,
        began: Stamp,
        histories: Mapping[str, Sequence[Event]] = NOTHING_TOLD,
        said: Mapping[str, datetime] = NOTHING_SAID,
    ) -> list[Taken]:
        """Store memories of one user as they were exported: see `take_in`. Relative dates in those that were
        `said` (by id: the local time) are resolved."""
        memories = await asyncio.to_thread(lambda: [_resolved(m, said.get(m.id)) for m in memories])
        return await take_in(
            self.gate,
            scope,
            memories,
            began=began,
            now=self.clock(),
            histories=histories,
            give_way=self.give_way,
        )

    # ------------------------------------------------------------ steps
    async def _add(self, scope: Scope, candidate: Candidate) -> tuple[Memory, str]:
        began = await self.gate.memories.stamp(scope)
        basis = Basis(began, self.clock(), seed=uuid4().hex)
        decision = await admit(self.gate, scope, [candidate], basis)
        match decision.changes:
            case (Create() as change,):
                happened = "created"
            case (Supersede() as change, *_):  # with it, what says the same as the old one
                happened = "superseded"
            case (Confirm() as change, *_):
                happened = "confirmed"
            case _:
                raise Conflict("what it would update is newer")
        stored = await self._stating(scope, change)
        if stored is not None:
            return stored, happened
        if isinstance(change, Confirm):
            raise Conflict("the memory it confirms was deleted")
        if change.memory.id in decision.refused:
            raise QuotaExceeded(_FULL)
        return change.memory, happened  # stored, then deleted by a forget that began after the write

    async def _taking_over(self, memory: Memory, candidate: Candidate, said: Collection[str]) -> Memory:
        """Return the confirmed memory, with the expiry, importance and tags that the candidate brings."""
        correct = partial(_corrected, candidate=candidate, said=said)
        if correct(memory) == memory:
            return memory
        where = MemoryFilter(
            tenant=memory.scope.tenant, user=memory.scope.user, include_inactive=True, now=self.clock()
        )
        edited = await self.edit(where, memory.id, correct)
        if edited is None:
            raise Conflict("the memory it confirms is gone")
        return edited

    async def _weigh(self, scope: Scope, candidate: Candidate, *, seed: str) -> Create | Supersede | Confirm:
        """Return the change that the candidate makes."""
        now = self.clock()
        vector = await vector_of(self.gate.embedder, candidate.content)
        weighed = await weigh(self.gate, scope, [candidate], [vector], now)
        relations = await relate(self.gate, weighed, now, {})
        decision = decide_changes(weighed, relations, scope=scope, now=now, seed=seed)
        match decision.changes:
            case (Create() | Supersede() | Confirm() as change, *_):
                return change
        raise Conflict("what it would update is newer")

    def _edited(self, memory: Memory, edited: Memory) -> Memory:
        """Return the memory to store for a correction. Raises InvalidRequest where it may not be made."""
        if memory.superseded_by:
            raise InvalidRequest(
                f"A newer memory has taken its place; edit that one: '{memory.superseded_by}'.",
                param="memory_id",
                code="memory_superseded",
            )
        candidate = Candidate(type=edited.type, content=edited.content, tags=edited.tags, confidence=1.0)
        if (edited.content, edited.tags, edited.type) != (memory.content, memory.tags, memory.type):
            self._pass(candidate)
            candidate = without_personal_data(candidate, self.gate.policy)
        edited = replace(edited, content=candidate.content, tags=candidate.tags)
        if edited.content == memory.content:
            return edited
        return replace(edited, source="api", confidence=1.0)

    def _pass(self, candidate: Candidate, *, but: frozenset[str] = frozenset()) -> None:
        """Raise InvalidRequest if the candidate must not be stored, for other reasons than those in `but`."""
        refused = refusal_of(candidate, self.gate.policy)
        if refused and refused[0] not in but:
            reason, why = refused
            raise InvalidRequest(f"Invalid 'content': {why}.", param="content", code=f"rejected_{reason}")

    async def _stating(self, scope: Scope, change: Create | Supersede | Confirm) -> Memory | None:
        """Return the memory that states now what the change says, as it is stored."""
        memory_id = change.id if isinstance(change, Confirm) else change.memory.id
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True, now=self.clock())
        return await self.gate.memories.get(where, memory_id)


def _dated(candidate: Candidate) -> Candidate:
    """Return the candidate with its relative dates resolved."""
    said = timezones.local(candidate.observed_at, candidate.timezone)
    return replace(candidate, content=anchored(candidate.content, candidate.type, said, stated=False))


def _resolved(memory: Memory, said: datetime | None) -> Memory:
    if said is None:
        return memory
    return replace(memory, content=anchored(memory.content, memory.type, said, stated=False))


def _corrected(memory: Memory, candidate: Candidate, said: Collection[str]) -> Memory:
    """Return the memory with what the candidate says of itself; tags come to those that there are."""
    taken: dict[str, Any] = {name: getattr(candidate, name) for name in said}
    if "tags" in said:
        taken["tags"] = tuple(dict.fromkeys((*memory.tags, *candidate.tags)))[-_MOST_TAGS:]
    corrected = replace(memory, **taken)
    if corrected == memory:
        return memory
    return replace(corrected, updated_at=max(memory.updated_at, candidate.observed_at))
