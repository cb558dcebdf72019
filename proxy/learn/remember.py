"""Changes that people make by hand (add, correct, release, discard), through the same write gate as
extracted facts.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from proxy.admit.admit import Basis, Gate, admit, relate, weigh
from proxy.admit.decide import decide_changes
from proxy.admit.embedding import vector_of, with_readings
from proxy.admit.safety.filters import refusal_of, without_personal_data
from proxy.domain import timezones
from proxy.domain.core import (
    Candidate,
    Confirm,
    Create,
    Edit,
    Event,
    Memory,
    MemoryFilter,
    Release,
    Scope,
    Stamp,
    Supersede,
)
from proxy.domain.errors import Conflict, InvalidRequest, QuotaExceeded
from proxy.domain.ports import Clock, Quarantine
from proxy.learn.extraction.dates import anchored
from proxy.learn.take_in import NOTHING_TOLD, GiveWay, Taken, at_once, take_in

_JUDGED_HARMLESS = frozenset(("planted", "echo"))  # what the owner of a held candidate has decided about
_FULL = "This user's memory is full, and new memories are refused."
NOTHING_SAID: Mapping[str, datetime] = MappingProxyType({})
_MOST_TAGS = 20  # of one memory, as of one request
_ATTEMPTS = 64  # a conflict means that another write went through: so many may be ahead of us


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
