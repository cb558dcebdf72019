#!/usr/bin/env python3
"""Measure the read path on evaluation personas, in process: `scripts/dev/measure_recall.py DIR [options]`.

Stores every current gold fact of a persona in a fresh SQLite store with the packaged embedder, asks every
question through `prepare` and prints, per kind of question: recall of the answer's facts at 1, 5, 8, 10,
recall inside the injected block, MRR, wrong injections, right decisions, tokens. `--limit`, `--budget`,
`--dense-weight`, `--fusion` and `--threshold` are for choosing defaults. A developer's tool: the product is
measured through its HTTP API by scripts/eval.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.domain import Create, Memory, MemoryOptions, Message, Scope, Status, Turn
from proxy.embedtext import embed_text
from proxy.pipeline.prepare import Tools, _ask, _find, prepare
from proxy.pipeline.rank import Ranking
from proxy.stores.models.load import load_embedder
from proxy.stores.models.tokens import Tokens
from proxy.stores.sqlite.stores import SqliteStores

CUTS = (1, 5, 8, 10)
ANSWERED = "answered"  # questions whose answer is stored, all kinds together


@dataclass
class Tally:
    """What the questions of one kind came to."""

    asked: int = 0
    decided: int = 0  # search or skip, as expected
    injected: int = 0
    tokens: list[int] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)  # of each answer fact in the order, from 0
    shown: list[bool] = field(default_factory=list)  # whether it stood in the block


async def measure(personas: list[Any], options: argparse.Namespace) -> dict[str, Tally]:
    """Return the tallies by kind of question and by language."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    with tempfile.TemporaryDirectory() as data:
        embedder = None if options.lexical else load_embedder(Path(data)).embedder
        for persona in personas:
            stores = SqliteStores(Path(data) / persona["user_id"])
            await stores.open()
            clock = Moment()
            tools = Tools(
                memories=stores.memories,
                sessions=stores.sessions,
                embedder=embedder,
                tokens=Tokens(),
                clock=clock,
                budget_tokens=options.budget,
                ranking=Ranking(fusion=options.fusion, dense_weight=options.dense_weight),
            )
            await store_facts(persona, tools)
            for question in persona["questions"]:
                clock.now = seconds(question["date"])
                turn = turn_of(persona["user_id"], question, options)
                await ask(turn, question, tools, _groups(persona, question, tallies))
            await stores.close()
    return tallies


async def ask(turn: Turn, question: dict[str, Any], tools: Tools, tallies: Iterable[Tally]) -> None:
    """Put one question to the read path and add what came of it to the tallies."""
    prepared = await prepare(turn, tools)
    skipped = prepared.status is Status.SKIPPED
    query, wanted = await _ask(turn, tools)
    _, ranked = await _find(query, wanted, tools)
    order = [] if skipped else [r.memory.id for r in ranked]
    for tally in tallies:
        tally.asked += 1
        tally.decided += skipped == (question["expect"] == "skip")
        tally.injected += prepared.status is Status.INJECTED
        tally.tokens.append(prepared.tokens)
        for fact in question["answer_facts"]:
            tally.places.append(order.index(fact) if fact in order else None)
            tally.shown.append(fact in prepared.memory_ids)


async def store_facts(persona: dict[str, Any], tools: Tools) -> None:
    """Store the facts that no later fact supersedes, as the extraction would have."""
    facts = [(s, f) for s in persona["sessions"] for f in s["facts"]]
    superseded = {fact["supersedes"] for _, fact in facts}
    for session, fact in facts:
        if fact["id"] in superseded:
            continue
        scope = Scope("default", persona["user_id"], session["project_id"])
        at = seconds(session["date"])
        memory = Memory(
            id=fact["id"],
            scope=scope,
            type="preference" if fact.get("preference") else fact["type"],
            content=fact["content"],
            source="extracted",
            created_at=at,
            updated_at=at,
            valid_from=at,
            confidence=0.6 if fact.get("confidence") == "hedged" else 0.9,
        )
        text = embed_text(fact["content"])
        vector = None
        if tools.embedder and tools.embedder.understands(text):
            (vector,) = await tools.embedder.embed([text])
        stamp = await tools.memories.stamp(scope)
        await tools.memories.apply(scope, [Create(memory, vector)], expect=stamp)


def turn_of(user: str, question: dict[str, Any], options: argparse.Namespace) -> Turn:
    """Return the turn in which the question is asked."""
    earlier = tuple(Message(m["role"], m["content"]) for m in question["history"])
    return Turn(
        request_id=question["id"],
        scope=Scope("default", user, question["project_id"]),
        session_id="measure",
        model="gpt-4o",
        messages=(*earlier, Message("user", question["query"])),
        options=MemoryOptions(True, False, None, options.limit, options.threshold),
        at=seconds(question["date"]),
    )


class Moment:
    """A clock that stands where it is put."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def seconds(date: str) -> float:
    """Return the Unix seconds of an ISO date."""
    return datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp()


def _groups(persona: dict[str, Any], question: dict[str, Any], tallies: dict[str, Tally]) -> list[Tally]:
    names = [question["kind"]]
    if question["answer_facts"]:
        names += [ANSWERED, f"{ANSWERED} {persona['language']}"]
    elif question["kind"].startswith("skip"):
        names.append("skip_*")
    return [tallies[name] for name in names]


def report(tallies: dict[str, Tally]) -> None:
    """Print the table."""
    header = "".join(f"  r@{cut:<3}" for cut in CUTS)
    print(f"{'kind':16} asked decided{header}  block   MRR  injected  tokens")
    for kind in sorted(tallies):
        tally = tallies[kind]
        line = f"{kind:16} {tally.asked:5} {tally.decided / tally.asked:7.2f}"
        if tally.places:
            found = [place for place in tally.places if place is not None]
            line += "".join(f"  {sum(p < cut for p in found) / len(tally.places):.2f} " for cut in CUTS)
            line += f"  {statistics.mean(tally.shown):.2f}"
            line += f"  {sum(1 / (p + 1) for p in found) / len(tally.places):.2f}"
        else:
            line += " " * (7 * len(CUTS) + 13)
        print(f"{line}  {tally.injected / tally.asked:8.2f}  {statistics.mean(tally.tokens):6.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="folder with the personas, u*.json")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--budget", type=int, default=600)
    parser.add_argument("--threshold", type=float, default=None)
    parser.add_argument("--dense-weight", type=float, default=Ranking().dense_weight)
    parser.add_argument("--fusion", choices=("linear", "rrf"), default="linear")
    parser.add_argument("--lexical", action="store_true", help="without an embedder")
    options = parser.parse_args()
    files = sorted(options.directory.glob("u*.json"))
    personas = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    report(asyncio.run(measure(personas, options)))


if __name__ == "__main__":
    main()
