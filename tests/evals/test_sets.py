"""The sets of everyday messages, changes and statements are complete and consistent."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

EVALS = Path(__file__).parents[2] / "evals"
COUNTS = {"small_talk": 6, "world": 6, "task": 3, "tool": 2, "reworded": 8, "advice": 8, "abstain": 5}


def files(part: str) -> list[Any]:
    found = sorted((EVALS / part).glob("*.json"))
    return [pytest.param(json.loads(file.read_text("utf-8")), id=file.stem) for file in found]


@pytest.mark.parametrize("users", files("everyday"))
def test_each_user_has_a_rule_and_as_many_messages_of_every_kind(users):
    for user in users:
        assert {kind: len(user[kind]) for kind in COUNTS} == COUNTS
        assert [m["standing"] for m in user["memories"]].count("rule") == 1
        assert 10 <= len(user["memories"]) <= 12
        assert user["forget"]
        assert user["off_record"]
        known = {memory["id"] for memory in user["memories"]}
        named = [one["ids"] for kind in ("reworded", "advice", "forget") for one in user[kind]]
        assert len(known) == len(user["memories"])
        assert all(ids and known.issuperset(ids) for ids in named)


@pytest.mark.parametrize("pairs", files("changes"))
def test_the_labels_of_changes_are_balanced(pairs):
    counts = Counter(pair["label"] for pair in pairs)
    assert len(set(counts.values())) == 1
    assert set(counts) == {"changed", "same", "apart"}


@pytest.mark.parametrize("rows", files("statements"))
def test_each_kind_of_statement_has_candidates_to_refuse_or_to_store(rows):
    assert all(row["candidates"] for row in rows)
    refused = [not all(candidate["store"] for candidate in row["candidates"]) for row in rows]
    assert all(some or row["kind"] == "good" for row, some in zip(rows, refused, strict=True))
    assert len({row["kind"] for row in rows}) == 13
