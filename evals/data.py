"""The personas: conversations, gold facts, questions (format: evals/personas/FORMAT.md)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PERSONAS = HERE / "personas"
EXTRA = PERSONAS / "extra"
LONGEST = 3_900  # characters of a memory, a little less than the API takes
DEV = HERE.parent.parent / "shared" / "evals" / "dev"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `id` is "" in a question's history."""

    id: str
    role: str
    content: str

    def as_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, slots=True)
class Fact:
    """What an ideal memory keeps. `evidence`: ids of the turns that state it."""

    id: str
    type: str
    content: str
    evidence: tuple[str, ...]
    supersedes: str | None
    hedged: bool


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Words that must not be remembered, and why."""

    evidence: str
    span: str
    reason: str


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `at`: Unix seconds."""

    id: str
    at: float
    project: str | None
    turns: tuple[Message, ...]
    facts: tuple[Fact, ...]
    never_store: tuple[Forbidden, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and which facts answer it."""

    id: str
    at: float
    project: str | None
    history: tuple[Message, ...]
    query: str
    kind: str
    answers: frozenset[str]
    stale: frozenset[str]
    skip: bool  # no search is wanted


@dataclass(frozen=True, slots=True)
class Persona:
    """One invented person."""

    user: str
    language: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]

    def facts(self) -> list[tuple[Session, Fact]]:
        """Return all facts with their sessions, in time order."""
        return [(s, f) for s in sorted(self.sessions, key=lambda s: s.at) for f in s.facts]

    def successors(self) -> dict[str, str]:
        """Return, for each superseded fact, the fact that took its place."""
        return {f.supersedes: f.id for _, f in self.facts() if f.supersedes}

    def current(self) -> list[Fact]:
        """Return the facts that nothing supersedes."""
        superseded = self.successors()
        return [f for _, f in self.facts() if f.id not in superseded]


def load(files: Iterable[Path]) -> list[Persona]:
    """Return the personas of these files, each of one persona or a list of them. Raises ValueError for one
    that contradicts itself."""
    held = (json.loads(file.read_text("utf-8")) for file in files)
    return [persona(raw) for one in held for raw in (one if isinstance(one, list) else [one])]


def persona(raw: dict[str, Any]) -> Persona:
    """Return the persona that a file holds. Raises ValueError where ids do not meet."""
    made = Persona(
        user=raw["user_id"],
        language=raw["language"],
        sessions=tuple(_session(s) for s in raw["sessions"]),
        questions=tuple(_question(q) for q in raw["questions"]),
    )
    known = {f.id for _, f in made.facts()}
    wanted = {i for q in made.questions for i in q.answers | q.stale} | set(made.successors())
    if lost := wanted - known:
        raise ValueError(f"{made.user} refers to facts that it does not have: {', '.join(sorted(lost))}")
    if wrong := [q.id for q in made.questions if q.answers & set(made.successors())]:
        raise ValueError(f"{made.user} answers with superseded facts: {', '.join(wrong)}")
    return made


def as_said(whole: Persona) -> Persona:
    """Return the persona with what the user said as memories, message by message, in place of the facts: what
    a history that was imported, or `memory.extraction: verbatim`, makes of a conversation.

    Messages that must leave nothing are left out, and so are questions whose answer the user did not say.
    """
    said_sessions = tuple(
        replace(session, facts=_said(session), never_store=()) for session in whole.sessions
    )
    said = {fact.id for session in said_sessions for fact in session.facts}
    evidence_of = {fact.id: said.intersection(fact.evidence) for _, fact in whole.facts()}
    questions = (
        replace(one, answers=frozenset().union(*(evidence_of[id_] for id_ in one.answers)), stale=frozenset())
        for one in whole.questions
        if all(evidence_of[id_] for id_ in one.answers)
    )
    return replace(whole, sessions=said_sessions, questions=tuple(questions))


def _said(session: Session) -> tuple[Fact, ...]:
    never = {forbidden.evidence for forbidden in session.never_store}
    return tuple(
        Fact(turn.id, "semantic", turn.content[:LONGEST], (turn.id,), supersedes=None, hedged=False)
        for turn in session.turns
        if turn.role == "user" and turn.id not in never
    )


def _session(raw: dict[str, Any]) -> Session:
    return Session(
        id=raw["session_id"],
        at=seconds(raw["date"]),
        project=raw["project_id"],
        turns=tuple(Message(t["id"], t["role"], t["content"]) for t in raw["turns"]),
        facts=tuple(_fact(f) for f in raw["facts"]),
        never_store=tuple(
            Forbidden(n["evidence"], n["span"], n["reason"]) for n in raw.get("never_store", ())
        ),
    )


def _fact(raw: dict[str, Any]) -> Fact:
    return Fact(
        id=raw["id"],
        type="preference" if raw.get("preference") else raw["type"],
        content=raw["content"],
        evidence=tuple(raw["evidence"]),
        supersedes=raw["supersedes"],
        hedged=raw.get("confidence") == "hedged",
    )


def _question(raw: dict[str, Any]) -> Question:
    return Question(
        id=raw["id"],
        at=seconds(raw["date"]),
        project=raw["project_id"],
        history=tuple(Message("", m["role"], m["content"]) for m in raw["history"]),
        query=raw["query"],
        kind=raw["kind"],
        answers=frozenset(raw["answer_facts"]),
        stale=frozenset(raw["stale_facts"]),
        skip=raw["expect"] == "skip",
    )


def seconds(date: str) -> float:
    """Return the Unix seconds of an ISO date."""
    return datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp()
