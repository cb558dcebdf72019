"""Whatever the order, the batches and the company in which facts arrive, the same memories are current."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.admit.gate import Basis, Gate, admit
from proxy.domain.core import Candidate, Evidence, Memory, MemoryFilter
from proxy.domain.judging import Relation
from proxy.storage.sqlite.stores import SqliteStores
from tests.learn.support import ANA, NOON, AllAlike
from tests.support.examples import examples
from tests.support.judge import APART, CHANGED, SAME, ScriptedJudge

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)

# What has one value at a time, in two wordings each.
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
# What holds side by side.
BESIDE = (
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
    st.sampled_from(BESIDE).map(lambda fact: ("beside", fact, 0)),
)
conversations = st.lists(statements, min_size=1, max_size=7).map(
    lambda said: [Statement(*one, at=NOON + 60.0 * i) for i, one in enumerate(said)]
)


def _candidate(said: Statement | Candidate) -> Candidate:
    return said if isinstance(said, Candidate) else said.candidate()


async def _remember(
    batches: Sequence[Sequence[Statement | Candidate]], *, at_once: bool = False
) -> tuple[list[Memory], list[Memory]]:
    """Return what is current, and everything, once the batches were admitted one after the other."""
    with tempfile.TemporaryDirectory() as directory:
        stores = SqliteStores(Path(directory) / "data")
        await stores.open()
        await stores.memories.stamp_model(AllAlike.model)
        gate = Gate(stores.memories, AllAlike(), judge=ScriptedJudge(relation=relation))
        began = await stores.memories.stamp(ANA)
        jobs = [
            admit(gate, ANA, [_candidate(s) for s in b], Basis(began, NOON + 9000, seed=str(i)))
            for i, b in enumerate(batches)
        ]
        if at_once:
            await asyncio.gather(*jobs)
        else:
            for job in jobs:
                await job
        where = MemoryFilter(tenant=ANA.tenant, user=ANA.user, include_inactive=True, now=NOON + 9000)
        page = await stores.memories.list(where, limit=100)
        await stores.close()
    return [m for m in page.items if m.is_current(NOON + 9000)], list(page.items)


def contents(memories: Sequence[Memory]) -> list[str]:
    return sorted(m.content for m in memories)


def told_in_order(said: Sequence[Statement]) -> set[tuple[str, str]]:
    """Return what holds in the end: the last value of each slot, and all that holds side by side."""
    last = {s.slot if s.slot in SLOTS else s.value: s for s in said}
    return {(s.slot, s.value) for s in last.values()}


def stated(memories: Sequence[Memory]) -> set[tuple[str, str]]:
    return {KNOWN.get(m.content, ("beside", m.content)) for m in memories}


def assert_one_value_at_a_time(values: Sequence[Memory]) -> None:
    held = sorted((m.valid_from, m.valid_to or float("inf")) for m in values)
    assert all(begin <= end for begin, end in held)
    held = [(begin, end) for begin, end in held if begin < end]  # the rest never held
    assert all(end <= begin for (_, end), (begin, _) in pairwise(held))


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), phases=PHASES)
@given(conversations, st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing(said: list[Statement], random: Random) -> None:
    shuffled = random.sample(said, len(said))
    current, _ = asyncio.run(_remember([[s] for s in said]))
    mixed, _ = asyncio.run(_remember([[s] for s in shuffled]))
    assert stated(current) == told_in_order(said)
    assert stated(mixed) == told_in_order(said)
    assert len(current) == len(mixed) == len(told_in_order(said))


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck), phases=PHASES)
@given(conversations)
def test_a_replay_and_two_clients_at_once_add_nothing(said: list[Statement]) -> None:
    once, _ = asyncio.run(_remember([said]))
    twice, _ = asyncio.run(_remember([said, said]))
    together, _ = asyncio.run(_remember([said, said, said[::-1]], at_once=True))
    assert contents(once) == contents(twice)
    assert stated(once) == stated(together)
    assert len(once) == len(together)


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), phases=PHASES)
@given(conversations, st.randoms(use_true_random=False))
def test_of_one_thing_no_two_values_hold_at_once(said: list[Statement], random: Random) -> None:
    _, everything = asyncio.run(_remember([[s] for s in random.sample(said, len(said))]))
    for slot in SLOTS:
        assert_one_value_at_a_time([m for m in everything if any(s == slot for s, _ in stated([m]))])


@pytest.mark.parametrize(
    "told",
    [
        (("$4,000", 0, 120), ("$4,000", 0, 60), ("$4,000", 0, 180), ("$5,500", 1, 300), ("$5,500", 0, 240)),
        (("$6,200", 1, 120), ("$4,000", 0, 180), ("$4,000", 1, 60)),
    ],
    ids=["what was before it ends earlier", "what was before it never held"],
)
async def test_a_value_that_turns_out_to_be_older_leaves_no_two_at_once(
    told: Sequence[tuple[str, int, float]],
) -> None:
    said = [Statement("budget", value, wording, at=NOON + at) for value, wording, at in told]
    said.insert(-1, Statement("beside", "User speaks Danish", 0, at=NOON))
    current, everything = await _remember([[s] for s in said])
    assert stated(current) == {("budget", told[-1][0]), ("beside", "User speaks Danish")}
    assert_one_value_at_a_time([m for m in everything if m.content != "User speaks Danish"])


async def test_a_replay_of_a_value_that_came_back_ends_nothing() -> None:
    told = (("$5,500", 1, 0), ("$4,000", 0, 60), ("$5,500", 0, 120))
    said = [Statement("budget", value, wording, at=NOON + at) for value, wording, at in told]
    once, before = await _remember([said])
    twice, after = await _remember([said, said])
    assert contents(once) == contents(twice) == ["User's budget for the Porto trip is $5,500"]
    assert contents(before) == contents(after)


async def test_what_is_read_last_finds_its_place_in_the_history() -> None:
    said = [Statement("manager", value, 0, at=NOON + i) for i, value in enumerate(VALUES["manager"])]
    first, second, third = said
    _, everything = await _remember([[third], [first], [second]])
    held = {m.content: (m.valid_from, m.valid_to) for m in everything}
    assert held[first.content] == (NOON, NOON + 1)
    assert held[second.content] == (NOON + 1, NOON + 2)
    assert held[third.content] == (NOON + 2, None)
