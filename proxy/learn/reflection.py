"""Reflection: insights over many memories, and lessons from answers that were poor.

When enough memories are new, the model of role `memory_reflection` reads them with older ones near to them,
and the last exchanges of the sessions they came from. What it notes is compared with that: an insight rests
on at least three memories and names nothing else; a lesson names an exchange. Notes become memories of type
`reflective`, which say that they are inferred (see recall.pack), are found like others and are never part of
the profile. They are erased with any memory or exchange that they rest on.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admit.decision import memory_id
from proxy.admit.gate import Gate, sort, vectors_of, with_readings
from proxy.admit.safety import is_planted
from proxy.domain.changes import Archive, Change, Create, DerivationStore, Due, Review, StepCounts, Visit
from proxy.domain.core import Candidate, Evidence, Memory, MemoryFilter, Scope, Search
from proxy.domain.limits import HOUR_S
from proxy.domain.ports import Completer
from proxy.domain.session import Exchange, SessionStore
from proxy.learn.consolidation import AGAIN_S, commit, numbers, unsupported
from proxy.learn.llm_io import chosen, conversation, numbered, objects, request_of
from proxy.telemetry import log
from proxy.text.words import terms

ROLE = "memory_reflection"
STEP = "reflection"
_FEWEST = 10  # new memories that are worth a call
_MOST, _PORTION = 60, 40  # memories that the model reads, of which so many are new
_SESSIONS, _EXCHANGES = 3, 8  # that it reads, the last of each
_MOST_NOTES = 3  # of each kind
_RESTS_ON = 3  # memories, at least
_MAX_CHARS = 300
_MOST_SURE = 0.8  # confidence: it is inferred
_REPEATED = 0.92  # cosine from which a note says what another one says
_LESSON_SUPPORT = 0.5  # share of a lesson's terms that its conversation holds


# ---------------------------------------------------------------- what the model wrote
@dataclass(frozen=True, slots=True)
class Note:
    """An insight with its memories, or a lesson with its exchange."""

    content: str
    confidence: float
    sources: tuple[Memory, ...] = ()
    exchange: Exchange | None = None


def read_notes(answer: str, memories: Sequence[Memory], exchanges: Sequence[Exchange]) -> list[Note]:
    """Return the notes of the answer that what the model was shown supports."""
    found = next((o for o in objects(answer) if "insights" in o or "lessons" in o), {})
    insights = [
        note
        for one in _items(found.get("insights"))
        if (note := Note(_text(one), _confidence(one), tuple(chosen(one.get("sources"), memories)))).content
        and len(note.sources) >= _RESTS_ON
        and not unsupported(note.content, note.sources)
        and all(set(terms(note.content)) - set(terms(m.content)) for m in note.sources)
    ]
    lessons = [
        Note(content, _confidence(one), exchange=exchanges[number - 1])
        for one in _items(found.get("lessons"))
        if (content := _text(one))
        and isinstance(number := one.get("exchange"), int)
        and 1 <= number <= len(exchanges)
        and _was_said(content, exchanges)
    ]
    return [*insights[:_MOST_NOTES], *lessons[:_MOST_NOTES]]


def _items(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _text(item: Mapping[str, Any]) -> str:
    """Return the note's text, "" if it has none that may be stored."""
    content = item.get("content")
    text = " ".join(content.split()) if isinstance(content, str) else ""
    return text if len(text) <= _MAX_CHARS and terms(text) and not is_planted(text) else ""


def _confidence(item: Mapping[str, Any]) -> float:
    value = item.get("confidence")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return 0.0
    return min(_MOST_SURE, float(value))


def _was_said(content: str, exchanges: Sequence[Exchange]) -> bool:
    """True if the conversation holds the lesson's numbers and most of its words."""
    said = " ".join(f"{e.said} {e.answer}" for e in exchanges)
    words, known = set(terms(content)), set(terms(said))
    return numbers(content) <= numbers(said) and len(words & known) >= _LESSON_SUPPORT * len(words)


