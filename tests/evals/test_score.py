"""The scoring of outcomes, by hand-made outcomes."""

import dataclasses

import pytest

from evals.score import Outcome, misses, overall, percentile, recall, reciprocal_rank, row

RIGHT = Outcome(
    question="u-q1",
    kind="single",
    language="en",
    skip=False,
    answers=("f1",),
    stale=("f0",),
    status="injected",
    reason="",
    injected=("f1", "f2"),
    searched=("f1",),
    tokens=60,
    memory_ms=2.0,
)
SILENT = dataclasses.replace(
    RIGHT, kind="abstain", answers=(), stale=(), injected=(), searched=(), status="none", tokens=0
)
SKIPPED = dataclasses.replace(SILENT, kind="skip_fact", skip=True, status="skipped")


def but(outcome: Outcome, **changes: object) -> Outcome:
    return dataclasses.replace(outcome, **changes)  # type: ignore[arg-type]


def test_recall_counts_the_answers_among_the_first() -> None:
    found = ["f3", "f1", "f9", "f2"]
    assert recall(found, {"f1", "f2"}) == 1.0
    assert recall(found, {"f1", "f2"}, cut=2) == 0.5
    assert recall(found, {"f1", "f2"}, cut=1) == 0.0


def test_the_rank_that_counts_is_the_first_answers() -> None:
    assert reciprocal_rank(["f3", "f1", "f2"], {"f1", "f2"}) == 0.5
    assert reciprocal_rank([], {"f1"}) == 0.0


def test_a_run_without_a_fault_is_worth_a_hundred() -> None:
    assert overall([RIGHT, SILENT, SKIPPED]) == pytest.approx(100)
    assert misses([RIGHT, SILENT, SKIPPED]) == []


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        (but(RIGHT, injected=("f2",)), "not in the block: f1 (searched at 1)"),
        (but(RIGHT, injected=("f2", "f3", "f4", "f5", "f6", "f1")), "behind place 5: f1"),
        (but(RIGHT, injected=("f1", "f0")), "stale: f0"),
        (but(RIGHT, searched=("f1", "f0")), "stale: f0"),
        (but(SILENT, injected=("f1",), status="injected"), "injected 1 for nothing: f1"),
        (but(SKIPPED, status="none", reason="no_memories"), "decided none no_memories"),
        (but(RIGHT, injected=(), status="skipped", reason="greeting"), "decided skipped greeting"),
    ],
)
def test_every_fault_costs_something_and_is_told(worse: Outcome, said: str) -> None:
    assert overall([RIGHT, SILENT, SKIPPED, worse]) < 100
    (line,) = misses([worse])
    assert said in line


def test_what_a_group_cannot_tell_is_left_open() -> None:
    silent, answered = row([SILENT]), row([but(RIGHT, stale=())])
    assert (silent.recall, silent.block, silent.mrr, silent.stale) == (None, None, None, None)
    assert (answered.wrong, answered.stale) == (None, None)
    assert silent.wrong == 0.0


def test_tokens_are_counted_where_something_was_injected() -> None:
    assert row([RIGHT, SILENT]).tokens == 60


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.99) == 4.0
    assert percentile([], 0.5) == 0.0
