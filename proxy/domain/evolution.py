"""How memories change over time: the policy, what follows from it for one memory, and the ports. No I/O.

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

from proxy.domain.core import Memory, Scope

DAY_S = 86_400.0
FADED_BY = ("use", "decay")
"""What archives a memory for lack of use. It is still searched, and current again if used or restated."""
NEVER = 1e15  # Unix seconds: after every date


# ---------------------------------------------------------------- policy
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
    """Return when the memory was last stated, corrected, recalled or used."""
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
    def name(self) -> str:
        """A name for logs and metrics."""
        ...

    def is_on(self, policy: EvolutionPolicy) -> bool:
        """False if the policy switches it off."""
        ...

    async def run(self, visit: Visit) -> StepCounts:
        """Do a portion of the work for one user. Raises StoreError, EmbeddingFailed, CompletionFailed."""
        ...


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


class EvolutionStore(Protocol):
    """Which users are due, their own settings, and what use and time change. Methods may raise
    StoreUnavailable."""

    async def claim(self, now: float, lease_s: float) -> VisitLease | None:
        """Lease the user who has been due the longest, else one with answers to judge; one process at a time
        has a user."""
        ...

    async def lease(self, scope: Scope, now: float, lease_s: float) -> VisitLease | None:
        """Lease this user, due or not; None while another visit has the user. `release` with NEVER leaves
        when the user is due as it was."""
        ...

    async def release(self, lease: VisitLease, at: float, due_at: float) -> None:
        """End the visit made at `at`; the next one is due at `due_at`, or earlier if memories changed."""
        ...

    async def own(self, scope: Scope) -> Mapping[str, Any]:
        """Return the user's own settings; {} for none."""
        ...

    async def set_own(self, scope: Scope, own: Mapping[str, Any], at: float) -> None:
        """Replace the user's own settings, durable on return; the user is due at `at`."""
        ...

    async def answered(self, scope: Scope, limit: int) -> Sequence[AnsweredExchange]:
        """Return up to `limit` of the user's exchanges whose answers are to be judged, oldest first."""
        ...

    async def record_use(
        self, exchange: AnsweredExchange, verdict: UseVerdict | None, policy: EvolutionPolicy, at: float
    ) -> Mapping[str, Sequence[str]]:
        """Change the weights once per exchange, however often it is called; archive what falls below
        `archive_below`, and restore an archived memory that was used. Returns ids by action: "used",
        "unused", "archived", "restored"; {} for an exchange that was judged or forgotten. None: it is settled
        without a judgement."""
        ...

    async def fade(self, visit: Visit, limit: int) -> StepCounts:
        """Archive memories that have decayed, and compute when others will: a portion of about `limit`."""
        ...

    async def insights(self, scope: Scope, now: float, days: int) -> Insights:
        """Return the user's memories in numbers, or those of the scope's project."""
        ...
