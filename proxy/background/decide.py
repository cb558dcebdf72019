"""What becomes of candidates, given the memories that are like them: a pure decision.

Nothing is deleted: a changed fact supersedes, the same fact confirms, every doubt creates.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from proxy.background.compare import Relation, overlap, relate
from proxy.domain import (
    KINDS,
    Candidate,
    Change,
    Confirm,
    Create,
    Evidence,
    Hit,
    Hold,
    Memory,
    Scope,
    Supersede,
)
from proxy.terms import normalise


@dataclass(frozen=True, slots=True)
class Weighed:
    """A candidate with its vector (None: the embedder is absent or does not understand it)."""

    candidate: Candidate
    vector: bytes | None
    similar: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to apply, and why the rest was left out: counts by reason."""

    changes: tuple[Change, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)

    def count(self, kind: type[Change]) -> int:
        """Return the number of changes of one kind."""
        return sum(isinstance(c, kind) for c in self.changes)


def memory_id(seed: str, content: str) -> str:
    """Return the id of what was stated: equal for a replay, so that it is stored once."""
    digest = blake2b(f"{seed}\0{normalise(content)}".encode(), digest_size=12)
    return f"mem_{digest.hexdigest()}"


def hold(candidate: Candidate, reason: str, *, now: float, seed: str) -> Hold:
    """Return the change that puts the candidate into quarantine; its id is equal for a replay."""
    origin = candidate.origin
    id_ = memory_id(origin.exchange_id if origin else seed, candidate.content)
    return Hold(f"held_{id_.removeprefix('mem_')}", candidate, reason, now)


def decide_changes(
    weighed: Sequence[Weighed], *, scope: Scope, now: float, near: float, seed: str
) -> Decision:
    """Return the changes that the candidates make, in order; candidates of one batch see each other."""
    ledger = _Ledger(scope, now, near, seed)
    for one in weighed:
        ledger.admit(one)
    return Decision(tuple(ledger.changes), ledger.dropped)


@dataclass(slots=True)
class _Ledger:
    """The state of one decision: what was changed so far."""

    scope: Scope
    now: float
    near: float
    seed: str
    changes: list[Change] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    made: list[tuple[Memory, bytes | None]] = field(default_factory=list)

    def admit(self, one: Weighed) -> None:
        candidate, memory = one.candidate, self._memory(one.candidate)
        named = self._named(one, memory)
        if named is not None:
            self._supersede(named, replace(memory, scope=_reach(named, memory)), one.vector)
            return
        for old, relation in self._related(one, memory):
            if relation is Relation.SAME:
                self._confirm(old, candidate)
            elif old.valid_from > memory.valid_from:
                self.dropped["outdated"] += 1  # a session read late must not undo a newer one
            else:
                self._supersede(old, memory, one.vector)
            return
        self.changes.append(Create(memory, one.vector))
        self.made.append((memory, one.vector))

    def _named(self, one: Weighed, memory: Memory) -> Memory | None:
        """Return the current memory that the candidate says it replaces, if it may."""
        given, candidate = one.candidate.replaces, one.candidate
        if not given:
            return None
        old = next((h.memory for h in one.similar if h.memory.id == given), None)
        if old is None or old.id in self.closed:
            return None
        # In a project a preference overrides the general one, it does not end it.
        narrower = old.scope.project is None and self.scope.project is not None
        if narrower and "preference" in (old.type, candidate.type):
            return None
        if normalise(old.content) == normalise(candidate.content) or old.valid_from > memory.valid_from:
            return None
        return old

    def _related(self, one: Weighed, memory: Memory) -> list[tuple[Memory, Relation]]:
        """Return the memory that says the same, else the nearest that the candidate updates; at most one."""
        pairs = [(h.memory, h.cosine) for h in one.similar]
        pairs += [(m, _cosine(v, one.vector)) for m, v in self.made]
        open_ = [(m, c) for m, c in pairs if m.id not in self.closed and _comparable(m, memory)]
        ordered = sorted(
            open_, key=lambda p: (p[1] or 0.0, overlap(p[0].content, memory.content)), reverse=True
        )
        related: list[tuple[Memory, Relation]] = [
            (m, relation)
            for m, c in ordered
            if (relation := relate(m.content, memory.content, c, near=self.near)) is not Relation.APART
            and not (relation is Relation.UPDATE and _same_breath(m, memory))
        ]
        return sorted(related, key=lambda p: p[1] is not Relation.SAME)[:1]

    def _supersede(self, old: Memory, memory: Memory, vector: bytes | None) -> None:
        self.closed.add(old.id)
        self.changes.append(Supersede(old.id, memory, vector))
        self.made.append((memory, vector))

    def _confirm(self, old: Memory, candidate: Candidate) -> None:
        origin = (candidate.origin,) if candidate.origin else ()
        if any(old.id == m.id for m, _ in self.made) or set(origin) & set(old.evidence):
            self.dropped["duplicate"] += 1  # said twice in one batch, or read twice
            return
        self.changes.append(Confirm(old.id, self.now, candidate.confidence, origin))

    def _memory(self, candidate: Candidate) -> Memory:
        origin = candidate.origin
        return Memory(
            id=memory_id(origin.exchange_id if origin else self.seed, candidate.content),
            scope=self.scope,
            type=candidate.type,
            content=candidate.content.strip(),
            source=candidate.source,
            created_at=self.now,
            updated_at=self.now,
            valid_from=candidate.observed_at or self.now,
            expires_at=candidate.expires_at,
            importance=candidate.importance,
            confidence=candidate.confidence,
            tags=candidate.tags,
            evidence=(origin,) if origin else (),
        )


def _reach(old: Memory, new: Memory) -> Scope:
    """Return the scope of a named replacement: it is seen wherever the old memory was."""
    return replace(new.scope, project=old.scope.project)


def _comparable(old: Memory, new: Memory) -> bool:
    """True for two memories of one family and project. A general memory also stands for a project's
    when it says the same; `relate` is asked about that only by equal words."""
    if _family(old.type) != _family(new.type):
        return False
    if old.scope.project == new.scope.project:
        return True
    return old.scope.project is None and normalise(old.content) == normalise(new.content)


def _family(type_: str) -> str:
    kind = KINDS.get(type_)
    return (kind.parent or kind.name) if kind else type_


def _same_breath(one: Memory, other: Memory) -> bool:
    """True for facts of one exchange: nobody corrects themselves in one message by way of two facts."""
    return bool(_exchanges(one.evidence) & _exchanges(other.evidence))


def _exchanges(evidence: Sequence[Evidence]) -> set[str]:
    return {e.exchange_id for e in evidence}


def _cosine(one: bytes | None, other: bytes | None) -> float | None:
    if one is None or other is None:
        return None
    return float(np.frombuffer(one, np.float32) @ np.frombuffer(other, np.float32))
