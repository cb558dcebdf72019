"""Changes that people make by hand (add, correct, release, discard, import), through the same write gate as
extracted facts. Imported memories pass its safety part only, and are stored unchanged.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from proxy.admit.decision import decide_changes
from proxy.admit.gate import Basis, Gate, admit, relate, vector_of, vectors_of, weigh, with_readings
from proxy.admit.safety import SafetyPolicy, redact, refusal_of, safe_id, without_personal_data
from proxy.domain.changes import Change, Confirm, Create, Edit, Event, Release, Supersede
from proxy.domain.core import Candidate, Evidence, Memory, MemoryFilter, Scope, Stamp
from proxy.domain.errors import Conflict, InvalidRequest, NotFound, QuotaExceeded
from proxy.domain.ports import Clock, Quarantine
from proxy.text.dates import anchored, local_time

P = ParamSpec("P")
T = TypeVar("T")
GiveWay = Callable[[float], Awaitable[None]]
"""Takes the duration of a step in seconds; returns when the next one may begin."""

_ATTEMPTS = 64  # each conflict means that another write went through
_OWNER_ALLOWS = frozenset(("planted", "echo"))  # refusals that a held candidate's owner overrules
_MOST_TAGS = 20  # of a memory
_NONE: Mapping[str, Any] = MappingProxyType({})
_EMBEDDED_AT_ONCE = 8
_FORGOTTEN = "the user forgot something while the import ran; send the file again if it is still wanted"
_IMPORT_THREAD = ThreadPoolExecutor(1, "import")  # imports wait for each other, and no user waits for them


async def _at_once(_: float) -> None:
    """Begin the next step at once."""


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """The outcome for one memory of an import: imported, refused for a reason, or already there."""

    imported: bool
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MemoryEditor:
    """Changes by hand. Raises InvalidRequest for what the gate refuses, QuotaExceeded, Conflict."""

    gate: Gate
    quarantine: Quarantine
    clock: Clock
    give_way: GiveWay = _at_once  # of imports

    async def add(self, scope: Scope, candidate: Candidate, said: Collection[str] = ()) -> tuple[Memory, str]:
        """Return the memory that now states it, and "created", "superseded" or "confirmed". `said`: which
        of the candidate's `expires_at`, `importance` and `tags` a memory takes over that it confirms."""
        self._check(candidate)
        at = local_time(candidate.observed_at, candidate.timezone)
        candidate = await asyncio.to_thread(_dated, candidate, at)
        for _ in range(_ATTEMPTS):
            try:
                memory, change = await self._add(scope, candidate)
                if change == "confirmed":
                    memory = await self._taking_over(memory, candidate, said)
            except Conflict:  # the user forgot something in the meantime; the new memory is newer
                continue
            return memory, change
        raise Conflict(_KEEP_CHANGING)

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
            if memory.superseded_by:
                why = f"A newer memory has taken its place; edit that one: '{memory.superseded_by}'."
                raise InvalidRequest(why, param="memory_id", code="memory_superseded")
            edited = correct(memory)
            stated = Candidate(type=edited.type, content=edited.content, tags=edited.tags, confidence=1.0)
            if (edited.content, edited.tags, edited.type) != (memory.content, memory.tags, memory.type):
                self._check(stated)
                stated = without_personal_data(stated, self.gate.policy)
            edited = replace(edited, content=stated.content, tags=stated.tags)
            if edited.content != memory.content:
                edited = replace(edited, source="api", confidence=1.0)
            change = Edit(edited, await vector_of(self.gate.embedder, edited.content))
            if await self._applied(memory.scope, await with_readings(self.gate.judge, (change,)), stamp):
                return await self.gate.memories.get(where, memory_id)
        raise Conflict(_KEEP_CHANGING)

    async def change(self, where: MemoryFilter, memory: Memory, change: Change) -> Memory | None:
        """Apply a change that needs no gate; return the memory as it is then, None if it was forgotten."""
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(memory.scope)
            try:
                await self.gate.memories.apply(memory.scope, [change], expect=stamp)
            except NotFound:
                return None
            except Conflict:
                continue
            return await self.gate.memories.get(where, memory.id)
        raise Conflict(_KEEP_CHANGING)

    async def release(self, scope: Scope, held_id: str) -> Memory | None:
        """Turn a held candidate into a memory, as if it were said now: its owner has just confirmed it."""
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(scope)
            held = await self.quarantine.find(scope, held_id)
            if held is None:
                return None
            now = self.clock()
            candidate = replace(held.candidate, observed_at=now)
            self._check(candidate, allowed=_OWNER_ALLOWS)
            vector = await vector_of(self.gate.embedder, candidate.content)
            weighed = await weigh(self.gate, held.scope, [candidate], [vector], now)
            relations = await relate(self.gate, weighed, now, {})
            decided = decide_changes(weighed, relations, scope=held.scope, now=now, seed=held_id)
            change = _main_change(decided.changes)
            if await self._applied(held.scope, (change, Release(held_id)), stamp):
                return await self._stating(held.scope, change)
        raise Conflict(_KEEP_CHANGING)

    async def discard(self, scope: Scope, held_id: str) -> bool:
        """Erase a held candidate; False if there is none."""
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(scope)
            if await self.quarantine.find(scope, held_id) is None:
                return False
            if await self._applied(scope, (Release(held_id),), stamp):
                return True
        raise Conflict(_KEEP_CHANGING)

    async def import_memories(
        self,
        scope: Scope,
        memories: Sequence[Memory],
        *,
        began: Stamp,
        histories: Mapping[str, Sequence[Event]] = _NONE,
        said: Mapping[str, datetime] = _NONE,
    ) -> list[ImportedMemory]:
        """Store memories of one user with their ids, times, links and histories, plus an event "imported";
        known ids and current twins are skipped. `said`: by id, the local time for relative dates.

        Stores nothing if the user has forgotten something since `began`: an import must not restore what was
        forgotten while it ran."""
        memories = await asyncio.to_thread(
            lambda: [_dated(m, said[m.id]) if m.id in said else m for m in memories]
        )
        policy = self.gate.policy
        refusals = [await self._step(_refusal, m, histories.get(m.id, ()), policy) for m in memories]
        allowed = [m for m, why in zip(memories, refusals, strict=True) if not why]
        # `apply` checks again; here it saves the embedding if an import is sent twice.
        everything = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True)
        known = await self.gate.memories.history(everything, [m.id for m in allowed])
        fresh = {m.id: m for m in reversed(allowed) if m.id not in known}
        failed, dropped = await self._import(scope, list(fresh.values())[::-1], histories, began)
        outcomes: list[ImportedMemory] = []
        for memory, why in zip(memories, refusals, strict=True):
            refusal = why or failed.get(memory.id, "")
            new = not refusal and fresh.pop(memory.id, None) is not None and memory.id not in dropped
            outcomes.append(ImportedMemory(new, refusal))
        return outcomes

    # ------------------------------------------------------------ changes of one memory
    async def _applied(self, scope: Scope, changes: Sequence[Change], stamp: Stamp) -> bool:
        """Apply the changes; False if another write came first."""
        try:
            applied = await self.gate.memories.apply(scope, changes, expect=stamp)
        except Conflict:
            return False
        if applied.refused:
            raise QuotaExceeded(_FULL)
        return True

    async def _add(self, scope: Scope, candidate: Candidate) -> tuple[Memory, str]:
        began = await self.gate.memories.stamp(scope)
        decision = await admit(self.gate, scope, [candidate], Basis(began, self.clock(), seed=uuid4().hex))
        change = _main_change(decision.changes)
        stored = await self._stating(scope, change)
        if stored is not None:
            return stored, _HAPPENED[type(change)]
        if isinstance(change, Confirm):
            raise Conflict("the memory it confirms was deleted")
        if change.memory.id in decision.refused:
            raise QuotaExceeded(_FULL)
        # Stored, then deleted by a forget that began after the write.
        return change.memory, _HAPPENED[type(change)]

    async def _taking_over(self, memory: Memory, candidate: Candidate, said: Collection[str]) -> Memory:
        """Return the confirmed memory, with those of the candidate's fields that were `said`; tags are
        added."""

        def correct(memory: Memory) -> Memory:
            taken: dict[str, Any] = {name: getattr(candidate, name) for name in said}
            if "tags" in said:
                taken["tags"] = tuple(dict.fromkeys((*memory.tags, *candidate.tags)))[-_MOST_TAGS:]
            corrected = replace(memory, **taken)
            updated_at = max(memory.updated_at, candidate.observed_at)
            return corrected if corrected == memory else replace(corrected, updated_at=updated_at)

        if correct(memory) == memory:
            return memory
        scope, now = memory.scope, self.clock()
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True, now=now)
        edited = await self.edit(where, memory.id, correct)
        if edited is None:
            raise Conflict("the memory it confirms was deleted")
        return edited

    def _check(self, candidate: Candidate, *, allowed: frozenset[str] = frozenset()) -> None:
        """Raise InvalidRequest if the candidate must not be stored, for a reason that is not `allowed`."""
        refused = refusal_of(candidate, self.gate.policy)
        if refused and refused[0] not in allowed:
            reason, why = refused
            raise InvalidRequest(f"Invalid 'content': {why}.", param="content", code=f"rejected_{reason}")

    async def _stating(self, scope: Scope, change: Create | Supersede | Confirm) -> Memory | None:
        """Return the memory that now states what the change says, as it is stored."""
        memory_id = change.id if isinstance(change, Confirm) else change.memory.id
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True, now=self.clock())
        return await self.gate.memories.get(where, memory_id)

    # ------------------------------------------------------------ imports
    async def _import(
        self, scope: Scope, fresh: Sequence[Memory], histories: Mapping[str, Sequence[Event]], began: Stamp
    ) -> tuple[dict[str, str], Set[str]]:
        """Apply the memories in one transaction; return the refusals by id, and the known ids."""
        if not fresh:
            return {}, frozenset()
        now, changes = self.clock(), list[Change]()
        storable = [await self._step(_storable, m, histories.get(m.id, ()), self.gate.policy) for m in fresh]
        for at in range(0, len(storable), _EMBEDDED_AT_ONCE):
            began_s = time.monotonic()
            some = storable[at : at + _EMBEDDED_AT_ONCE]
            vectors = await vectors_of(self.gate.embedder, [m.content for m, _ in some])
            created = [
                Create(memory, vector, (*past, Event(now, "imported", "api", memory.content)))
                for (memory, past), vector in zip(some, vectors, strict=True)
            ]
            changes += await with_readings(self.gate.judge, created)
            await self.give_way(time.monotonic() - began_s)
        for _ in range(_ATTEMPTS):
            stamp = await self.gate.memories.stamp(scope)
            if stamp.generation != began.generation:
                return dict.fromkeys((m.id for m in fresh), _FORGOTTEN), frozenset()
            try:
                applied = await self.gate.memories.apply(scope, changes, expect=stamp)
            except Conflict:
                continue
            return dict.fromkeys(applied.refused, "this user's memory is full"), frozenset(applied.dropped)
        raise Conflict(_KEEP_CHANGING)

    async def _step(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Run one step in the thread of imports, then let turns go first."""
        began_s = time.monotonic()
        run = asyncio.get_running_loop().run_in_executor
        result = await run(_IMPORT_THREAD, lambda: work(*args, **more))
        await self.give_way(time.monotonic() - began_s)
        return result


_KEEP_CHANGING = "the user's memories keep changing"
_FULL = "This user's memory is full, and new memories are refused."
_HAPPENED: Mapping[type, str] = {Create: "created", Supersede: "superseded", Confirm: "confirmed"}


def _main_change(changes: Sequence[Change]) -> Create | Supersede | Confirm:
    """Return the first change: those after it concern memories that say the same."""
    match changes:
        case (Create() | Supersede() | Confirm() as change, *_):
            return change
    raise Conflict("what it would update is newer")


Dated = TypeVar("Dated", Candidate, Memory)


def _dated(one: Dated, said: datetime) -> Dated:
    """Return it with relative dates resolved for the local time `said`."""
    return replace(one, content=anchored(one.content, one.type, said, stated=False))


def _refusal(memory: Memory, history: Sequence[Event], policy: SafetyPolicy) -> str:
    """Return why an imported memory must not be stored, "" if it may."""
    candidate = Candidate(type=memory.type, content=memory.content, tags=memory.tags, source=memory.source)
    evidence = "\n".join(e.span for e in memory.evidence)
    if refused := refusal_of(replace(candidate, evidence=evidence), policy):
        return f"`content`: {refused[1]}"
    for content in {event.content for event in history} - {memory.content}:
        refused = refusal_of(Candidate(type=memory.type, content=content), policy)
        if refused and refused[0] not in ("secret", "pii"):  # these are redacted in a history
            return f"`history`: {refused[1]}"
    return ""


def _storable(
    memory: Memory, history: Sequence[Event], policy: SafetyPolicy
) -> tuple[Memory, tuple[Event, ...]]:
    """Return an imported memory and its history, redacted; without a history, that it was created."""
    ids = ((safe_id(e.session_id), safe_id(e.exchange_id), e.span) for e in memory.evidence)
    evidence = tuple(Evidence(session, exchange, redact(span, policy)) for session, exchange, span in ids)
    content, tags = redact(memory.content, policy), tuple(redact(tag, policy) for tag in memory.tags)
    stored = replace(memory, content=content, tags=tags, evidence=evidence)
    if not history:
        return stored, (Event(memory.created_at, "created", memory.source, content),)
    redacted = {text: redact(text, policy) for text in {event.content for event in history}}
    return stored, tuple(replace(e, by=safe_id(e.by), content=redacted[e.content]) for e in history)
