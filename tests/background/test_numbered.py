"""What is told of two numbered things stays, however alike; another value of one thing takes the place."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from proxy.background.write_gate import marks
from proxy.background.write_gate.compare import Relation, relate
from proxy.background.write_gate.decide import Weighed, decide_changes
from proxy.background.write_gate.numbered import about_other_numbers, hold_at_other_times
from proxy.domain import Candidate, Create, Hit, Supersede
from proxy.embedtext import embed_text
from proxy.ports import Embedder
from tests.background.support import ANA, NOON, memory

PAIRS = [
    tuple(line.split("|"))
    for line in (Path(__file__).parent / "numbered_pairs.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
PARALLEL = [(old, new) for kind, old, new in PAIRS if kind == "parallel"]
CHANGED = [(old, new) for kind, old, new in PAIRS if kind == "changed"]
FAR, NEAR, NEXT_TO_EQUAL = 0.5, 0.84, 0.97  # cosines where .8 asks whether it is the same


@pytest.mark.parametrize(("old", "new"), PARALLEL)
def test_facts_about_two_numbered_things_stay_apart_however_near(old: str, new: str) -> None:
    for cosine in (None, FAR, NEAR, NEXT_TO_EQUAL):
        assert relate(old, new, cosine, near=0.8) is Relation.APART
        assert relate(new, old, cosine, near=0.8) is Relation.APART


@pytest.mark.parametrize(("old", "new"), CHANGED)
def test_another_value_of_one_thing_is_an_update(embedder: Embedder, old: str, new: str) -> None:
    cosine = None
    if embedder.understands(old) and embedder.understands(new):
        a, b = asyncio.run(embedder.embed([embed_text(old), embed_text(new)]))
        cosine = float(np.frombuffer(a, np.float32) @ np.frombuffer(b, np.float32))
    assert relate(old, new, cosine, near=embedder.model.duplicate_threshold) is Relation.UPDATE


def test_the_table_is_large_and_of_five_languages() -> None:
    assert len(PARALLEL) >= 100
    assert len(CHANGED) >= 80
    for said in ("User's", "Nutzer", "usuario", "utilisateur", "用户"):
        assert sum(said in old for old, _ in PARALLEL) >= 3
        assert sum(said in old for old, _ in CHANGED) >= 3


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("User's budget for project 1 is $500", "User's budget for project 2 is $900", Create),
        ("User's dose at 8:00 is 5 mg", "User's dose at 20:00 is 10 mg", Create),
        ("Owns camera 1.", "Owns camera 2.", Create),
        ("User's budget for project 1 is $500", "User's budget for project 1 is $900", Supersede),
    ],
)
def test_a_numbered_thing_is_stored_beside_its_like(old: str, new: str, change: type) -> None:
    candidate = Candidate(type="semantic", content=new, observed_at=NOON)
    weighed = [Weighed(candidate, None, (Hit(memory(old), 0.9, 1.0),))]
    decision = decide_changes(weighed, scope=ANA, now=NOON, near=0.8, seed="job")
    assert [type(c) for c in decision.changes] == [change]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the same label, time or date in another form
        ("The budget for project one is $500", "Project 1's budget is $500"),
        ("The 8 pm dose is 5 mg", "The dose at 20:00 is 5 mg"),
        ("The rent for 3 May 2026 was 500 euros", "The rent for May 3 was 500 euros"),
        ("用户第三章的笔记在电脑里", "用户第3章的笔记在电脑里"),
        # a number that only one of them has
        ("User's flight leaves at 8:10", "User's flight 123 leaves at 9:00"),
        # what changed its number is named by both
        ("Room 101's tenant is Kim", "Room 101's tenant moved to room 102"),
        # since when it holds
        ("Since 2024 the rent is 900 euros", "Since 2025 the rent is 950 euros"),
    ],
)
def test_what_may_be_one_thing_is_not_told_apart(old: str, new: str) -> None:
    assert not about_other_numbers(old, new)
    assert not about_other_numbers(new, old)


def test_a_value_with_its_own_year_holds_beside_that_of_another_year_and_no_plan_does() -> None:
    assert hold_at_other_times("User earned 50000 euros in 2024", "User earned 55000 euros in 2025")
    assert not hold_at_other_times("User earned 50000 euros in 2024", "User earned 55000 euros in 2024")
    assert not hold_at_other_times(
        "User plans to spend 500 euros in 2025", "User plans to spend 900 euros in 2026"
    )


@pytest.mark.parametrize("text", ["1" * 8_000, "1," * 4_000, "一" * 8_000, "may " * 2_000, "2024 " * 1_600])
def test_a_long_run_of_numbers_costs_no_time(text, benchmark_ms):
    assert benchmark_ms(lambda: marks.told.__wrapped__(text)) < 100  # 5 s where all of it is read
