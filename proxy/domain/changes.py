"""How memories change: by a writer, by what is derived from them, and over time. Values, policy and ports.

Decay: importance halves every `half_life_days`, counted from `grace_days` after the memory was last stated,
corrected, recalled or used. It is computed from these times, never stored: a clock that is set back gives the
old value again. Below `forget_below` the memory is archived. Archived memories can be restored.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

from proxy.domain.core import Candidate, Evidence, Memory, Scope


# ---------------------------------------------------------------- changes of memories
@dataclass(frozen=True, slots=True)
class Create:
    """Store a new memory. Without a `vector` only lexical search finds it.

    An imported memory brings its `history`, which replaces the event "created". If another user of the tenant
    has its id, it gets a new one (see own_id)."""

    memory: Memory
    vector: bytes | None
    history: tuple["Event", ...] = ()
    reading: bytes | None = field(default=None, repr=False)  # see ports.Judge.readings


@dataclass(frozen=True, slots=True)
class Supersede:
    """Store `memory` and close `old_id`, which stays readable in the history and is no longer current."""

    old_id: str
    memory: Memory
    vector: bytes | None
    reading: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """The same fact was stated again: refresh `updated_at`, use the higher confidence, add the evidence, and
    move its expiry, if it has one, to `expires_at` if that is later."""

    id: str
    at: float
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Correct a memory by hand, under its own id: the old content is moved to the history."""

    memory: Memory
    vector: bytes | None
    reading: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Hold:
    """Put a doubtful candidate into quarantine, until its owner accepts it."""

    id: str
    candidate: Candidate
    reason: str  # a constant word
    at: float


@dataclass(frozen=True, slots=True)
class Release:
    """Take a candidate out of quarantine; accepting it is a change of its own."""

    id: str


@dataclass(frozen=True, slots=True)
class Archive:
    """Hide memories from search and lists. `by`: "user", or what did it: "use", "decay", "consolidation" …"""

    ids: tuple[str, ...]
    at: float
    by: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Undo an Archive. Raises NotFound, or Duplicate if another current memory says the same."""

    id: str
    at: float
    by: str = "user"


@dataclass(frozen=True, slots=True)
class Pin:
    """Pin a memory, or remove its pin. Raises NotFound."""

    id: str
    pinned: bool
    at: float


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Store `memory` in the place of current memories, which stay in the history; nothing if one of them is
    no longer current, or if another memory says the same. Its other `sources` stay as they are."""

    old_ids: tuple[str, ...]
    memory: Memory
    vector: bytes | None
    reading: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Undo:
    """Delete a consolidated memory and make its sources current again, for good. Raises NotFound."""

    id: str
    at: float


@dataclass(frozen=True, slots=True)
class Close:
    """Supersede a current memory by another current one; nothing if either is not current."""

    id: str
    by_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Flag:
    """Note that two current memories cannot both hold; nothing if it is noted already."""

    older_id: str
    newer_id: str
    score: float  # how likely it is that both cannot hold
    at: float


@dataclass(frozen=True, slots=True)
class Settle:
    """Remove a noted contradiction: its user has decided on it."""

    id: str


@dataclass(frozen=True, slots=True)
class Review:
    """Note that a background step has considered these memories, and all up to the version `upto`."""

    step: str
    ids: tuple[str, ...]
    at: float
    upto: int | None = None
    batch: str = ""  # equal for what was considered by one LLM call


Derived = Consolidate | Undo | Close | Flag | Settle | Review
Change = Create | Supersede | Confirm | Edit | Hold | Release | Archive | Restore | Pin | Derived


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    action: str  # "created" | "confirmed" | "superseded" | "updated" | "archived" | "restored" | "pinned" | …
    by: str  # the memory's source, the id of what superseded it, or what archived it (see Archive)
    content: str


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One change of a user's memories. `became`: the content after it, if it changed that; of a superseded
    memory, that of its successor. `id` is stable, and a cursor."""

    id: str
    memory_id: str
    type: str
    project: str | None
    event: Event
    became: str | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of `MemoryStore.apply`: ids of new memories that the quota refused, how many old ones were
    evicted, and ids of new memories that were dropped as duplicates."""

    refused: tuple[str, ...] = ()
    evicted: int = 0
    dropped: tuple[str, ...] = ()


