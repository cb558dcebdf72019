"""The scoring of outcomes, by hand-made outcomes."""

import dataclasses
import json

import pytest

from evals.score import Outcome, Standing, below, floors, misses, tally

RIGHT = Outcome(
    question="u-q1",
    kind="reworded",
    language="en",
    skip=False,
    answers=("u-f1",),
    stale=("u-f0",),
    status="injected",
    reason="",
    injected=("u-f1", "u-f2"),
)
ABSTAIN = dataclasses.replace(
    RIGHT, question="u-q2", kind="abstain", answers=(), stale=(), injected=(), status="none"
)
SKIPPED = dataclasses.replace(ABSTAIN, question="u-q3", kind="world", skip=True, status="skipped")
SMALL_TALK = dataclasses.replace(SKIPPED, kind="small_talk")
NONE = Standing()
RULE, TRAIT = Standing(rules=frozenset({"u-r"})), Standing(traits=frozenset({"u-t"}))


def but(outcome: Outcome, **changes: object) -> Outcome:
    return dataclasses.replace(outcome, **changes)


def mean(outcome: Outcome, metric: str, standing: Standing = NONE) -> float:
    return tally([outcome], standing)[metric]["en"][0]


@pytest.mark.parametrize(
    ("worse", "metric", "said"),
    [
        (but(RIGHT, injected=("u-f2",)), "recall@5", "not shown: u-f1"),
        (but(RIGHT, injected=(), status="skipped", reason="greeting"), "false silence", "skipped greeting"),
        (but(RIGHT, injected=("u-f1", "u-f0")), "stale", "stale: u-f0"),
        (but(ABSTAIN, injected=("u-f1",)), "wrong: abstain", "shown for nothing: u-f1"),
        (but(SKIPPED, injected=("u-f1",)), "wrong: skip", "shown for nothing: u-f1"),
        (but(SMALL_TALK, injected=("u-f1",)), "wrong: small talk", "shown for nothing: u-f1"),
    ],
)
def test_every_fault_shows_in_its_metric(worse, metric, said):
    right = {"recall@5": RIGHT, "false silence": RIGHT, "stale": RIGHT, "wrong: abstain": ABSTAIN}
    right |= {"wrong: skip": SKIPPED, "wrong: small talk": SMALL_TALK}
    assert misses([right[metric]], NONE) == []
    assert abs(mean(worse, metric) - mean(right[metric], metric)) == 1.0
    (line,) = misses([worse], NONE)
    assert said in line


def test_a_rule_is_wanted_everywhere_and_takes_no_place():
    behind = but(RIGHT, injected=("u-r", "u-f1"))
    assert mean(behind, "recall@1", RULE) == 1.0
    assert mean(behind, "rule shown", RULE) == 1.0
    assert mean(but(SMALL_TALK, injected=("u-r",)), "wrong: small talk", RULE) == 0.0
    assert mean(SMALL_TALK, "rule shown", RULE) == 0.0
    assert "rule not shown: u-r" in misses([SMALL_TALK], RULE)[0]


def test_a_metric_below_its_floor_or_above_its_ceiling_is_named(tmp_path):
    file = tmp_path / "floors.json"
    limits = {"full": {"p": {"recall@5": {"en": 0.9}, "wrong: skip": {"en": 0.1}, "stale": {"zh": 0.1}}}}
    file.write_text(json.dumps(limits))
    shares = {"recall@5": {"en": (0.89, 100)}, "wrong: skip": {"en": (0.11, 100)}}
    assert [line.split(":")[0] for line in below("p", shares, floors("full", file))] == [
        "p, recall@5, en",
        "p, wrong",
        "p, stale, zh",  # has no cases any more
    ]
    good = {"recall@5": {"en": (0.9, 9)}, "wrong: skip": {"en": (0.1, 9)}, "stale": {"zh": (0.0, 9)}}
    assert below("p", good, floors("full", file)) == []
    assert floors("quick", file) == {}
