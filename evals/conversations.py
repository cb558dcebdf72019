"""Send messages to the proxy as a user, with a scripted extraction model, and compare what is remembered.

Parts: `changes` (a second message updates, repeats or does not affect a memory), `statements` (which
candidates of an extraction model are stored) and `forgetting` (requests to forget, off the record).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals import everyday
from evals.data import HERE, Fact, Persona, Session
from evals.house import House, Reply, opened
from evals.model import KNOWN, Extractor, Model, conversation_of, flat, grams, pieces, quote, sloppy
from evals.retrieval import MODEL, Refused, Tick, fact_ids, memories, store
from evals.score import Shares, Tally

SETTINGS = {
    "memory.personal_idle_seconds": 0.1,
    "memory.idle_seconds": 0.1,
    "memory.deadline_ms": 5000,
    "storage.exchange_ttl_days": 3650,
}
AT_ONCE = 8
SAME = 0.5  # share of common n-grams from which a memory is a candidate's
QUICK_STRIDE = 4
Facts = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Scripted:
    """An extraction model that answers with the facts prepared for the message in the prompt."""

    facts: Mapping[str, Facts]
    otherwise: Extractor = lambda prompt: '{"facts": []}'
    replaces: bool = False  # names the first known memory in `replaces`
    _pieces: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, prompt: str) -> str:
        said = flat(conversation_of(prompt))
        best = max(self.facts, key=lambda message: self._shown(message, said), default="")
        if not best or not self._shown(best, said):
            return self.otherwise(prompt)
        known = KNOWN.search(prompt) if self.replaces else None
        replaced = {"replaces": known["id"] if known else None}
        return json.dumps({"facts": [{**fact, **replaced} for fact in self.facts[best]]}, ensure_ascii=False)

    def _shown(self, message: str, said: str) -> int:
        """Return how many letters of the message are in the prompt: parts of it may be cut or redacted."""
        held = self._pieces.setdefault(message, pieces(message))
        return sum(len(piece) for piece in held if piece in said)


def fact(content: str, message: str, kind: str = "semantic") -> dict[str, Any]:
    """Return a candidate as a model gives it, with literal evidence."""
    evidence = quote(content, message)
    return {"type": kind, "content": content, "confidence": 0.95, "tags": [], "evidence": evidence}


async def tell(house: House, claimed: Sequence[tuple[str, str]], tick: Tick) -> dict[str, Reply]:
    """Send each (user, message) as a conversation of its own, end it, and wait until all is extracted."""
    turns = asyncio.Semaphore(AT_ONCE)
    replies: dict[str, Reply] = {}

    async def one(user: str, message: str) -> None:
        context = {"user_id": user, "session_id": f"tell-{user}"}
        said = [{"role": "user", "content": message}]
        body = {"model": MODEL, "messages": said, "memory_context": context}
        async with turns:
            reply = await house.call("POST", "/v1/chat/completions", body, authorization="Bearer sk-eval")
            if reply.status != 200:
                raise Refused(f"{user}: {reply.status} {reply.body}")
            await house.call("POST", f"/v1/memory/sessions/tell-{user}/end?user_id={user}")
        replies[user] = reply
        tick(user)

    await asyncio.gather(*(one(*pair) for pair in claimed))
    await house.idle(120)
    return replies


async def _stored(house: House, user: str) -> list[str]:
    return [m["content"] async for m in memories(house, user)]


def likeness(one: str, other: str) -> float:
    """Return the share of common n-grams of two texts."""
    first, second = grams(one), grams(other)
    return len(first & second) / (len(first | second) or 1)


def nearest(content: str, candidates: Sequence[str]) -> int | None:
    """Return the place of the candidate that a memory states; None where none is like it."""
    scores = [1.0 if flat(c) in flat(content) else likeness(content, c) for c in candidates]
    best = max(range(len(scores)), key=scores.__getitem__, default=None)
    return best if best is not None and scores[best] >= SAME else None


def rows(part: str, *, quick: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the (language, row) of a part's sets; a quick run takes some of two languages."""
    files = [file for file in sorted((HERE / part).glob("*.json")) if not quick or file.stem in ("en", "zh")]
    step = QUICK_STRIDE if quick else 1
    return [(file.stem, row) for file in files for row in json.loads(file.read_text("utf-8"))[::step]]


# ------------------------------------------------------------ changes
async def changes(directory: Path, settings: Mapping[str, Any], tick: Tick, *, quick: bool) -> Shares:
    """Return which updates are found, restatements recognised and other facts left apart."""
    pairs = [(f"change-{i}", language, row) for i, (language, row) in enumerate(rows("changes", quick=quick))]
    script = Scripted({row["said"]: [fact(row["new"], row["said"])] for _, _, row in pairs})
    found = Tally()
    async with opened(directory, Model(extract=script), {**SETTINGS, **settings}) as house:
        for suffix in ("", "-replaces"):
            script.replaces = bool(suffix)
            asked = [
                (u + suffix, lang, row) for u, lang, row in pairs if not suffix or row["label"] == "apart"
            ]
            for user, _, row in asked:
                await store(house, _holder(user, row["old"]))
            house.clock.set(everyday.ASKED)
            await tell(house, [(user, row["said"]) for user, _, row in asked], tick)
            for user, language, row in asked:
                _judge_change(found, language, row, await _stored(house, user), bool(suffix))
    return found.shares()


