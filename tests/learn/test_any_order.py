"""In any order and in any batches, the same facts end as the same current memories."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.admit.gate import Basis, Gate, admit
from proxy.domain.core import Candidate, Evidence, Memory, MemoryFilter, Scope
from proxy.domain.ports import Relation
from proxy.storage.sqlite import SqliteStores
from tests.learn.support import NOON
from tests.support.embedder import MODEL, ScriptedEmbedder
from tests.support.examples import examples
from tests.support.judge import APART, CHANGED, SAME, ScriptedJudge

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)

# Facts with one value at a time, in two wordings each.
SLOTS = {
    "home": ("User lives in {}", "The user's home is in {}"),
    "manager": ("User's manager is {}", "{} is the user's manager"),
    "budget": ("User's budget for the Porto trip is {}", "The user's budget for the Porto trip is {}"),
    "launch": ("Lantern's launch is on {}", "The launch of Lantern is on {}"),
}
VALUES = {
    "home": ("Ghent", "Leeds", "Porto"),
    "manager": ("Olga", "Daniel", "Priya"),
    "budget": ("$4,000", "$5,500", "$6,200"),
    "launch": ("3 May 2026", "9 June 2026", "1 July 2026"),
}
# Facts that hold side by side.
INDEPENDENT = (
    "User has a cat named Miso",
    "User has a cat named Tofu",
    "User speaks Danish",
    "User speaks Polish",
)

KNOWN = {
    wording.format(v): (slot, v) for slot, both in SLOTS.items() for wording in both for v in VALUES[slot]
}


def relation(old: str, new: str) -> Relation:
    """Return the verdict of a judge that is always right."""
    if old not in KNOWN or new not in KNOWN or KNOWN[old][0] != KNOWN[new][0]:
        return APART
    return SAME if KNOWN[old] == KNOWN[new] else CHANGED


@dataclass(frozen=True)
class Statement:
    slot: str
    value: str
    wording: int
    at: float

    @property
    def content(self) -> str:
        return SLOTS[self.slot][self.wording].format(self.value) if self.slot in SLOTS else self.value

    def candidate(self) -> Candidate:
        origin = Evidence(f"s-{self.at}", f"ex_{self.at}")
        return Candidate(type="semantic", content=self.content, observed_at=self.at, origin=origin)


statements = st.one_of(
    st.sampled_from(sorted(SLOTS)).flatmap(
        lambda slot: st.tuples(st.just(slot), st.sampled_from(VALUES[slot]), st.sampled_from((0, 1)))
    ),
    st.sampled_from(INDEPENDENT).map(lambda fact: ("independent", fact, 0)),
)
conversations = st.lists(statements, min_size=1, max_size=7).map(
    lambda said: [Statement(*one, at=NOON + 60.0 * i) for i, one in enumerate(said)]
)


@pytest.fixture(scope="module")
def admitted(tmp_path_factory):
    """Return a function that admits batches for a new user and returns the current and all memories."""
    with asyncio.Runner() as runner:
        stores = SqliteStores(tmp_path_factory.mktemp("any-order"))
        runner.run(stores.open())
        runner.run(stores.memories.stamp_model(MODEL))
        gate = Gate(stores.memories, ScriptedEmbedder(), judge=ScriptedJudge(relation=relation))
        users = count()

        async def admit_all(batches, at_once):
            scope = Scope("t", f"user-{next(users)}")
            began = await stores.memories.stamp(scope)
            jobs = [
                admit(gate, scope, [s.candidate() for s in b], Basis(began, NOON + 9000, seed=str(i)))
                for i, b in enumerate(batches)
            ]
            if at_once:
                await asyncio.gather(*jobs)
            else:
                for job in jobs:
                    await job
            where = MemoryFilter(tenant="t", user=scope.user, include_inactive=True, now=NOON + 9000)
            page = await stores.memories.list(where, limit=100)
            return [m for m in page.items if m.is_current(NOON + 9000)], list(page.items)

        yield lambda batches, at_once=False: runner.run(admit_all(batches, at_once))
        runner.run(stores.close())


def contents(memories: Sequence[Memory]) -> list[str]:
    return sorted(m.content for m in memories)


def expected(said: Sequence[Statement]) -> set[tuple[str, str]]:
    """Return what holds in the end: the last value of each slot, and all independent facts."""
    last = {s.slot if s.slot in SLOTS else s.value: s for s in said}
    return {(s.slot, s.value) for s in last.values()}


def stated(memories: Sequence[Memory]) -> set[tuple[str, str]]:
    return {KNOWN.get(m.content, ("independent", m.content)) for m in memories}


def assert_one_value_at_a_time(values: Sequence[Memory]) -> None:
    held = sorted((m.valid_from, m.valid_to or float("inf")) for m in values)
    assert all(begin <= end for begin, end in held)
    held = [(begin, end) for begin, end in held if begin < end]  # the rest never held
    assert all(end <= begin for (_, end), (begin, _) in pairwise(held))


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck), phases=PHASES)
@given(conversations, st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing_and_no_two_values_hold_at_once(admitted, said, random):
    for order in (said, random.sample(said, len(said))):
        current, everything = admitted([[s] for s in order])
        assert stated(current) == expected(said)
        assert len(current) == len(expected(said))
        for slot in SLOTS:
            assert_one_value_at_a_time([m for m in everything if any(s == slot for s, _ in stated([m]))])


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck), phases=PHASES)
@given(conversations)
def test_a_replay_and_two_clients_at_once_add_nothing(admitted, said):
    once, _ = admitted([said])
    twice, _ = admitted([said, said])
    together, _ = admitted([said, said, said[::-1]], at_once=True)
    assert contents(once) == contents(twice)
    assert stated(once) == stated(together)
    assert len(once) == len(together)
