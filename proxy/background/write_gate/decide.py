"""Decide what to do with each candidate, given the stored memories that are like it. Pure.

Nothing is deleted: a changed fact supersedes, the same fact confirms, every doubt creates. When it was
said decides, not when it was read: a session that is read late adds to the history of what was said since.
So the same candidates end as the same current memories, in whatever order they come.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from proxy.background.extraction.dates import is_ahead, resolved
from proxy.background.write_gate.belief import confirmed, decayed, is_inferred
from proxy.background.write_gate.claims import claims_change, says_moved, takes_back_date
from proxy.background.write_gate.compare import Relation, overlap, relate
from proxy.background.write_gate.reading import read
from proxy.domain import (
    DEFAULT_TIMEZONE,
    KINDS,
    Candidate,
    Change,
    Confirm,
    Create,
    Edit,
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
    """What to apply, and why the rest was left out: counts by reason. `refused`: ids of new
    memories that the quota refused."""

    changes: tuple[Change, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    refused: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True)
class _Match:
    """A memory that the candidate is about, and what the later of the two is to the earlier."""

    memory: Memory
    relation: Relation
    late: bool  # the candidate was said before the memory


@dataclass(slots=True)
class _Ledger:
    """The state of one decision: what was changed so far."""

    scope: Scope
    now: float
    near: float
    seed: str
    timezone: str = DEFAULT_TIMEZONE  # of the candidate that is being admitted
    changes: list[Change] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    made: list[tuple[Memory, bytes | None]] = field(default_factory=list)

    def admit(self, one: Weighed) -> None:
        candidate, memory = one.candidate, self._memory(one.candidate)
        named = self._named(one, memory)
        if named is not None:
            self._supersede([named], replace(memory, scope=_reach(named, memory)), one.vector)
            return
        self.timezone = candidate.timezone
        matches = self._matches(one, memory)
        if not matches:
            self.changes.append(Create(memory, one.vector))
            self.made.append((memory, one.vector))
            return
        match = matches[0]
        if match.relation is Relation.SAME:
            self._say_again(match, matches, candidate, memory, one.vector)
        elif match.late:
            self._add_to_history(match.memory, memory, one.vector)
        elif _overrules(match.memory, memory):
            self.dropped["explicit_preference"] += 1
        else:
            olds = self._rewordings(matches)
            self._supersede(olds, replace(memory, scope=_reach(olds[0], memory)), one.vector)

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
        if normalise(old.content) == normalise(candidate.content) or _last_said(old) > memory.valid_from:
            return None
        return old

    # ------------------------------------------------------------ what it is about
    def _matches(self, one: Weighed, memory: Memory) -> list[_Match]:
        """Return the current memories that the candidate says again or changes; those that it says again
        first, then the nearest."""
        pairs = [(h.memory, h.cosine) for h in one.similar]
        pairs += [(m, _cosine(v, one.vector)) for m, v in self.made]
        ordered = sorted(
            ((m, c) for m, c in pairs if m.id not in self.closed),
            key=lambda p: (p[1] or 0.0, overlap(p[0].content, memory.content)),
            reverse=True,
        )
        found = [match for m, c in ordered if (match := self._match(m, memory, c)) is not None]
        return sorted(found, key=lambda match: match.relation is not Relation.SAME)

    def _match(self, old: Memory, memory: Memory, cosine: float | None) -> _Match | None:
        late = memory.valid_from < _last_said(old)
        first, then = (memory, old) if late else (old, memory)
        relation = relate(first.content, then.content, cosine, near=self.near)
        if relation is Relation.SAME and _on_other_days(first, then):
            if not _is_new_date(first, then, self.timezone):
                return None
            relation = Relation.UPDATE
        if relation is Relation.SAME and _reaches(old, memory):
            return _Match(old, relation, late)
        if relation is not Relation.UPDATE or _same_breath(old, memory):
            return None
        if not _may_change(first, then, cosine, self.timezone):
            return None
        return _Match(old, relation, late)

    def _rewordings(self, matches: Sequence[_Match]) -> list[Memory]:
        """Return the memory to close, and those that say the same as it in other words."""
        nearest = matches[0].memory
        also = [
            m.memory
            for m in matches[1:]
            if not m.late
            and relate(nearest.content, m.memory.content, None, near=self.near) is Relation.SAME
            and not _on_other_days(nearest, m.memory)
        ]
        return [nearest, *also]

    # ------------------------------------------------------------ what becomes of it
    def _supersede(self, olds: Sequence[Memory], memory: Memory, vector: bytes | None) -> None:
        for old in olds:
            self.closed.add(old.id)
            self.changes.append(Supersede(old.id, memory, vector))
        self.made.append((memory, vector))

    def _say_again(
        self,
        match: _Match,
        matches: Sequence[_Match],
        candidate: Candidate,
        memory: Memory,
        vector: bytes | None,
    ) -> None:
        """Confirm what says the same; of two wordings, the one that was said first stays, and of a
        project's and a general statement the general one."""
        old = match.memory
        broader = old.scope.project is not None and memory.scope.project is None
        reworded = normalise(old.content) != normalise(memory.content)
        if broader or (match.late and reworded and old.scope.project == memory.scope.project):
            sure = max(confirmed(old.confidence), memory.confidence)
            said = max(memory.updated_at, old.updated_at)
            self._supersede([old], replace(memory, updated_at=said, confidence=sure), vector)
            return
        self._confirm(old, candidate)
        if old.type == "preference" and not is_inferred(candidate):
            self._weaken(matches, memory)

    def _confirm(self, old: Memory, candidate: Candidate) -> None:
        origin = (candidate.origin,) if candidate.origin else ()
        if any(old.id == m.id for m, _ in self.made) or set(origin) & set(old.evidence):
            self.dropped["duplicate"] += 1  # said twice in one batch, or read twice
            return
        sure = max(confirmed(old.confidence), candidate.confidence)
        said = candidate.observed_at or self.now
        self.changes.append(Confirm(old.id, said, sure, origin, candidate.expires_at))

    def _weaken(self, matches: Sequence[_Match], memory: Memory) -> None:
        """Let what was only inferred and says otherwise decay."""
        for match in matches:
            if match.relation is Relation.UPDATE and is_inferred(match.memory):
                self.changes.append(Edit(decayed(match.memory, memory.updated_at), None))

    def _add_to_history(self, current: Memory, memory: Memory, vector: bytes | None) -> None:
        """Keep what was said before the current memory and read after it as what it superseded."""
        ended = current.valid_from
        if memory.valid_from >= ended:  # the current one was said before it, and again after it
            if memory.source != "api":
                self.dropped["outdated"] += 1
                return
            ended = _last_said(current)
        past = replace(memory, scope=_reach(current, memory), valid_to=ended, superseded_by=current.id)
        self.changes.append(Create(past, vector))

    def _memory(self, candidate: Candidate) -> Memory:
        origin = candidate.origin
        said = candidate.observed_at or self.now
        return Memory(
            id=memory_id(origin.exchange_id if origin else self.seed, candidate.content),
            scope=self.scope,
            type=candidate.type,
            content=candidate.content.strip(),
            source=candidate.source,
            created_at=said if candidate.source == "api" else self.now,  # a person says when it was
            updated_at=said,  # when it was said last: see _last_said
            valid_from=said,
            expires_at=candidate.expires_at,
            importance=candidate.importance,
            confidence=candidate.confidence,
            tags=candidate.tags,
            evidence=(origin,) if origin else (),
        )


