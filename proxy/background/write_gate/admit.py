"""The write gate: candidates are checked, compared with what is stored, and applied in one transaction.

`admit` reads under a stamp, decides, and applies under the same stamp; when somebody else wrote
meanwhile it does so again. So two sessions of one user lose no update and store no fact twice.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.background.embedding import vectors_of
from proxy.background.extraction.doubt import Judge, no_doubt
from proxy.background.safety.filters import reject, without_personal_data
from proxy.background.safety.policy import DEFAULT, SafetyPolicy
from proxy.background.write_gate.decide import Decision, Weighed, decide_changes, hold
from proxy.domain import Candidate, Hit, Job, MemoryFilter, Scope, Search, Stamp
from proxy.errors import Conflict, LeaseLost
from proxy.judging import Judge as Heads
from proxy.ports import Embedder, MemoryStore
from proxy.terms import terms

DEFAULT_NEAR = 0.8  # where there is no model whose threshold could be asked
_RECENT = 100  # memories that a candidate without a vector is compared with, whatever their words
_SIMILAR = 12  # existing memories, per list, that a candidate is compared with
_ATTEMPTS = 16  # decisions until the stamp holds: a conflict means that somebody else's write went through


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate needs: the store, the embedder if there is one, and what may be stored."""

    memories: MemoryStore
    embedder: Embedder | None
    min_confidence: float = 0.6
    policy: SafetyPolicy = DEFAULT
    ttl_days: Mapping[str, float] = field(default_factory=dict)  # by type; others are kept for good
    judge: Heads | None = None  # None: the models could not be loaded


@dataclass(frozen=True, slots=True)
class Sorted:
    """Candidates by what becomes of them: stored, held for review with a reason, dropped by reason."""

    kept: tuple[Candidate, ...]
    held: tuple[tuple[Candidate, str], ...]
    dropped: Counter[str]


def sort(candidates: Sequence[Candidate], gate: Gate, judge: Judge, now: float) -> Sorted:
    """Return the candidates by what becomes of them. What is kept or held is redacted throughout, and
    expires as its type does."""
    kept: list[Candidate] = []
    held: list[tuple[Candidate, str]] = []
    dropped: Counter[str] = Counter()
    for candidate in candidates:
        reason = "confidence" if candidate.confidence < gate.min_confidence else None
        if reason := reason or reject(candidate, gate.policy):
            dropped[reason] += 1
            continue
        storable = _expiring(without_personal_data(candidate, gate.policy), gate.ttl_days, now)
        doubt = judge(candidate)
        if doubt is None:
            kept.append(storable)
        elif doubt.review and gate.policy.quarantine:
            held.append((storable, doubt.reason))
        else:
            dropped[doubt.reason] += 1
    return Sorted(tuple(kept), tuple(held), dropped)


def _expiring(candidate: Candidate, ttl_days: Mapping[str, float], now: float) -> Candidate:
    days = ttl_days.get(candidate.type)
    if candidate.expires_at is not None or days is None:
        return candidate
    return replace(candidate, expires_at=now + days * 86_400)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a write rests on: the stamp under which the candidates' text was read, the time, the seed of new
    memories' ids (the same seed gives the same ids), and the job that it finishes, if any."""

    began: Stamp
    now: float
    seed: str
    done: Job | None = None


async def admit(
    gate: Gate,
    scope: Scope,
    candidates: Sequence[Candidate],
    basis: Basis,
    judge: Judge = no_doubt,
) -> Decision:
    """Store what passes the gate, hold what `judge` doubts, and finish the job, in one transaction; return
    what was decided.

    Raises Conflict if the user forgot something since `began` (what was read may be gone: read again);
    LeaseLost, EmbeddingFailed, StoreUnavailable.
    """
    now, seed = basis.now, basis.seed
    # In threads: ten candidates take some 20 ms to sort, and 200 ms to compare where vectors are of no use.
    sorted_ = await asyncio.to_thread(sort, candidates, gate, judge, now)
    holds = tuple(hold(c, reason, now=now, seed=seed) for c, reason in sorted_.held)
    vectors = await vectors_of(gate.embedder, [c.content for c in sorted_.kept])
    near = gate.embedder.model.duplicate_threshold if gate.embedder else DEFAULT_NEAR
    for attempt in range(1, _ATTEMPTS + 1):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != basis.began.generation:
            raise Conflict("forgotten meanwhile")
        weighed = [
            Weighed(c, v, tuple(await _similar(gate.memories, scope, c, v, now)))
            for c, v in zip(sorted_.kept, vectors, strict=True)
        ]
        decision = await asyncio.to_thread(
            decide_changes, weighed, scope=scope, now=now, near=near, seed=seed
        )
        changes = (*decision.changes, *holds)
        try:
            applied = await gate.memories.apply(scope, changes, expect=stamp, done=basis.done)
        except LeaseLost:
            raise
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
            continue
        return Decision(changes, decision.dropped + sorted_.dropped, applied.refused)
    raise AssertionError("unreachable")


async def _similar(
    memories: MemoryStore, scope: Scope, candidate: Candidate, vector: bytes | None, now: float
) -> list[Hit]:
    """Return the current memories nearest to the candidate, and the one that it says it replaces."""
    words = terms(candidate.content)
    hits: list[Hit] = []
    if vector is not None or words:
        hits += await memories.search(scope, Search(vector, words, limit=_SIMILAR, now=now))
    if vector is None:
        hits += await _recent(memories, scope, now, but={h.memory.id for h in hits})
    named = candidate.replaces
    if named and all(h.memory.id != named for h in hits):
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now)
        memory = await memories.get(where, named)
        if memory is not None and memory.is_current(now) and _visible(memory.scope, scope):
            hits.append(Hit(memory, None, 0.0))
    return hits


async def _recent(memories: MemoryStore, scope: Scope, now: float, *, but: set[str]) -> list[Hit]:
    """Return the user's newest memories: "搬到上海" shares no word with "住在杭州", and has no vector."""
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now)
    page = await memories.list(where, limit=_RECENT, total=False)
    return [Hit(m, None, 0.0) for m in page.items if m.id not in but and _visible(m.scope, scope)]


def _visible(memory: Scope, scope: Scope) -> bool:
    """True if a search in `scope` could return the memory (see domain.Scope)."""
    return scope.project is None or memory.project in (None, scope.project)
