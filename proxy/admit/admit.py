"""The write gate: candidates are checked, compared with what is stored, and applied in one transaction.

`admit` reads under a stamp, decides, and applies under the same stamp; if another write came first, it
starts again. So two sessions of one user lose no update and store no fact twice.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.admit.decide import (
    Decision,
    Pair,
    Relations,
    Weighed,
    decide_changes,
    hold,
    pairs_to_judge,
)
from proxy.admit.embedding import vectors_of, with_readings
from proxy.admit.safety.filters import reject, without_personal_data
from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import Candidate, Hit, Job, MemoryFilter, Scope, Search, Stamp
from proxy.domain.errors import Conflict, EmbeddingFailed, LeaseLost
from proxy.domain.judging import Judge, Relation
from proxy.domain.ports import Embedder, MemoryStore
from proxy.telemetry import Seldom
from proxy.text.terms import terms

_SIMILAR = 12  # existing memories, per list, that a candidate is compared with
_ATTEMPTS = 16  # decisions until the stamp holds: a conflict means that another write went through
_SELDOM = Seldom()


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate needs: the store, the embedder if there is one, and what may be stored."""

    memories: MemoryStore
    embedder: Embedder | None
    min_confidence: float = 0.6
    policy: SafetyPolicy = DEFAULT
    ttl_days: Mapping[str, float] = field(default_factory=dict)  # by type; others never expire
    judge: Judge | None = None  # None: the models could not be loaded


@dataclass(frozen=True, slots=True)
class Sorted:
    """Candidates to store, those to hold for review with a reason, and counts of the dropped by reason."""

    kept: tuple[Candidate, ...]
    held: tuple[tuple[Candidate, str], ...]
    dropped: Counter[str]


def sort(
    candidates: Sequence[Candidate], doubtful: Sequence[tuple[Candidate, str]], gate: Gate, now: float
) -> Sorted:
    """Sort the candidates into stored, held and dropped; `doubtful` ones come with a reason for review. What
    is stored or held is redacted throughout, and expires as its type does."""
    kept: list[Candidate] = []
    held: list[tuple[Candidate, str]] = []
    dropped: Counter[str] = Counter()
    for candidate, doubt in (*((c, "") for c in candidates), *doubtful):
        reason = "confidence" if candidate.confidence < gate.min_confidence else None
        if reason := reason or reject(candidate, gate.policy):
            dropped[reason] += 1
            continue
        storable = _expiring(without_personal_data(candidate, gate.policy), gate.ttl_days, now)
        if not doubt:
            kept.append(storable)
        elif gate.policy.quarantine:
            held.append((storable, doubt))
        else:
            dropped[doubt] += 1
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
    doubtful: Sequence[tuple[Candidate, str]] = (),
) -> Decision:
    """Store what passes the gate, hold what is `doubtful` for review, each with a reason, and finish the job,
    in one transaction; return what was decided.

    Raises Conflict if the user forgot something since `began` (what was read may be gone: read again);
    LeaseLost, EmbeddingFailed, StoreUnavailable.
    """
    now, seed = basis.now, basis.seed
    sorted_ = await asyncio.to_thread(sort, candidates, doubtful, gate, now)  # ten candidates take some 20 ms
    holds = tuple(hold(c, reason, now=now, seed=seed) for c, reason in sorted_.held)
    vectors = await vectors_of(gate.embedder, [c.content for c in sorted_.kept])
    known: dict[Pair, Relation] = {}
    for attempt in range(1, _ATTEMPTS + 1):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != basis.began.generation:
            raise Conflict("something was forgotten since")
        weighed = await weigh(gate, scope, sorted_.kept, vectors, now)
        relations = await relate(gate, weighed, now, known)
        decision = await asyncio.to_thread(
            decide_changes, weighed, relations, scope=scope, now=now, seed=seed
        )
        changes = (*await with_readings(gate.judge, decision.changes), *holds)
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


async def weigh(
    gate: Gate, scope: Scope, candidates: Sequence[Candidate], vectors: Sequence[bytes | None], now: float
) -> list[Weighed]:
    """Return the candidates with the memories near to them."""
    return [
        Weighed(c, v, tuple(await _similar(gate, scope, c, v, now)))
        for c, v in zip(candidates, vectors, strict=True)
    ]


async def relate(
    gate: Gate, weighed: Sequence[Weighed], now: float, known: dict[Pair, Relation]
) -> Relations:
    """Return how the candidates relate to the memories near to them and to each other. The judge is asked
    once for all pairs that are not `known` yet; they are added. Without it only equal texts are the same."""
    asked = [pair for pair in pairs_to_judge(weighed, now, near=_near(gate)) if pair not in known]
    if gate.judge is None:
        if asked:
            _SELDOM.warning("memory.gate_without_judge", reason="not_loaded")
        return Relations()
    try:
        found = await gate.judge.relations(asked) if asked else []
    except EmbeddingFailed:
        _SELDOM.warning("memory.gate_without_judge", reason="EmbeddingFailed")
        return Relations()
    known.update(zip(asked, found, strict=True))
    return Relations(known)


async def _similar(
    gate: Gate, scope: Scope, candidate: Candidate, vector: bytes | None, now: float
) -> list[Hit]:
    """Return the current memories near to the candidate, and the one that it says it replaces."""
    words = terms(candidate.content)
    hits: list[Hit] = []
    if vector is not None or words:
        found = await gate.memories.search(scope, Search(vector, words, limit=_SIMILAR, now=now))
        hits += (hit for hit in found if hit.cosine is None or hit.cosine >= _near(gate))
    named = candidate.replaces
    if named and all(h.memory.id != named for h in hits):
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now)
        memory = await gate.memories.get(where, named)
        if memory is not None and memory.is_current(now) and _visible(memory.scope, scope):
            hits.append(Hit(memory, None, 0.0))
    return hits


def _near(gate: Gate) -> float:
    return gate.embedder.model.related_threshold if gate.embedder else 0.0


def _visible(memory: Scope, scope: Scope) -> bool:
    """True if a search in `scope` could return the memory (see domain.Scope)."""
    return scope.project is None or memory.project in (None, scope.project)
