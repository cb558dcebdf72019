"""The personas are consistent, and a file that contradicts itself is refused."""

from typing import Any

import pytest

from evals.data import EXTRA, load, persona

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
