"""The personas are consistent, and a file that contradicts itself is refused."""

import functools
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.data import EXTRA, load, persona
from evals.documents import PARTS, questions, texts
from proxy.learn.documents import split

OURS = sorted(EXTRA.glob("e*.json"))
KINDS = {
    "single", "multi", "temporal", "update", "vague", "preference", "procedural", "cross_lingual",
    "project", "abstain", "skip_greeting", "skip_fact", "skip_tool", "skip_self",
}  # fmt: skip


def raw(**question: Any) -> dict[str, Any]:
    facts = [
        {"id": "f1", "type": "semantic", "content": "Old.", "evidence": ["t1"], "supersedes": None},
        {"id": "f2", "type": "semantic", "content": "New.", "evidence": ["t1"], "supersedes": "f1"},
    ]
    turns = [{"id": "t1", "role": "user", "content": "Old, no, new."}]
    session = {"session_id": "s1", "date": "2026-01-01T00:00:00Z", "project_id": None, "turns": turns}
    asked = {
        "id": "q1", "date": "2026-02-01T00:00:00Z", "project_id": None, "history": [], "query": "Which?",
        "kind": "update", "answer_facts": ["f2"], "stale_facts": ["f1"], "expect": "search",
    }  # fmt: skip
    sessions = [session | {"facts": facts}]
    return {"user_id": "u", "language": "en", "sessions": sessions, "questions": [asked | question]}


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_a_persona_is_consistent(file):
    (one,) = load([file])
    asked = {q.kind for q in one.questions}
    assert {"update", "abstain", "procedural", "skip_greeting"} <= asked <= KINDS
    if file.stem <= "e04":  # the later ones are about what is stored
        assert asked == KINDS
        assert len(one.questions) >= 39
    projects = {f.id: s.project for s, f in one.facts()}
    for question in (q for q in one.questions if q.project):
        assert {projects[i] for i in question.answers} <= {None, question.project}, question.id
    turns = {t.id: t for s in one.sessions for t in s.turns}
    for session in one.sessions:
        assert all(n.span in turns[n.evidence].content for n in session.never_store)
        assert all(turns[i].role == "user" for f in session.facts for i in f.evidence)
    secrets = [n.span for s in one.sessions for n in s.never_store if n.reason == "secret"]
    assert secrets
    assert not any(secret in file.read_text("utf-8") for secret in secrets), "secrets are not in plain text"


def test_a_superseded_fact_is_not_current_and_not_an_answer():
    assert [f.id for f in persona(raw()).current()] == ["f2"]
    with pytest.raises(ValueError, match="superseded"):
        persona(raw(answer_facts=["f1"]))
    with pytest.raises(ValueError, match="f9"):
        persona(raw(answer_facts=["f9"]))


EVALS = Path(__file__).parents[2] / "evals"
COUNTS = {"small_talk": 6, "world": 6, "task": 3, "tool": 2, "reworded": 8, "advice": 8, "abstain": 5}


def languages(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("language", sorted(file.stem for file in (EVALS / part).glob("*.json")))


def read(part: str, language: str) -> Any:
    return json.loads((EVALS / part / f"{language}.json").read_text("utf-8"))


@languages("everyday")
def test_each_user_has_a_rule_and_as_many_messages_of_every_kind(language):
    for user in read("everyday", language):
        assert {kind: len(user[kind]) for kind in COUNTS} == COUNTS
        assert [m["standing"] for m in user["memories"]].count("rule") == 1
        assert 10 <= len(user["memories"]) <= 12
        known = {memory["id"] for memory in user["memories"]}
        named = [one["ids"] for kind in ("reworded", "advice", "forget") for one in user[kind]]
        assert len(known) == len(user["memories"])
        assert all(ids and known.issuperset(ids) for ids in named)


@languages("changes")
def test_the_labels_of_changes_are_balanced_and_statements_are_of_every_kind(language):
    pairs, rows = read("changes", language), read("statements", language)
    counts = Counter(pair["label"] for pair in pairs)
    assert len(set(counts.values())) == 1
    assert set(counts) == {"changed", "same", "apart"}
    assert all(row["candidates"] for row in rows)
    refused = [not all(candidate["store"] for candidate in row["candidates"]) for row in rows]
    assert all(some or row["kind"] == "good" for row, some in zip(rows, refused, strict=True))
    assert len({row["kind"] for row in rows}) == 13


ROOT = Path(__file__).parents[2]
DATA = sorted((ROOT / "training" / "data").glob("*/*.jsonl.gz"))
EVALUATED = [
    *(ROOT / "evals").glob("*/*.json"),
    *(ROOT / "evals" / "personas").glob("*/*.json"),
    *(ROOT.parent / "shared" / "evals" / "dev").glob("*.json"),
]
WORDS = 6  # shorter texts ("good morning") may occur in both


@functools.cache
def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def sentences_of(found: Any) -> Iterator[str]:
    if isinstance(found, str) and len(found.split()) >= WORDS:
        yield found
    elif isinstance(found, dict | list):
        for value in found.values() if isinstance(found, dict) else found:
            yield from sentences_of(value)


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
    trained = {text for file in DATA for line in lines(file) for text in sentences_of(line)}
    evaluated = {text for file in EVALUATED for text in sentences_of(json.loads(file.read_text("utf-8")))}
    assert len(evaluated) > 4_000
    assert trained & evaluated == set()


def test_every_question_names_a_section_that_is_there():
    parts = {name: split(content, "markdown") for name, content in texts().items()}
    # More sections than an answer could show.
    assert all(len({passage.section for passage in passages}) > 18 for passages in parts.values())
    headings = {(name, passage.headings[-1]) for name, passages in parts.items() for passage in passages}
    asked = [one for one in questions() if one.section is not None]
    assert {one.section for one in asked} <= headings
    assert len(asked) >= 40
    assert len({one.id for one in questions()}) == len(questions())
    assert {one.part for one in questions()} == set(PARTS)
