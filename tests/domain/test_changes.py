"""Decay, computed from a memory's times."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.changes import DAY_S, EvolutionPolicy
from proxy.domain.core import Memory, Scope

POLICY = EvolutionPolicy()
MEMORY = Memory(
    id="a", scope=Scope("t", "u"), type="semantic", content="tea", source="api", created_at=0.0,
    updated_at=0.0, valid_from=0.0, importance=0.8,
)  # fmt: skip


def test_importance_halves_every_half_life_after_the_grace_days():
    ages = {0: 0.8, 30: 0.8, 120: 0.4, 210: 0.2, 300: 0.1}
    assert {day: POLICY.importance(MEMORY, day * DAY_S) for day in ages} == pytest.approx(ages)
    assert POLICY.fades_at(MEMORY) == pytest.approx(300 * DAY_S)
    used = replace(MEMORY, used_at=100 * DAY_S)
    assert POLICY.fades_at(used) == pytest.approx(400 * DAY_S)


@pytest.mark.parametrize(
    "exempt",
    [{"type": "preference"}, {"pinned": True}, {"weight": 5.1}, {"archived": True}, {"superseded_by": "b"}],
)
def test_preferences_and_core_memories_never_fade(exempt):
    assert POLICY.fades_at(replace(MEMORY, **exempt)) is None


@given(
    importance=st.floats(0, 1), half_life=st.floats(0, 1e4), grace=st.floats(0, 1e4), below=st.floats(0, 1)
)
def test_a_memory_fades_when_its_importance_falls_below_the_limit(importance, half_life, grace, below):
    policy = EvolutionPolicy(half_life_days=half_life, grace_days=grace, forget_below=below)
    memory = replace(MEMORY, importance=importance)
    fades_at = policy.fades_at(memory)
    if fades_at is None:
        assert not half_life or not below or policy.importance(memory, 1e12) >= 0
        assert half_life or policy.importance(memory, 1e15) == importance
    else:
        assert fades_at >= grace * DAY_S
        assert policy.importance(memory, fades_at + 1) <= below * (1 + 1e-6)
