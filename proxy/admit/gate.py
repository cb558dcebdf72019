"""The write gate: candidates are checked, compared with what is stored, and applied in one transaction.

`admit` reads under a stamp, decides, and applies under the same stamp; if another write came first, it
starts again. So two sessions of one user lose no update and store no fact twice. With a memory's text are
stored its vector (none in a language that the model does not understand) and its reading for the relevance
head.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeGuard

from proxy import telemetry
from proxy.admit.decision import Decision, Pair, Relations, Weighed, decide_changes, hold, pairs_to_judge
from proxy.admit.safety import DEFAULT, SafetyPolicy, reject, without_personal_data
from proxy.domain.changes import Change, Consolidate, Create, Edit, Supersede
from proxy.domain.core import Candidate, Hit, MemoryFilter, Scope, Search, Stamp
from proxy.domain.errors import Conflict, EmbeddingFailed, LeaseLost
from proxy.domain.ports import Embedder, Judge, MemoryStore, Relation
from proxy.domain.session import Job
from proxy.telemetry import ThrottledLog
from proxy.text.words import terms

# ---------------------------------------------------------------- vectors and readings
FEWEST = 20  # texts, before their languages say something
REMIND_S = 3_600.0
_REMEDY = "scripts/install multilingual, and embedding.model (docs/memory.md)"


class LanguageCounter:
    """Counts the texts that this process stores, and those that the model does not read: they are found by
    words only. The log says so once an hour if that is most of them."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.texts, self.unread = 0, 0
        self._steady, self._logged_at = steady, float("-inf")

    def note(self, understood: Sequence[bool]) -> None:
        """Count the texts."""
        self.texts += len(understood)
        self.unread += len(understood) - sum(understood)
        is_due = self._steady() - self._logged_at >= REMIND_S
        if is_due and self.texts >= FEWEST and self.unread > self.texts / 2:
            self._logged_at = self._steady()
            facts = {"texts": self.texts, "unread": self.unread, "remedy": _REMEDY}
            telemetry.log.warning("embedding.language_not_read", **facts)


LANGUAGES = LanguageCounter()


async def vector_of(embedder: Embedder | None, content: str) -> bytes | None:
    """Return the vector of one content, as `vectors_of` does."""
    return (await vectors_of(embedder, [content]))[0]


async def vectors_of(embedder: Embedder | None, contents: Sequence[str]) -> list[bytes | None]:
    """Return the vector of each content, None for those that the embedder does not understand, and for all
    without an embedder. Does not block the event loop."""
    if embedder is None or not contents:
        return [None] * len(contents)
    understood = await asyncio.to_thread(lambda: [embedder.understands(c) for c in contents])
    LANGUAGES.note(understood)
    texts = [c for c, known in zip(contents, understood, strict=True) if known]
    vectors = iter(await embedder.embed(texts) if texts else ())
    return [next(vectors) if known else None for known in understood]


async def with_readings(judge: Judge | None, changes: Sequence[Change]) -> list[Change]:
    """Return the changes with the readings of their contents; without them if the judge fails: the first
    message that finds the memory reads it."""
    contents = [change.memory.content for change in changes if _stores(change)]
    if judge is None or not contents:
        return list(changes)
    try:
        readings = iter(await judge.readings(contents))
    except EmbeddingFailed:
        return list(changes)
    return [replace(change, reading=next(readings)) if _stores(change) else change for change in changes]


def _stores(change: Change) -> TypeGuard[Create | Supersede | Edit | Consolidate]:
    """True if the change stores a content; an edit without a vector changes none."""
    return isinstance(change, Create | Supersede | Edit | Consolidate) and not (
        isinstance(change, Edit) and change.vector is None
    )


# ---------------------------------------------------------------- admission
_SIMILAR = 12  # existing memories, per list, that a candidate is compared with
_ATTEMPTS = 16  # decisions until the stamp holds: a conflict means that another write went through
_LOG = ThrottledLog()


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

    stored: tuple[Candidate, ...] = ()
    held: tuple[tuple[Candidate, str], ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)


