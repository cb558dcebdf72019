"""The training data keep to their card, and hold nothing of the evaluation's."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = sorted((ROOT / "training" / "data").glob("*/*.jsonl.gz"))
EVALUATED = [
    *(ROOT / "evals").glob("*/*.json"),
    *(ROOT / "evals" / "personas").glob("*/*.json"),
    *(ROOT.parent / "shared" / "evals" / "dev").glob("*.json"),
]
WORDS = 6  # shorter texts ("good morning") may occur in both


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def texts(found: Any) -> Iterator[str]:
    if isinstance(found, str) and len(found.split()) >= WORDS:
        yield found
    elif isinstance(found, dict | list):
        for value in found.values() if isinstance(found, dict) else found:
            yield from texts(value)


def test_every_question_for_retrieval_names_memories_that_there_are_and_is_asked_once():
    users = [line for file in DATA for line in lines(file) if line["task"] == "retrieval"]
    assert len(users) > 1_500
    for user in users:
        indexes = set(range(len(user["facts"])))
        assert len(set(user["facts"])) == len(indexes)
        assert all(one["a"] and indexes.issuperset(one["a"]) for one in user["asked"])
        assert all(indexes.issuperset(one["near"]) for one in user["missing"])
        questions = [one["q"] for one in (*user["asked"], *user["missing"])]
        assert len(set(questions)) == len(questions)


def test_nothing_of_the_evaluation_is_trained_on():
    trained = {text for file in DATA for line in lines(file) for text in texts(line)}
    evaluated = {text for file in EVALUATED for text in texts(json.loads(file.read_text("utf-8")))}
    assert len(evaluated) > 4_000
    assert trained & evaluated == set()