# ---------------------------------------------------------------- policy
DAY_S = 86_400.0
FADED_BY = ("use", "decay")
"""What archives a memory for lack of use. It is still searched, and current again if used or restated."""
NEVER = 1e15  # Unix seconds: after every date


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionPolicy:
    """The settings of section `evolution`, with a user's own in their place. A half-life of 0: no decay."""

    enabled: bool = True
    use: bool = True
    decay: bool = True
    consolidate: bool = True
    consolidate_from: int = 3
    reflect: bool = True
    contradictions: bool = True
    calls_per_user_hour: int = 6
    links: bool = False
    use_gain: float = 0.5
    unused_loss: float = 0.3
    archive_below: float = 0.3
    core_above: float = 5.0
    half_life_days: float = 90.0
    half_life_days_by_type: Mapping[str, float] = field(default_factory=lambda: {"episodic": 30.0})
    grace_days: float = 30.0
    forget_below: float = 0.1
    exempt_types: tuple[str, ...] = ("preference",)

    def with_own(self, own: Mapping[str, Any]) -> "EvolutionPolicy":
        """Return the policy for a user with these settings. A user can switch a part off, and none on that
        the server's settings switch off."""
        known = {each.name for each in fields(self)}
        merged = {name: value for name, value in own.items() if name in known}
        for name, value in merged.items():
            if isinstance(value, bool):
                merged[name] = value and getattr(self, name)
        if "exempt_types" in merged:
            merged["exempt_types"] = tuple(merged["exempt_types"])
        return replace(self, **merged)

    @property
    def digest(self) -> str:
        """What is equal for equal policies."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def is_core(self, memory: Memory) -> bool:
        """True for a memory that belongs to the profile: pinned, or used often."""
        return memory.pinned or memory.weight > self.core_above

    def importance(self, memory: Memory, now: float) -> float:
        """Return the memory's importance, decayed to `now`."""
        half_life_s = self._half_life_s(memory)
        rested_s = now - active_at(memory) - self.grace_days * DAY_S
        if not half_life_s or rested_s <= 0:
            return memory.importance
        return float(memory.importance * 0.5 ** (rested_s / half_life_s))

    def fades_at(self, memory: Memory) -> float | None:
        """Return when the memory's importance falls below `forget_below`; None: never."""
        half_life_s = self._half_life_s(memory)
        if not half_life_s or self.forget_below <= 0 or memory.archived or memory.superseded_by:
            return None
        halvings = math.log2(max(memory.importance, 1e-9) / self.forget_below)
        at = active_at(memory) + self.grace_days * DAY_S + max(0.0, halvings) * half_life_s
        return at if at < NEVER else None

    def _half_life_s(self, memory: Memory) -> float:
        """Return the half-life in seconds; 0 for a memory that does not decay."""
        if not (self.enabled and self.decay) or memory.type in self.exempt_types or self.is_core(memory):
            return 0.0
        return self.half_life_days_by_type.get(memory.type, self.half_life_days) * DAY_S


def active_at(memory: Memory) -> float:
    return max(memory.updated_at, memory.used_at or 0.0, memory.last_accessed or 0.0)


# ---------------------------------------------------------------- the background pass
@dataclass(frozen=True, slots=True)
class Visit:
    """One user's turn in the background pass. A dry run changes nothing."""

    scope: Scope  # of no project: all of the user's memories
    now: float
    policy: EvolutionPolicy
    last_at: float = 0.0  # of the user's last visit
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step did, or would do, for one user: ids of memories by action, such as "archived".

    `due_at`: when the step wants to run again if nothing changes before. `more`: it stopped after a portion
    and continues at once."""

    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    due_at: float = NEVER
    more: bool = False


class Step(Protocol):
    """One part of the background pass. It may run again after a crash: its changes must be idempotent."""

    @property
    def name(self) -> str: ...

    @property
    def switch(self) -> str:
        """The field of EvolutionPolicy that switches it on."""

    async def run(self, visit: Visit) -> StepCounts:
        """Do a portion of the work for one user. Raises StoreError, EmbeddingFailed, CompletionFailed."""


# ---------------------------------------------------------------- ports
@dataclass(frozen=True, slots=True)
class VisitLease:
    """A user whose visit is due, leased until `leased_until`. `only_use`: only answers are to be judged."""

    scope: Scope
    own: Mapping[str, Any]  # the user's own settings
    last_at: float
    leased_until: float
    only_use: bool = False


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that an answer was given with, and its vector if it is the current model's."""

    memory: Memory
    vector: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AnsweredExchange:
    """An exchange whose answer was given with memories, not judged yet."""

    seq: int
    scope: Scope
    said: str
    answer: str
    at: float
    shown: tuple[ShownMemory, ...]


