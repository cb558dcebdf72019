#!/usr/bin/env python3
"""Measure what the write gate takes pairs of facts for: `scripts/dev/measure_relations.py [--split dev]`.

On the relation pairs of `training/data`: how many changes and restatements are found, and how many facts that
hold side by side are taken for one. On the facts of whole users, which all hold: how many facts would close
or merge with one of the twelve nearest before them. For the constants of write_gate/decide.py and
`related_threshold`.
"""

import argparse
import asyncio
import gzip
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.admit.decision import verdict
from proxy.models.judge import OnnxJudge, load_judge
from proxy.models.load import load_embedder

DATA = Path(__file__).resolve().parents[2] / "training" / "data"
NEAREST = 12


def lines(split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (language, line) of a split."""
    for file in sorted((DATA / split).glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as packed:
            for line in packed:
                yield file.name[:2], json.loads(line)


class Measured:
    """The judge and the vectors, as the gate has them."""

    def __init__(self, directory: Path | None) -> None:
        models = Path(tempfile.mkdtemp())
        self.embedder = load_embedder(models).embedder
        loaded = load_judge(models, self.embedder, directory=directory)
        if self.embedder is None or loaded.judge is None:
            sys.exit(f"no judge here: {loaded.note}")
        self.judge: OnnxJudge = loaded.judge

    async def verdicts(self, pairs: list[tuple[str, str]]) -> list[str]:
        """Return the verdict on each pair; one whose cosine is below the model's threshold is not judged."""
        assert self.embedder is not None
        texts = [text for pair in pairs for text in pair]
        vectors = np.frombuffer(b"".join(await self.embedder.embed(texts)), np.float32)
        vectors = vectors.reshape(len(texts), -1)
        cosines = (vectors[::2] * vectors[1::2]).sum(axis=1)
        near = [i for i, c in enumerate(cosines) if c >= self.embedder.model.related_threshold]
        found = ["apart"] * len(pairs)
        for i, relation in zip(near, await self.judge.relations([pairs[i] for i in near]), strict=True):
            found[i] = verdict(relation, float(cosines[i]))
        return found

    async def nearest(self, facts: list[str]) -> list[tuple[int, str, str]]:
        """Return (number of the fact, older, newer) for the nearest before each fact."""
        assert self.embedder is not None
        vectors = np.frombuffer(b"".join(await self.embedder.embed(facts)), np.float32)
        cosines = (made := vectors.reshape(len(facts), -1)) @ made.T
        return [
            (i, facts[j], facts[i])
            for i in range(1, len(facts))
            for j in np.argsort(-cosines[i, :i])[:NEAREST]
        ]


async def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--split", default="dev", choices=("train", "dev", "test"))
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--heads", type=Path, help="a directory of heads; default: those that ship")
    options = parser.parse_args()
    measured, read = Measured(options.heads), list(lines(options.split))
    rows = [(lang, line) for lang, line in read if line["task"] == "relation"]
    found = await measured.verdicts([(line["old"], line["new"]) for _, line in rows])
    for lang in ("all", *sorted({lang for lang, _ in rows})):
        counts = Counter(
            (line["label"], v) for (at, line), v in zip(rows, found, strict=True) if lang in ("all", at)
        )
        for label in ("changed", "same", "apart"):
            total = sum(n for (true, _), n in counts.items() if true == label)
            shares = {v: round(counts[label, v] / max(1, total), 2) for v in ("changed", "same", "apart")}
            print(f"{lang:4} {label:8} {total:4} {shares}")
    users = [line["facts"] for _, line in read if line["task"] in ("relevance", "retrieval")]
    users = random.Random(0).sample(users, min(options.users, len(users)))
    total, wrong = 0, Counter[str]()
    for facts in users:
        near = await measured.nearest(facts)
        said = await measured.verdicts([(old, new) for _, old, new in near])
        taken = {(at, v) for (at, _, _), v in zip(near, said, strict=True) if v != "apart"}
        wrong.update(v for _, v in taken)
        total += len(facts) - 1
    print(f"facts of {len(users)} users, all true: {total}, taken for another: {dict(wrong)}")
    measured.judge.close()


if __name__ == "__main__":
    asyncio.run(main())
