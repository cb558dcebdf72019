"""The personas: our own files hold together, and a file that contradicts itself is refused."""

from pathlib import Path
from typing import Any

import pytest

from evals.data import EXTRA, as_said, load, persona

OURS = sorted(EXTRA.glob("e*.json"))
ALL_ROUND = [file for file in OURS if file.stem <= "e04"]  # the later ones are about what is stored
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


def test_there_are_seven_personas_of_our_own_four_of_them_all_round() -> None:
    assert [file.stem for file in OURS] == [f"e0{i}" for i in range(1, 8)]
    assert len(ALL_ROUND) == 4


@pytest.mark.parametrize("file", ALL_ROUND, ids=lambda file: file.stem)
def test_our_all_round_personas_ask_every_kind_of_question(file: Path) -> None:
    (one,) = load([file])
    assert {q.kind for q in one.questions} == KINDS
    assert len(one.questions) >= 39


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_each_of_our_personas_asks_for_what_changed_and_for_what_was_never_told(file: Path) -> None:
    (one,) = load([file])
    asked = {q.kind for q in one.questions}
    assert asked <= KINDS
    assert asked >= {"update", "abstain", "procedural", "skip_greeting"}


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_the_answers_of_our_personas_can_be_seen_from_where_they_are_asked(file: Path) -> None:
    (one,) = load([file])
    projects = {f.id: s.project for s, f in one.facts()}
    for question in (q for q in one.questions if q.project):
        assert {projects[i] for i in question.answers} <= {None, question.project}, question.id


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_forbidden_words_and_evidence_stand_in_the_turns_named(file: Path) -> None:
    (one,) = load([file])
    turns = {t.id: t for s in one.sessions for t in s.turns}
    for session in one.sessions:
        assert all(n.span in turns[n.evidence].content for n in session.never_store)
        assert all(turns[i].role == "user" for f in session.facts for i in f.evidence)


def test_no_secret_stands_in_our_files_in_plain_text() -> None:
    for file in OURS:
        (one,) = load([file])
        secrets = [n.span for s in one.sessions for n in s.never_store if n.reason == "secret"]
        assert secrets
        assert not any(secret in file.read_text("utf-8") for secret in secrets)


def test_a_superseded_fact_is_not_current() -> None:
    assert [f.id for f in persona(raw()).current()] == ["f2"]


def test_an_answer_that_is_superseded_is_refused() -> None:
    with pytest.raises(ValueError, match="superseded"):
        persona(raw(answer_facts=["f1"]))


def test_a_fact_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="f9"):
        persona(raw(answer_facts=["f9"]))


def test_a_persona_as_said_has_the_users_messages_in_place_of_the_facts() -> None:
    one = persona(raw())
    (session,) = as_said(one).sessions
    assert [(fact.id, fact.content) for fact in session.facts] == [("t1", "Old, no, new.")]
    (question,) = as_said(one).questions
    assert (question.answers, question.stale) == (frozenset({"t1"}), frozenset())


@pytest.mark.parametrize("change", [{"role": "assistant"}, {"id": "t2"}])
def test_what_the_user_did_not_say_is_not_asked_for(change: dict[str, str]) -> None:
    told = raw()
    told["sessions"][0]["turns"][0] |= change
    assert as_said(persona(told)).questions == ()


def test_a_message_that_must_leave_nothing_is_not_among_what_was_said() -> None:
    told = raw()
    told["sessions"][0]["never_store"] = [{"evidence": "t1", "span": "Old", "reason": "secret"}]
    (session,) = as_said(persona(told)).sessions
    assert session.facts == ()