def _holder(user: str, content: str) -> Persona:
    """Return a user with one memory."""
    held = Fact(f"{user}-f1", "semantic", content, (), None, hedged=False)
    return Persona(user, "", (Session(f"{user}-s", everyday.STORED, None, (), (held,), ()),), ())


def _judge_change(
    found: Tally, language: str, row: Mapping[str, str], held: list[str], claimed: bool
) -> None:
    """Count the outcome of a pair. `claimed`: the model said that the new fact replaces the old one."""
    positions = [nearest(content, (row["old"], row["new"])) for content in held]
    old, new = 0 in positions, 1 in positions
    if claimed:
        found.add("replaces believed", language, not old)
    elif row["label"] == "changed":
        found.add("updates found", language, new and not old)
    elif row["label"] == "same":
        found.add("restatements recognised", language, len(held) == 1)
        found.add("updates wrong", language, not held)
    else:
        found.add("apart kept", language, old and new)
        found.add("updates wrong", language, not old)


# ------------------------------------------------------------ statements
async def statements(directory: Path, settings: Mapping[str, Any], tick: Tick, *, quick: bool) -> Shares:
    """Return what the gate stores of a careless and of a good extraction model's candidates."""
    said = [(f"{i}", language, row) for i, (language, row) in enumerate(rows("statements", quick=quick))]
    found, script = Tally(), Scripted({})
    async with opened(directory, Model(extract=script), {**SETTINGS, **settings}) as house:
        house.clock.set(everyday.ASKED)
        for model in ("careless", "good"):
            script.facts = {row["message"]: _given(row, model) for _, _, row in said}
            await tell(house, [(f"{model}-{user}", row["message"]) for user, _, row in said], tick)
            for user, language, row in said:
                _judge_statement(found, language, row, await _stored(house, f"{model}-{user}"), model)
    return found.shares()


def _given(row: Mapping[str, Any], model: str) -> Facts:
    """Return the candidates that a model gives: all of them, or the right ones."""
    candidates = row["candidates"]
    return [fact(c["content"], row["message"]) for c in candidates if model == "careless" or c["store"]]


def _judge_statement(
    found: Tally, language: str, row: Mapping[str, Any], held: list[str], model: str
) -> None:
    candidates = row["candidates"]
    positions = {nearest(content, [c["content"] for c in candidates]) for content in held}
    for place, candidate in enumerate(candidates):
        if candidate["store"]:
            found.add(f"gate recall: {model} model", language, place in positions)
        elif model == "careless":
            found.add(f"stored: {row['kind']}", language, place in positions)
            found.add("stored: any", language, place in positions)
    for stated in positions:
        right = stated is not None and candidates[stated]["store"]
        found.add(f"gate precision: {model} model", language, right)


# ------------------------------------------------------------ forgetting
async def forgetting(directory: Path, settings: Mapping[str, Any], tick: Tick, *, quick: bool) -> Shares:
    """Return whether "forget …" hides and forgets what it names, and "off the record" stores nothing. The
    extraction model takes every sentence for a fact."""
    users = everyday.read(("en", "zh") if quick else ())
    forget, private = everyday.copies(users, "forget"), everyday.copies(users, "off_record")
    if quick:
        forget, private = forget[::QUICK_STRIDE], private[::QUICK_STRIDE]
    found = Tally()
    async with opened(directory, Model(extract=sloppy), {**SETTINGS, **settings}) as house:
        facts = {one.user: await store(house, one) for one, _, _ in forget}
        house.clock.set(everyday.ASKED)
        replies = await tell(house, [(one.user, text) for one, text, _ in (*forget, *private)], tick)
        for one, _, ids in forget:
            shown = replies[one.user].headers.get("x-memory-ids", "").split(",")
            seen = {facts[one.user].get(memory) for memory in filter(None, shown)}
            found.add("hidden at once", one.language, not ids & seen)
            held = {m["id"] async for m in memories(house, one.user)}
            left = {fact for memory, fact in (await fact_ids(house, one)).items() if memory in held}
            found.add("forgotten", one.language, not ids & left)
            others = {fact.id for _, fact in one.facts()} - ids
            found.add("forgotten too much", one.language, not others <= left)
            found.add("stored: of a request to forget", one.language, len(held) > len(left))
        for one, _, _ in private:
            found.add("stored: off the record", one.language, bool(await _stored(house, one.user)))
    return found.shares()


PARTS: Mapping[str, Callable[..., Any]] = {f.__name__: f for f in (changes, statements, forgetting)}