def _last_said(memory: Memory) -> float:
    """Return when the memory was said or confirmed last."""
    return max(memory.valid_from, memory.updated_at)


def _reach(old: Memory, new: Memory) -> Scope:
    """Return the scope of a replacement: it is seen wherever the old memory was."""
    return replace(new.scope, project=old.scope.project)


def _reaches(old: Memory, new: Memory) -> bool:
    """True where one of two memories that say the same may stand for both: in one project, or where one
    is general, if the words are equal."""
    if old.scope.project == new.scope.project:
        return True
    return None in (old.scope.project, new.scope.project) and normalise(old.content) == normalise(new.content)


def _on_other_days(first: Memory, then: Memory) -> bool:
    """True for "ran 5 km yesterday (2026-02-04)" and "… yesterday (2026-02-11)"."""
    one, other = resolved(first.content), resolved(then.content)
    return bool(one and other) and one != other


def _is_new_date(first: Memory, then: Memory, timezone: str) -> bool:
    """True where the day that the earlier names had not come when the later named another. What may have
    happened by then happened, and the later is the next time."""
    if "episodic" in (first.type, then.type):
        return False
    return is_ahead(first.content, then.valid_from, timezone) is True


def _may_change(first: Memory, then: Memory, cosine: float | None, timezone: str) -> bool:
    """True if the later may change the earlier. What happened stays true: of two events the later must say
    all that the earlier says, or say itself that it was moved or called off; until its day has come, that
    it is another day now. Across types, and between a project and no project, the later has to say itself
    that something changed; a project's preference overrides the general one and does not end it."""
    if first.scope.project != then.scope.project:
        crosses = None in (first.scope.project, then.scope.project)
        if not crosses or "preference" in (first.type, then.type):
            return False
    if takes_back_date(first.content, then.content):
        return True
    if first.type == "episodic":
        said_again = set(read(first.content).values) <= set(read(then.content).values)
        if then.type == "episodic" and said_again:
            return True
        ahead = is_ahead(first.content, first.valid_from, timezone)
        if ahead and says_moved(then.content):
            return True
        moved = ahead is None or read(first.content).planned or says_moved(then.content, to="date")
        may_move = moved or is_ahead(first.content, then.valid_from, timezone)
        return bool(may_move) and claims_change(first.content, then.content, cosine)
    if then.type != "episodic" and first.scope.project == then.scope.project:
        return _family(first.type) == _family(then.type)
    if "procedural" in (first.type, then.type):
        return False
    planned = then.type == "episodic" and read(first.content).planned
    return planned or claims_change(first.content, then.content, cosine)


def _overrules(old: Memory, new: Memory) -> bool:
    """True if the old preference was said outright, and the new one neither said nor said to have changed."""
    if old.type != "preference" or is_inferred(old) or not is_inferred(new):
        return False
    return not claims_change(old.content, new.content, None)


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
