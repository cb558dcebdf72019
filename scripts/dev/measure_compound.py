"""Measure questions that ask several things (evals/extra/compound.json) through the HTTP API.

`.venv/bin/python scripts/dev/measure_compound.py [--misses] [--set SECTION.KEY=VALUE]`: of every part
asked, is its answer among the first five memories injected, and in the block? Of the questions the even half
was in sight when the rules were written, the odd half was not; of the things ("my rent and my fee") all were.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evals import data, retrieval  # noqa: E402
from evals.house import opened  # noqa: E402
from evals.model import Model  # noqa: E402

Row = tuple[str, str, list[bool], list[bool], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    settings = {"memory.deadline_ms": 5000, **dict(pair.split("=", 1) for pair in options.set)}
    rows = asyncio.run(_run(settings))
    groups: dict[str, list[Row]] = defaultdict(list)
    for place, row in enumerate(rows):
        seen = "odd, held out" if place % 2 else "even, in sight"
        groups["things, in sight" if row[0].startswith("t") else seen].append(row)
        groups[row[0][1:3]].append(row)
    print(f"{'':17}asked  part@5  all@5  part in block  all in block   ms p50")
    for name, group in groups.items():
        print(f"{name:17}{len(group):5}{_line(group)}")
    if options.misses:
        for question, query, first, block, _ in rows:
            if not all(first):
                print(question, query, "@5:", first, "block:", block)


def _line(rows: list[Row]) -> str:
    first = [hit for row in rows for hit in row[2]]
    block = [hit for row in rows for hit in row[3]]
    whole, held = [all(row[2]) for row in rows], [all(row[3]) for row in rows]
    ms = sorted(row[4] for row in rows)[len(rows) // 2]
    shares = [sum(hits) / len(hits) for hits in (first, whole, block, held)]
    return f"{shares[0]:8.2f}{shares[1]:7.2f}{shares[2]:15.2f}{shares[3]:14.2f}{ms:9.1f}"


async def _run(settings: dict[str, Any]) -> list[Row]:
    asked = json.loads((data.EXTRA / "compound.json").read_text("utf-8"))
    files = [f for folder in (data.DEV, data.EXTRA) for f in sorted(folder.glob("[a-z][0-9]*.json"))]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="memory-proxy-compound-") as scratch:
        async with opened(Path(scratch), Model(), settings) as house:
            for persona in data.load(files):
                ours = [one for one in asked if one["user"] == persona.user]
                facts = await retrieval.store(house, persona) if ours else {}
                house.clock.set(max(q.at for q in persona.questions))
                for one in ours:
                    rows.append(await _ask(house, one, facts))
    order = [one["id"] for one in asked]
    return sorted(rows, key=lambda row: order.index(row[0]))


async def _ask(house: Any, one: dict[str, Any], facts: dict[str, str]) -> Row:
    body = {
        "model": retrieval.MODEL,
        "messages": [{"role": "user", "content": one["query"]}],
        "memory_context": {"user_id": one["user"], "session_id": one["id"]},
    }
    named = {"authorization": "Bearer sk-eval", "x_memory_mode": "read"}
    reply = await house.call("POST", "/v1/chat/completions", body, **named)
    ids = filter(None, reply.headers.get("x-memory-ids", "").split(","))
    found = [facts.get(i, "?") for i in ids]
    first = [bool(set(part) & set(found[:5])) for part in one["parts"]]
    block = [bool(set(part) & set(found)) for part in one["parts"]]
    dur = reply.headers.get("server-timing", "memory;dur=0").split("dur=")[1].split(",")[0]
    return one["id"], one["query"], first, block, float(dur)


if __name__ == "__main__":
    main()
