"""The sets of everyday messages, changes and statements hold what the evaluation counts on."""

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
def test_each_user_asks_as_often_for_everything_and_has_a_rule(
    users: list[dict[str, Any]],
) -> None:
    for user in users:
        assert {kind: len(user[kind]) for kind in COUNTS} == COUNTS
        assert [m["standing"] for m in user["memories"]].count("rule") == 1
        assert 10 <= len(user["memories"]) <= 12
        assert user["forget"]
        assert user["off_record"]


@pytest.mark.parametrize("users", files("everyday"))
def test_each_answer_is_a_memory_of_the_user(users: list[dict[str, Any]]) -> None:
    for user in users:
        known = {memory["id"] for memory in user["memories"]}
        assert len(known) == len(user["memories"])
        named = [one["ids"] for kind in ("reworded", "advice", "forget") for one in user[kind]]
        assert all(ids and known.issuperset(ids) for ids in named)


@pytest.mark.parametrize("pairs", files("changes"))
def test_changes_restatements_and_what_is_apart_are_as_many(pairs: list[dict[str, str]]) -> None:
    counts = Counter(pair["label"] for pair in pairs)
    assert len(set(counts.values())) == 1
    assert set(counts) == {"changed", "same", "apart"}


@pytest.mark.parametrize("rows", files("statements"))
def test_each_kind_of_statement_has_candidates_to_refuse_or_to_store(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["candidates"]
        stored = [candidate["store"] for candidate in row["candidates"]]
        assert row["kind"] == "good" or not all(stored)
    assert len({row["kind"] for row in rows}) == 13
