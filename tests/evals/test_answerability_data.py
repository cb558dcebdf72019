"""The training data of the answerability network is what its format says, and none of the evaluation's."""

import json
from pathlib import Path
from typing import Any

import pytest

from evals.data import DEV, EXTRA

FOLDER = Path(__file__).parents[2] / "evals"
FILES = sorted((FOLDER / "answerability").glob("**/*.jsonl"))
EVALUATED = [
    *DEV.glob("*.json"),
    *(file for file in EXTRA.glob("*.json") if file.stem not in ("compound", "decisions", "unrelated")),
    *(FOLDER / "unseen").glob("*.json"),
    *(FOLDER / "blind").glob("*.json"),
]


def users(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_question_names_facts_that_there_are_and_is_asked_once(file: Path) -> None:
    for user in users(file):
        assert user["lang"] in ("en", "zh", "es", "fr", "de")
        indices = set(range(len(user["facts"])))
        assert len(indices) == len(set(user["facts"]))
        for one in user["asked"]:
            assert one["a"]
            assert indices.issuperset(one["a"]), one
        for one in user["missing"]:
            assert indices.issuperset(one["near"]), one
        questions = [one["q"] for one in (*user["asked"], *user["missing"])]
        assert len(questions) == len(set(questions))


def test_as_many_questions_are_asked_plainly_as_in_other_words() -> None:
    asked = [one["plain"] for file in FILES for user in users(file) for one in user["asked"]]
    assert 0.45 < sum(asked) / len(asked) < 0.55


def test_nothing_of_the_evaluation_is_trained_on() -> None:
    trained = {
        text
        for file in FILES
        for user in users(file)
        for text in (*user["facts"], *(one["q"] for one in (*user["asked"], *user["missing"])))
    }
    evaluated = set()
    for file in EVALUATED:
        read = json.loads(file.read_text("utf-8"))
        for persona in read if isinstance(read, list) else [read]:
            evaluated |= {fact["content"] for session in persona["sessions"] for fact in session["facts"]}
            evaluated |= {question["query"] for question in persona["questions"]}
    assert len(evaluated) > 2_000
    assert {text for text in trained & evaluated if len(text.split()) > 5} == set()