def sort(
    candidates: Sequence[Candidate], doubtful: Sequence[tuple[Candidate, str]], gate: Gate, now: float
) -> Sorted:
    """Sort the candidates; `doubtful` ones come with a reason for review. What is stored or held is redacted
    throughout, and expires as its type does."""
    stored, held = list[Candidate](), list[tuple[Candidate, str]]()
    dropped: Counter[str] = Counter()
    for candidate, doubt in (*((c, "") for c in candidates), *doubtful):
        reason = "confidence" if candidate.confidence < gate.min_confidence else None
        if reason := reason or reject(candidate, gate.policy):
            dropped[reason] += 1
            continue
        storable, days = without_personal_data(candidate, gate.policy), gate.ttl_days.get(candidate.type)
        if candidate.expires_at is None and days is not None:
            storable = replace(storable, expires_at=now + days * 86_400)
        if not doubt:
            stored.append(storable)
        elif gate.policy.quarantine:
            held.append((storable, doubt))
        else:
            dropped[doubt] += 1
    return Sorted(tuple(stored), tuple(held), dropped)


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

    Raises Conflict if the user forgot something since `began` (the candidates may rest on it: read again);
    LeaseLost, EmbeddingFailed, StoreUnavailable.
    """
    now, seed = basis.now, basis.seed
    sorted_ = await asyncio.to_thread(sort, candidates, doubtful, gate, now)  # ten candidates take some 20 ms
    holds = tuple(hold(c, reason, now=now, seed=seed) for c, reason in sorted_.held)
    vectors = await vectors_of(gate.embedder, [c.content for c in sorted_.stored])
    known: dict[Pair, Relation] = {}
    for attempt in range(1, _ATTEMPTS + 1):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != basis.began.generation:
            raise Conflict("something was forgotten since")
        weighed = await weigh(gate, scope, sorted_.stored, vectors, now)
        relations = await relate(gate, weighed, now, known)
        decide = partial(decide_changes, scope=scope, now=now, seed=seed)
        decision = await asyncio.to_thread(decide, weighed, relations)
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
    """Return the candidates, each with the memories near to it and the one that it says it replaces. Those
    that lack of use has archived are among them: restated they are current again, changed they must not come
    back."""
    weighed = list[Weighed]()
    for candidate, vector in zip(candidates, vectors, strict=True):
        words, hits = terms(candidate.content), list[Hit]()
        if vector is not None or words:
            search = Search(vector, words, limit=_SIMILAR, now=now)
            found = [*await gate.memories.search(scope, search)]
            known = {hit.memory.id for hit in found}
            faded = await gate.memories.search(scope, replace(search, faded=True))
            found += (hit for hit in faded if hit.memory.id not in known)
            hits += (hit for hit in found if hit.cosine is None or hit.cosine >= _near(gate))
        named = candidate.replaces
        if named and all(hit.memory.id != named for hit in hits):
            where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now)
            memory = await gate.memories.get(where, named)
            # What a search in the scope could return (see domain.Scope).
            if (
                memory is not None
                and memory.is_current(now)
                and (scope.project is None or memory.scope.project in (None, scope.project))
            ):
                hits.append(Hit(memory, None, 0.0))
        weighed.append(Weighed(candidate, vector, tuple(hits)))
    return weighed


async def relate(
    gate: Gate, weighed: Sequence[Weighed], now: float, known: dict[Pair, Relation]
) -> Relations:
    """Return how the candidates relate to the memories near to them and to each other. The judge is asked
    once for all pairs that are not `known` yet; they are added. Without it only equal texts are the same."""
    asked = [pair for pair in pairs_to_judge(weighed, now, near=_near(gate)) if pair not in known]
    if gate.judge is None:
        if asked:
            _LOG.warning("memory.gate_without_judge", reason="not_loaded")
        return Relations()
    try:
        found = await gate.judge.relations(asked) if asked else []
    except EmbeddingFailed:
        _LOG.warning("memory.gate_without_judge", reason="EmbeddingFailed")
        return Relations()
    known.update(zip(asked, found, strict=True))
    return Relations(known)


def _near(gate: Gate) -> float:
    return gate.embedder.model.related_threshold if gate.embedder else 0.0
