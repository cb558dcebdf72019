#!/usr/bin/env python3
"""Measure the write gate on evaluation personas, in process: `scripts/dev/measure_gate.py [DIR]`.

Every persona's conversations are cut into exchanges and go through the gate in two ways: (a) verbatim mode,
where the user's own sentences are the candidates; (b) a sloppy extraction model, which returns every sentence
of both sides as a fact with itself as evidence, and the gold facts besides. Printed are, per persona and per
reason, how many forbidden spans would be stored or held, and how many gold facts are kept. A span counts as
stored if its words stand in the content of what was stored. `--verbose` names them (by id, with the span).
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.background.extraction import extract, verbatim
from proxy.background.extraction.doubt import judge_of
from proxy.background.extraction.provenance import flat
from proxy.background.safety.filters import redact
from proxy.background.safety.policy import DEFAULT
from proxy.background.write_gate.admit import Gate, Sorted, sort
from proxy.domain import Batch, Candidate, Exchange, Scope, Stamp
from proxy.sentences import sentences
from proxy.terms import terms

MUST_BE_NONE = ("secret", "pii", "poison")
GATE = Gate(memories=None, embedder=None, policy=DEFAULT)  # type: ignore[arg-type]  # no store is asked
LONGEST = 790  # characters of a fact


@dataclass
class Tally:
    """What one persona came to, in one of the two ways."""

    spans: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gold: list[bool] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def exchanges(persona: dict[str, Any], session: dict[str, Any]) -> Iterator[tuple[Exchange, set[str]]]:
    """Yield the session's exchanges as they would be on disk, each with the ids of its turns."""
    scope = Scope("eval", persona["user_id"], session["project_id"])
    at = datetime.fromisoformat(session["date"]).timestamp()
    said: list[Any] = []
    for number, turn in enumerate(session["turns"]):
        following = session["turns"][number + 1 : number + 2]
        if turn["role"] != "assistant":
            said.append(turn)
        if said and (turn["role"] == "assistant" or not following):
            answer = turn if turn["role"] == "assistant" else {"id": "", "content": ""}
            yield (
                Exchange(
                    seq=number,
                    id=f"{session['session_id']}-{number}",
                    scope=scope,
                    session_id=session["session_id"],
                    model="m",
                    said=redact("\n\n".join(t["content"] for t in said)),
                    answer=redact(answer["content"]),
                    at=at,
                    whole=True,
                ),
                {t["id"] for t in (*said, answer)},
            )
            said = []


def sloppy_answer(exchange: Exchange, raw: str, gold: list[dict[str, Any]]) -> str:
    """Return the answer of a model that takes every sentence, of the unredacted text, for a fact."""
    found = [
        {"type": "semantic", "content": s[:LONGEST], "confidence": 0.9, "evidence": s[:LONGEST]}
        for s in sentences(raw)
        if len(s) > 3
    ]
    facts = [
        {"type": f["type"], "content": f["content"], "confidence": 0.9, "evidence": quoted(f, raw)}
        for f in gold
    ]
    return json.dumps({"facts": facts + found})


def quoted(fact: dict[str, Any], raw: str) -> str:
    """Return the sentence that shares most of its words with the fact, as a model would quote it."""
    words = set(terms(fact["content"]))
    return max(sentences(raw), key=lambda s: len(words & set(terms(s))), default="")


def sorted_by_gate(candidates: tuple[Candidate, ...], exchange: Exchange) -> Sorted:
    return sort(candidates, GATE, judge_of(DEFAULT, [exchange]), exchange.at)


def measure(persona: dict[str, Any], way: str) -> Tally:
    """Return the persona's tally."""
    tally = Tally()
    for session in persona["sessions"]:
        texts = {t["id"]: t["content"] for t in session["turns"]}
        for exchange, ids in exchanges(persona, session):
            batch = Batch((exchange,), (), Stamp(0, 0))
            gold = [f for f in session["facts"] if f["evidence"] and f["evidence"][-1] in ids]
            if way == "verbatim":
                candidates = verbatim.candidates(batch)
            else:
                raw = "\n".join(texts[i] for i in sorted(ids) if i in texts)
                candidates = extract.facts(sloppy_answer(exchange, raw, gold), batch, ()).candidates
            _count(tally, session, ids, gold if way == "sloppy" else [], sorted_by_gate(candidates, exchange))
    return tally


def _count(tally: Tally, session: dict[str, Any], ids: set[str], gold: list[Any], result: Sorted) -> None:
    stored = [flat(c.content) for c in result.kept]
    held = [flat(c.content) for c, _ in result.held]
    reasons = {flat(c.content): why for c, why in result.held}
    for span in session["never_store"]:
        if span["evidence"] not in ids:
            continue
        words = flat(span["span"])
        hit = any(words in content for content in stored)
        tally.spans[span["reason"]].append(hit)
        if hit:
            tally.notes.append(f"stored {span['reason']} {span['evidence']}: {span['span'][:70]!r}")
        elif any(words in content for content in held):
            tally.held[span["reason"]] += 1
    for fact in gold:
        kept = flat(fact["content"]) in stored
        tally.gold.append(kept)
        if not kept:
            why = reasons.get(flat(fact["content"]), "dropped")
            tally.notes.append(f"lost gold {fact['id']} ({why}): {fact['content'][:90]!r}")


def main() -> int:
    """Print the tables; 1 if a span that must never be stored would be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    personas = [json.loads(path.read_text("utf-8")) for path in sorted(options.directory.glob("u*.json"))]
    leaked = 0
    for way in ("verbatim", "sloppy"):
        print(f"\n{way}: forbidden spans stored (held) of all, gold facts kept")
        for persona in personas:
            tally = measure(persona, way)
            cells = [
                f"{reason} {sum(hits)} ({tally.held[reason]}) of {len(hits)}"
                for reason, hits in sorted(tally.spans.items())
            ]
            gold = f"gold {sum(tally.gold)}/{len(tally.gold)}" if tally.gold else ""
            print(f"  {persona['user_id']}  " + "  ".join((*cells, gold)))
            leaked += sum(sum(tally.spans[reason]) for reason in MUST_BE_NONE)
            for note in tally.notes if options.verbose else ():
                print(f"      {note}")
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