# ---------------------------------------------------------------- the step
@dataclass(frozen=True, slots=True)
class Reflection:
    """The step of the background pass; a user's calls are bounded by the hour."""

    gate: Gate
    derivation: DerivationStore
    sessions: SessionStore
    completer: Completer
    name: str = STEP
    switch: str = "reflect"

    async def run(self, visit: Visit) -> StepCounts:
        """Ask the model once, if enough is new."""
        scope, now = visit.scope, visit.now
        began = await self.gate.memories.stamp(scope)
        if not visit.dry_run and (outdated := await self.derivation.outdated(scope)):
            once = Review("outdated", tuple(outdated), now)  # a memory that its owner restores stays
            await commit(self.gate, scope, began, (), [once, Archive(tuple(outdated), now, "reflection")])
            return StepCounts({"archived": outdated}, more=True)
        due = await self.derivation.due(scope, STEP, limit=_PORTION, now=now)
        new = [m for m in due.memories if m.source not in ("reflection", "summary")]
        if len(new) < _FEWEST:
            others = tuple(m.id for m in due.memories if m not in new)
            if visit.dry_run or len(due.memories) < _PORTION:
                return StepCounts()
            # Behind a portion of summaries and insights more may be new.
            await commit(self.gate, scope, began, (), [Review(STEP, others, now)])
            return StepCounts(more=True)
        if visit.dry_run:
            return StepCounts({"may_be_reflected_on": [m.id for m in new]})
        if await self.derivation.batches(scope, STEP, now - HOUR_S) >= visit.policy.calls_per_user_hour:
            return StepCounts(due_at=now + HOUR_S / visit.policy.calls_per_user_hour)
        project = new[0].scope  # what is of one project is not mixed with that of another
        shown = [m for m in await self._shown(new, due, now) if m.scope == project]
        # The last exchanges of the sessions that the new memories came from.
        named = [e.session_id for m in new if m.scope == project for e in m.evidence if e.session_id]
        sessions = [*dict.fromkeys(reversed(named))][:_SESSIONS]
        exchanges = [e for name in sessions for e in await self.sessions.recent(project, name, _EXCHANGES)]
        notes = await self._noted(scope, shown, exchanges)
        made = await self._stored(scope, project, notes, now)
        reviewed = [m.id for m in due.memories if m.scope == project or m not in new]
        batch = memory_id(STEP, "\0".join(sorted(reviewed)))
        upto = due.upto if len(reviewed) == len(due.memories) else None
        ids = (*reviewed, *(change.memory.id for change in made))
        changes: list[Change] = [*made, Review(STEP, ids, now, upto, batch)]
        read = [m for note in notes for m in note.sources]
        if await commit(self.gate, scope, began, read, changes) is None:
            return StepCounts(due_at=now + AGAIN_S)
        return StepCounts({"noted": [change.memory.id for change in made]}, more=True)

    async def _shown(self, new: Sequence[Memory], due: Due, now: float) -> list[Memory]:
        """Return the new memories, and older ones that are near to them."""
        found = {m.id: m for m in new}
        for memory in new:
            vector = due.vectors[memory.id]
            if vector is None or len(found) >= _MOST:
                continue
            for hit in await self.gate.memories.search(memory.scope, Search(vector, (), limit=5, now=now)):
                if hit.memory.source != "reflection" and len(found) < _MOST:
                    found.setdefault(hit.memory.id, hit.memory)
        return sorted(found.values(), key=lambda m: (m.valid_from, m.id))

    async def _noted(
        self, scope: Scope, memories: Sequence[Memory], exchanges: Sequence[Exchange]
    ) -> list[Note]:
        """Raises CompletionFailed."""
        policy = self.gate.policy

        def show() -> tuple[str, str]:
            talk = (f"Exchange {n}:\n{conversation([e], policy)}" for n, e in enumerate(exchanges, 1))
            return numbered(memories, policy), "\n".join(talk) or "(none)"

        shown, talk = await asyncio.to_thread(show)
        request = request_of(ROLE, "reflection", scope, memories=shown, exchanges=talk)
        notes = read_notes(await self.completer.complete(request), memories, exchanges)
        log.info("memory.reflected", memories=len(memories), exchanges=len(exchanges), notes=len(notes))
        return notes

    async def _stored(self, scope: Scope, project: Scope, notes: Sequence[Note], now: float) -> list[Create]:
        """Return the changes that store the notes which pass the write gate and say something new."""
        candidates = [
            Candidate(type="reflective", content=n.content, confidence=n.confidence, source="reflection")
            for n in notes
        ]
        passed = (await asyncio.to_thread(sort, candidates, [], self.gate, now)).stored
        unchanged = {one.content for one in passed}
        new = [note for note in notes if note.content in unchanged]
        vectors = await vectors_of(self.gate.embedder, [note.content for note in new])
        made: list[Create] = []
        for note, vector in zip(new, vectors, strict=True):
            where, ids = note.exchange, sorted(m.id for m in note.sources)
            memory = Memory(
                id=memory_id(where.id if where else "\0".join(ids), note.content), scope=project,
                type="reflective", content=note.content, source="reflection",
                created_at=now, updated_at=now, valid_from=now, confidence=note.confidence,
                evidence=(Evidence(where.session_id, where.id),) if where else (),
                sources=tuple(m.id for m in note.sources),
            )  # fmt: skip
            if not await self._is_known(memory, vector, now):
                made.append(Create(memory, vector))
        ready = await with_readings(self.gate.judge, made)
        return [change for change in ready if isinstance(change, Create)]

    async def _is_known(self, memory: Memory, vector: bytes | None, now: float) -> bool:
        """True if the note was made before, also one that its owner has archived, or says the same."""
        where = MemoryFilter(tenant=memory.scope.tenant, user=memory.scope.user, include_inactive=True)
        if await self.gate.memories.get(where, memory.id) is not None:
            return True
        if vector is None:
            return False
        search = Search(vector, (), limit=3, types=frozenset((memory.type,)), now=now)
        hits = await self.gate.memories.search(memory.scope, search)
        return any(hit.cosine is not None and hit.cosine >= _REPEATED for hit in hits)
