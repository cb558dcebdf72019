"""Retrieval: gold facts in, questions asked as chat requests, what came into the prompt looked at."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from evals.data import Fact, Persona, Question, Session
from evals.house import House, Reply
from evals.score import Outcome

MODEL = "gpt-4o"
_SHORT_ID = re.compile(r"#([\w-]+)\]")
Tick = Callable[[str], None]
"""Called at every step with a short description."""


class Refused(Exception):
    """The proxy did not take what a run needs."""


# ---------------------------------------------------------------- storing
async def store(house: House, persona: Persona) -> dict[str, str]:
    """Store the persona's facts with their times, superseded ones superseded; return fact ids by memory id.

    Raises Refused.
    """
    lines = [line(persona, session, fact) for session, fact in persona.facts()]
    body = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines).encode()
    house.clock.set(max(s.at for s in persona.sessions) + 60)
    reply = await house.call("POST", "/v1/memory/import", body, content_type="application/x-ndjson")
    if reply.status != 200 or reply.body.get("imported") != len(lines):
        raise Refused(f"import: {reply.status} {reply.body}")
    return await fact_ids(house, persona)


def line(persona: Persona, session: Session, fact: Fact) -> dict[str, Any]:
    """Return the fact as a line of an import."""
    after = persona.successors().get(fact.id)
    ended = next((s.at for s, f in persona.facts() if f.id == after), None)
    return {
        "id": memory_id(fact.id),
        "object": "memory",
        "type": fact.type,
        "content": fact.content,
        "user_id": persona.user,
        "project_id": session.project,
        "source": "extracted",
        "created_at": session.at,
        "updated_at": ended or session.at,
        "valid_from": session.at,
        "valid_to": ended,
        "superseded_by": memory_id(after) if after else None,
        "importance": 0.6 if fact.type == "preference" else 0.5,
        "confidence": 0.6 if fact.hedged else 0.95,
    }


def memory_id(fact_id: str) -> str:
    return f"mem_{fact_id}"


async def fact_ids(house: House, persona: Persona) -> dict[str, str]:
    """Return the fact that each of the user's memories states, by memory id."""
    by_content = {_spaced(f.content): f.id for _, f in persona.facts()}
    return {
        m["id"]: by_content[_spaced(m["content"])]
        async for m in memories(house, persona.user, inactive=True)
        if _spaced(m["content"]) in by_content
    }


async def memories(house: House, user: str, *, inactive: bool = False) -> Any:
    """Yield the user's memories, page by page."""
    after = ""
    while True:
        path = f"/v1/memory?user_id={quote(user)}&limit=100" + ("&include=inactive" if inactive else "")
        page = (await house.call("GET", path + (f"&after={after}" if after else ""))).body
        for memory in page["data"]:
            yield memory
        if not page["has_more"]:
            return
        after = page["last_id"]


# ---------------------------------------------------------------- asking
async def ask_all(
    house: House, persona: Persona, questions: Iterable[Question], facts: Mapping[str, str], tick: Tick
) -> list[Outcome]:
    """Put the questions, each on its day, one after the other; return their outcomes."""
    outcomes = []
    for question in questions:
        house.clock.set(question.at)
        outcomes.append(await ask(house, persona, question, facts))
        tick(question.id)
    return outcomes


async def ask(house: House, persona: Persona, question: Question, facts: Mapping[str, str]) -> Outcome:
    """Put one question as a chat request that is not remembered."""
    context = {"user_id": persona.user, "session_id": f"ask-{question.id}"}
    if question.project:
        context["project_id"] = question.project
    said = [*(m.as_json() for m in question.history), {"role": "user", "content": question.query}]
    reply = await house.call(
        "POST",
        "/v1/chat/completions",
        {"model": MODEL, "messages": said, "memory_context": context},
        authorization="Bearer sk-eval",
        x_memory_mode="read",
    )
    if reply.status != 200:
        raise Refused(f"{question.id}: {reply.status} {reply.body}")
    injected = _injected(reply, house.model.shown_text())
    return Outcome(
        question=question.id,
        kind=question.kind,
        language=persona.language,
        skip=question.skip,
        answers=tuple(sorted(question.answers)),
        stale=tuple(sorted(question.stale)),
        status=reply.headers["x-memory-status"],
        reason=reply.headers.get("x-memory-reason", ""),
        injected=_facts(injected, facts),
    )


def _injected(reply: Reply, shown: str) -> list[str]:
    """Return the ids that the header names. Raises Refused where the upstream saw other memories."""
    ids = list(filter(None, reply.headers.get("x-memory-ids", "").split(",")))
    ends = tuple(_SHORT_ID.findall(shown))
    if lost := [i for i in ids if not i.endswith(ends)]:
        raise Refused(f"X-Memory-Ids names memories that the upstream did not get: {', '.join(lost)}")
    return ids


def _facts(ids: Sequence[str], facts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(facts.get(i, "?") for i in ids)


def _spaced(text: str) -> str:
    return " ".join(text.split())
