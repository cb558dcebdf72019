"""The background pass in which memories change over time, one due user after the other.

A user is due some time after memories changed, or when a step asked for it. The user is leased, so that of
several processes one does the work, and the steps run in their order. Each does a portion at a time and lets
turns go first. A step that fails is logged and tried again later; the others run. After a crash the user is
due again once the lease has ended.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from proxy.domain.changes import (
    NEVER,
    EvolutionPolicy,
    EvolutionStore,
    Step,
    StepCounts,
    Visit,
    VisitLease,
)
from proxy.domain.core import Scope
from proxy.domain.errors import CompletionFailed, Conflict, EmbeddingFailed, StoreError, StoreUnavailable
from proxy.domain.limits import TurnPriority
from proxy.domain.ports import Clock
from proxy.telemetry import ThrottledLog, log

POLL_S = 5.0
LEASE_S = 300.0
RETRY_S = 600.0  # after a step has failed
USE = "use"  # the step that judges answers
_ATTEMPTS, _AGAIN_S = 100, 0.1  # to lease a user who is visited
_MOST_PORTIONS = 100  # of a step in one visit; then other users come first


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step's outcome for one user; `outcome`: "done" or "failed"."""

    step: str
    outcome: str
    seconds: float
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Evolution:
    """The pass. `report` is called after each step, except in a dry run."""

    store: EvolutionStore
    steps: Sequence[Step]
    policy: EvolutionPolicy  # of the server
    clock: Clock
    turns: TurnPriority = field(default_factory=TurnPriority)
    report: Callable[[StepReport], None] = lambda report: None
    _seldom: ThrottledLog = field(default_factory=ThrottledLog)

    async def run(self) -> None:
        """Visit due users until cancelled."""
        while self.policy.enabled:
            try:
                if await self.visit_next():
                    continue
            except StoreUnavailable:  # logged by the store
                pass
            except Exception as e:  # noqa: BLE001 a failed visit must not end the loop
                self._seldom.error("evolution.visit_failed", error=type(e).__name__)
            await asyncio.sleep(POLL_S)

    async def visit_next(self) -> bool:
        """Visit the next user that is due; False if none is. Raises StoreError."""
        now = self.clock()
        lease = await self.store.claim(now, LEASE_S)
        if lease is None:
            return False
        visit = Visit(lease.scope, now, self.policy.with_own(lease.own), lease.last_at)
        if lease.only_use:
            # It settles what waits for it even if it is switched off. If it fails, the lease is the pause.
            steps = [step for step in self.steps if step.name == USE]
            if await self._visit(visit, steps) <= now + RETRY_S:
                return True
            await self.store.release(lease, lease.last_at, NEVER)
            return True
        due_at = now
        try:
            due_at = await self._visit(visit, self._steps(visit.policy))
        finally:
            with suppress(StoreError):  # if it cannot be released, the lease ends by itself
                await self.store.release(lease, now, due_at)
        return True

    async def policy_of(self, scope: Scope) -> EvolutionPolicy:
        """Return the policy for a user. Raises StoreUnavailable."""
        return self.policy.with_own(await self.store.own(scope))

    async def evolve(self, scope: Scope, *, dry_run: bool) -> Mapping[str, StepCounts | None]:
        """Run every step for one user now; return by step what it did, or would do, a portion in a dry run;
        None if a model failed. Raises StoreError, Conflict if another visit does not end soon."""
        user = Scope(scope.tenant, scope.user)
        lease = None if dry_run else await self._lease(user)
        try:
            policy = await self.policy_of(user)
            visit = Visit(user, self.clock(), policy, dry_run=dry_run)
            done: dict[str, StepCounts | None] = {}
            for step in self._steps(policy):
                try:
                    done[step.name] = await self._completed(step, visit)
                except (EmbeddingFailed, CompletionFailed):
                    done[step.name] = None
            return done
        finally:
            if lease is not None:
                with suppress(StoreError):
                    await self.store.release(lease, lease.last_at, NEVER)

    async def _lease(self, user: Scope) -> VisitLease:
        """Wait until no other visit has the user: two at once would ask the models twice."""
        for _ in range(_ATTEMPTS):
            if (lease := await self.store.lease(user, self.clock(), LEASE_S)) is not None:
                return lease
            await asyncio.sleep(_AGAIN_S)
        raise Conflict("another visit has the user")

    def _steps(self, policy: EvolutionPolicy) -> Sequence[Step]:
        return [step for step in self.steps if policy.enabled and step.is_on(policy)]

    async def _visit(self, visit: Visit, steps: Sequence[Step]) -> float:
        """Run the steps; return when the user is due again."""
        due_at = NEVER
        for step in steps:
            began, outcome, counts = time.perf_counter(), "done", StepCounts(due_at=visit.now + RETRY_S)
            try:
                counts = await self._completed(step, visit)
            except Exception as e:  # noqa: BLE001 a failed step must not keep the others from running
                outcome = "failed"
                self._seldom.warning("evolution.step_failed", step=step.name, error=type(e).__name__)
            due_at = min(due_at, counts.due_at, visit.now if counts.more else NEVER)
            did = {action: len(ids) for action, ids in counts.ids.items() if ids}
            if did:
                log.info("memory.evolved", step=step.name, **did)
            self.report(StepReport(step.name, outcome, time.perf_counter() - began, did))
        return due_at

    async def _completed(self, step: Step, visit: Visit) -> StepCounts:
        """Run the step until nothing is left, or for a number of portions."""
        total: dict[str, list[str]] = {}
        for _ in range(_MOST_PORTIONS):
            await self.turns.pause()
            counts = await step.run(visit)
            for action, ids in counts.ids.items():
                total.setdefault(action, []).extend(ids)
            if visit.dry_run or not counts.more:
                break
        return StepCounts(total, counts.due_at, counts.more)


@dataclass(frozen=True, slots=True)
class DecayStep:
    """Archives what has decayed. It runs without decay, too: then it computes that nothing does."""

    store: EvolutionStore
    portion: int = 200  # memories in one transaction, about 10 ms
    name: str = "decay"

    def is_on(self, policy: EvolutionPolicy) -> bool:
        """See Step."""
        return policy.enabled

    async def run(self, visit: Visit) -> StepCounts:
        """See Step."""
        return await self.store.fade(visit, self.portion)
