"""A year of a user, with memories that evolve and without.

Facts are stored on the day on which they were said, 200 sessions leave one episodic note each, and the user
asks a part of the questions in every quarter; the model answers with the facts that answer them. After each
month the evolution runs. With `killed` the proxy is killed while it runs, and started again. At the end of
the year all questions are asked, and both runs are compared.
"""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from evals import everyday
from evals.data import EXTRA, PERSONAS, Persona, Question, load
from evals.house import House, opened
from evals.model import Model
from evals.retrieval import MODEL, Refused, Tick, ask, line, memories, memory_id
from evals.score import CUTS, Outcome, Shares, Tally, recall

SETTINGS = {
    "memory.deadline_ms": 5000,
    "memory.session_summaries": "false",
    "memory.idle_seconds": 0.1,
    "memory.personal_idle_seconds": 0.1,
    "storage.exchange_ttl_days": 3650,
}
DAY_S = 86_400.0
MONTHS, NOTES = 12, 200
KILLED_SHARE = 0.4  # of the months
NOTED = ("small_talk", "world", "task", "tool")
TODAY = frozenset(("en", "ar", "it", "ja", "ko", "nl", "pt", "ru"))  # languages of notes that everyday has
RUNS: Mapping[str, Mapping[str, Any]] = {
    "without evolution": {"evolution.enabled": "false"},
    "with evolution": {},
    "killed": {},
}
Lines = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Year:
    """A persona whose sessions and notes fill the year that begins at `start`."""

    persona: Persona
    start: float
    lines: Lines  # of an import, in time order

    @property
    def end(self) -> float:
        return self.start + 365 * DAY_S

    def month(self, number: int) -> tuple[float, Lines]:
        """Return the month's end and what was said in it; month 0 is the first."""
        length = (self.end - self.start) / MONTHS
        since = self.start + number * length
        return since + length, [one for one in self.lines if since <= one["created_at"] < since + length]

    def asked(self) -> list[Question]:
        """Return the questions that the user asks during the year: every second one that has an answer."""
        return [question for question in self.persona.questions if question.answers][::2]


def years(*, quick: bool) -> list[Year]:
    """Return the users: the personas with several sessions, in eight languages."""
    files = sorted(EXTRA.glob("*.json"))[:3] + sorted((PERSONAS / "languages").glob("*.json"))
    personas = [p for p in load(files) if p.language in TODAY]
    return [_year(persona) for persona in (personas[:2] if quick else personas)]


def _year(persona: Persona) -> Year:
    start = min(session.at for session in persona.sessions)
    facts = [line(persona, session, fact) for session, fact in persona.facts()]
    inside = [one for one in facts if one["created_at"] < start + 365 * DAY_S]
    lines = sorted([*inside, *_notes(persona, start)], key=lambda one: one["created_at"])
    return Year(persona, start, lines)


def _notes(persona: Persona, start: float) -> Iterator[dict[str, Any]]:
    """Yield the episodic notes of the year's sessions, spread evenly."""
    said = [text for user in everyday.read((persona.language,)) for kind in NOTED for text in user[kind]]
    for number in range(NOTES):
        at = start + 365 * DAY_S * (number + 0.5) / NOTES
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        yield {
            "id": memory_id(f"{persona.user}-note{number}"),
            "object": "memory",
            "type": "episodic",
            "content": f"{day}: “{said[number % len(said)]}” ({number + 1})",
            "user_id": persona.user,
            "source": "summary",
            "created_at": at,
            "updated_at": at,
            "valid_from": at,
        }


# ---------------------------------------------------------------- living through it
async def run(directory: Path, settings: Mapping[str, Any], tick: Tick, *, quick: bool) -> Shares:
    """Return the metrics of all runs. Raises Refused."""
    lived = years(quick=quick)
    found = Tally()
    held: dict[str, dict[str, int]] = {}
    for name, own in RUNS.items():
        held[name] = await _lived(directory / name, {**SETTINGS, **settings, **own}, lived, found, name, tick)
    for year in lived:
        user, language = year.persona.user, year.persona.language
        before = held["without evolution"][user]
        for name in ("with evolution", "killed"):
            found.add(f"fewer active memories: {name}", language, 1 - held[name][user] / before)
    return found.shares()