@dataclass(frozen=True, slots=True)
class UseVerdict:
    """Which memories an answer used, by id; `spared`: those that lose nothing if they were not used."""

    used: frozenset[str]
    spared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DayCounts:
    """What happened to a user's memories on one day (UTC); `used`: uses in answers."""

    date: str
    added: int = 0
    superseded: int = 0
    archived: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Insights:
    """A user's memories in numbers. `used`, `unused`: uses and non-uses in answers, in the days that were
    asked for. `fading`: those that fade next, about in order."""

    active: int
    archived: int
    core: int
    pinned: int
    by_type: Mapping[str, int]
    used: int
    unused: int
    by_day: Sequence[DayCounts]
    fading: Sequence[Memory]


class UserPolicies(Protocol):
    """Users' own settings of section `evolution`."""

    async def own(self, scope: Scope) -> Mapping[str, Any]:
        """Return the user's own settings; {} for none."""

    async def set_own(self, scope: Scope, own: Mapping[str, Any], at: float) -> None:
        """Replace the user's own settings, durable on return; the user is due at `at`."""


class EvolutionStore(UserPolicies, Protocol):
    """Which users are due, and what use and time change. Methods may raise StoreUnavailable."""

    async def claim(self, now: float, lease_s: float) -> VisitLease | None:
        """Lease the user who has been due the longest, else one with answers to judge; one process at a time
        has a user."""

    async def lease(self, scope: Scope, now: float, lease_s: float) -> VisitLease | None:
        """Lease this user, due or not; None while another visit has the user. `release` with NEVER leaves
        when the user is due as it was."""

    async def release(self, lease: VisitLease, at: float, due_at: float) -> None:
        """End the visit made at `at`; the next one is due at `due_at`, or earlier if memories changed."""

    async def answered(self, scope: Scope, limit: int) -> Sequence[AnsweredExchange]:
        """Return up to `limit` of the user's exchanges whose answers are to be judged, oldest first."""

    async def record_use(
        self, exchange: AnsweredExchange, verdict: UseVerdict | None, policy: EvolutionPolicy, at: float
    ) -> Mapping[str, Sequence[str]]:
        """Change the weights once per exchange, however often it is called; archive what falls below
        `archive_below`, and restore an archived memory that was used. Returns ids by action: "used",
        "unused", "archived", "restored"; {} for an exchange that was judged or forgotten. None: it is settled
        without a judgement."""

    async def fade(self, visit: Visit, limit: int) -> StepCounts:
        """Archive memories that have decayed, and compute when others will: a portion of about `limit`."""

    async def insights(self, scope: Scope, now: float, days: int) -> Insights:
        """Return the user's memories in numbers, or those of the scope's project."""


# ---------------------------------------------------------------- what is derived
@dataclass(frozen=True, slots=True)
class Due:
    """Current memories that a step has not considered, in the order of their changes, with their vectors by
    id. Once these are reviewed, all up to the version `upto` are."""

    memories: tuple[Memory, ...]
    vectors: Mapping[str, bytes | None]
    upto: int | None


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two current memories of a user that cannot both hold, where neither is certain."""

    id: str
    older: Memory
    newer: Memory
    score: float
    found_at: float


class DerivationStore(Protocol):
    """What background steps have still to consider, and what they found. Results are written through
    MemoryStore.apply. Methods may raise StoreUnavailable."""

    async def due(self, scope: Scope, step: str, *, limit: int, now: float) -> Due:
        """Return up to `limit` current memories that the step has not considered."""

    async def batches(self, scope: Scope, step: str, since: float) -> int:
        """Return how many batches the step has considered since a time."""

    async def undone(self, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        """Return those of the memories whose consolidation was undone."""

    async def superseded(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Memory]:
        """Return up to `limit` memories that these have superseded, and what those had, the latest first."""

    async def outdated(self, scope: Scope) -> Sequence[str]:
        """Return the current reflective memories with a source that was superseded by another fact, or is
        archived."""

    async def contradictions(
        self, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[Contradiction]:
        """Return up to `limit` contradictions of the user, newest first. Raises NotFound for an unknown
        `after`."""

    async def contradiction(self, scope: Scope, id: str) -> Contradiction | None:
        """Return one; None if it is absent, settled or another user's."""
