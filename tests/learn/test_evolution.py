"""The background pass: order, failures, dry runs, own settings."""

import pytest

from proxy.domain.changes import NEVER, EvolutionPolicy, StepCounts, VisitLease
from proxy.domain.core import Scope
from proxy.learn.evolution import RETRY_S, Evolution

ANNA, NOW = Scope("acme", "anna"), 1_000.0


class Leases:
    """One user who is due once."""

    def __init__(self, **own):
        self.settings, self.released, self._due, self.visited = own, [], True, False

    async def claim(self, now, lease_s):
        due, self._due = self._due, False
        return VisitLease(ANNA, self.settings, 0.0, now + lease_s) if due else None

    async def lease(self, scope, now, lease_s):
        free, self.visited = not self.visited, True
        return VisitLease(scope, self.settings, 0.0, now + lease_s, only_use=True) if free else None

    async def release(self, lease, at, due_at):
        self.visited = False
        self.released.append((at, due_at))

    async def own(self, scope):
        return self.settings


class Fake:
    switch = "decay"

    def __init__(self, name, *portions, error=None):
        self.name, self.visits, self._portions, self._error = name, [], list(portions), error

    async def run(self, visit):
        self.visits.append(visit)
        if self._error:
            raise self._error
        return self._portions.pop(0)


def evolution(store, *steps, reports=None, **policy):
    report = (lambda _: None) if reports is None else reports.append
    return Evolution(store, steps, EvolutionPolicy(**policy), lambda: NOW, report=report)


async def test_steps_run_in_order_and_the_earliest_wish_makes_the_user_due():
    first = Fake("a", StepCounts({"x": ("1",)}, more=True), StepCounts({"x": ("2",)}, due_at=NOW + 9))
    second, reports, store = Fake("b", StepCounts(due_at=NOW + 5)), [], Leases()
    pass_ = evolution(store, first, second, reports=reports)
    assert await pass_.visit_next()
    assert not await pass_.visit_next()
    assert [(r.step, r.outcome, r.counts) for r in reports] == [("a", "done", {"x": 2}), ("b", "done", {})]
    assert store.released == [(NOW, NOW + 5)]


async def test_a_step_that_fails_is_tried_again_and_the_others_run():
    store, other = Leases(), Fake("b", StepCounts(due_at=NEVER))
    await evolution(store, Fake("a", error=RuntimeError()), other).visit_next()
    assert len(other.visits) == 1
    assert store.released == [(NOW, NOW + RETRY_S)]


async def test_a_user_can_switch_a_step_off_but_none_on_that_the_server_has_off():
    step = Fake("a", StepCounts())
    await evolution(Leases(decay=False), step).visit_next()
    await evolution(Leases(decay=True), step, decay=False).visit_next()
    assert step.visits == []
    await evolution(Leases(half_life_days=7), step).visit_next()
    assert step.visits[0].policy.half_life_days == 7


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_user_is_evolved_on_request_a_dry_run_by_one_portion(dry_run):
    step = Fake("a", StepCounts({"x": ("1",)}, more=True), StepCounts({"x": ("2",)}))
    done = await evolution(Leases(), step).evolve(ANNA, dry_run=dry_run)
    assert done["a"].ids == {"x": ["1"] if dry_run else ["1", "2"]}
    assert all(visit.dry_run is dry_run for visit in step.visits)