async def _lived(
    directory: Path, settings: Mapping[str, Any], lived: Sequence[Year], found: Tally, name: str, tick: Tick
) -> dict[str, int]:
    """Let the users live; return how many active memories each has at the end."""
    model, chance = Model(), random.Random(7)
    for year in lived:
        contents = {fact.id: fact.content for _, fact in year.persona.facts()}
        for question in year.persona.questions:
            model.replies[question.query] = " ".join(contents[i] for i in sorted(question.answers))
    months = list(range(MONTHS))
    while months:
        async with opened(directory, model, settings) as house:
            while months and not await _month(house, lived, months.pop(0), chance, name, tick):
                pass
    async with opened(directory, model, settings) as house:
        return {year.persona.user: await _judged(house, year, found, name, tick) for year in lived}


async def _month(
    house: House, lived: Sequence[Year], month: int, chance: random.Random, name: str, tick: Tick
) -> bool:
    """Let all users live through a month and evolve. Return whether the proxy was killed."""
    for year in lived:
        await _said(house, year, month, tick)
    house.clock.set(max(year.month(month)[0] for year in lived))
    evolving = asyncio.gather(*(_evolved(house, year.persona.user) for year in lived))
    killed = name == "killed" and chance.random() < KILLED_SHARE
    if killed:
        await asyncio.sleep(chance.uniform(0, 0.5))
        house.process.kill()
    try:
        await evolving
    except (aiohttp.ClientError, OSError):
        if not killed:
            raise
    return killed


async def _said(house: House, year: Year, month: int, tick: Tick) -> None:
    """Store what was said in the month, and ask in its last days if it ends a quarter."""
    end, lines = year.month(month)
    if lines:
        await _imported(house, lines, end - 2 * DAY_S)
    if month % 3 == 2:
        for question in year.asked():
            await _chat(house, year.persona, question, month)
        await house.idle(120)
    tick(year.persona.user)


async def _imported(house: House, lines: Lines, at: float) -> None:
    house.clock.set(at)
    body = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines).encode()
    reply = await house.call("POST", "/v1/memory/import", body, content_type="application/x-ndjson")
    if reply.status != 200:
        raise Refused(f"import: {reply.status} {reply.body}")


async def _chat(house: House, persona: Persona, question: Question, month: int) -> None:
    """Ask as a user does: the exchange is stored, and the use of memories judged."""
    context = {"user_id": persona.user, "session_id": f"{question.id}-{month}"}
    if question.project:
        context["project_id"] = question.project
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": question.query}],
        "memory_context": context,
    }
    reply = await house.call("POST", "/v1/chat/completions", body, authorization="Bearer sk-eval")
    if reply.status != 200:
        raise Refused(f"{question.id}: {reply.status} {reply.body}")
    await house.call("POST", f"/v1/memory/sessions/{question.id}-{month}/end?user_id={persona.user}")


async def _evolved(house: House, user: str) -> None:
    """Run the evolution now. Without evolution there is none to run."""
    reply = await house.call("POST", "/v1/memory/evolve", {"user_id": user})
    if reply.status not in (200, 404, 409):
        raise Refused(f"evolve: {reply.status} {reply.body}")


# ---------------------------------------------------------------- what is left of it
async def _judged(house: House, year: Year, found: Tally, name: str, tick: Tick) -> int:
    """Ask all questions at the end of the year and compare the memories with the truth."""
    persona, language = year.persona, year.persona.language
    house.clock.set(year.end)
    by_id = {memory_id(fact.id): fact.id for _, fact in persona.facts()}
    for question in persona.questions:
        at = max(question.at, year.end)
        outcome = await ask(house, persona, replace(question, at=at), by_id)
        _count(found, outcome, name)
        tick(question.id)
    active = {m["id"] async for m in memories(house, persona.user)}
    visible = {m["id"] async for m in memories(house, persona.user, inactive=True)}
    current = {memory_id(fact.id) for fact in persona.current()} & {one["id"] for one in year.lines}
    found.add(f"current facts active: {name}", language, len(current & active) / len(current))
    found.add(f"lost: {name}", language, len({o["id"] for o in year.lines} - visible) / len(year.lines))
    return len(active)


def _count(found: Tally, outcome: Outcome, name: str) -> None:
    language = outcome.language
    if outcome.answers:
        for cut in CUTS[1:]:
            found.add(f"recall@{cut}: {name}", language, recall(outcome.injected, outcome.answers, cut))
        found.add(f"false silence: {name}", language, not outcome.injected)
    if outcome.stale:
        found.add(f"stale: {name}", language, bool(set(outcome.stale) & set(outcome.injected)))
    found.add(f"block: {name}", language, len(outcome.injected) / 10)
