"""Everyday messages: small talk, tasks, questions and advice around a handful of memories, by language.

The sets are in evals/everyday. Each user becomes a persona with one session of gold facts, so that storing,
asking and the baselines are those of the retrieval part.
"""

import json
from collections.abc import Sequence
from typing import Any

from evals.data import HERE, Fact, Persona, Question, Session, seconds
from evals.score import Standing

FOLDER = HERE / "everyday"
STORED, ASKED = seconds("2026-04-27T09:00:00Z"), seconds("2026-05-04T10:00:00Z")
SKIPPED = ("small_talk", "world", "task", "tool")  # no memory of the user helps
TYPES = {"rule": "preference"}  # what an extractor calls them; everything else is semantic


def read(languages: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the users of these languages (of all without any), as the files hold them."""
    files = [f for f in sorted(FOLDER.glob("*.json")) if not languages or f.stem in languages]
    return [user for file in files for user in json.loads(file.read_text("utf-8"))]


def persona(raw: dict[str, Any]) -> Persona:
    """Return the user as a persona."""
    facts = tuple(
        Fact(m["id"], TYPES.get(m["standing"], "semantic"), m["content"], (), None, hedged=False)
        for m in raw["memories"]
    )
    asked = [(kind, text, ()) for kind in (*SKIPPED, "abstain") for text in raw[kind]]
    asked += [(kind, one["text"], tuple(one["ids"])) for kind in ("reworded", "advice") for one in raw[kind]]
    return Persona(
        user=raw["user_id"],
        language=raw["language"],
        sessions=(Session(f"{raw['user_id']}-s", STORED, None, (), facts, ()),),
        questions=tuple(
            Question(
                id=f"{raw['user_id']}-q{number}",
                at=ASKED,
                project=None,
                history=(),
                query=text,
                kind=kind,
                answers=frozenset(ids),
                stale=frozenset(),
                skip=kind in SKIPPED,
            )
            for number, (kind, text, ids) in enumerate(asked, 1)
        ),
    )


def standing(users: Sequence[dict[str, Any]]) -> Standing:
    """Return the memories of the users that hold in every conversation."""

    def of(kind: str) -> frozenset[str]:
        return frozenset(m["id"] for user in users for m in user["memories"] if m["standing"] == kind)

    return Standing(of("rule"), of("trait"))


def copies(users: Sequence[dict[str, Any]], kind: str) -> list[tuple[Persona, str, frozenset[str]]]:
    """Return, for each message of `kind` ("forget", "off_record"), a copy of its user with ids of their own,
    the message, and the ids that it is about."""
    found = []
    for user in users:
        for number, one in enumerate(user[kind], 1):
            text, ids = (one, ()) if isinstance(one, str) else (one["text"], one["ids"])
            suffix = f"{kind}{number}"
            memories = [m | {"id": f"{m['id']}-{suffix}"} for m in user["memories"]]
            copy = user | {"user_id": f"{user['user_id']}-{suffix}", "memories": memories}
            plain = persona(copy | {"reworded": [], "advice": []})
            found.append((plain, text, frozenset(f"{i}-{suffix}" for i in ids)))
    return found
