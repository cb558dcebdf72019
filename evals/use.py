"""Which of the memories that an answer was given with it used, judged as the background pass does.

evals/use/<language>.jsonl holds exchanges: `lang`, `question`, `answer`, and `memories`, each with `content`
and `used`. Precision: of the memories that are judged as used, the share that was; recall: of those that were
used, the share that is judged so; with the models, and by names, numbers and words alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evals.data import PERSONAS
from evals.retrieval import Tick
from evals.score import Shares, Tally
from proxy.domain.ports import MemoryText
from proxy.learn.evolution import UseJudge, is_used, shared
from proxy.models.judge import load_judge
from proxy.models.load import load_embedder

USE = PERSONAS.parent / "use"


async def run(models: Path, tick: Tick) -> Shares:
    """Return the shares by metric and language."""
    judge = load_judge(models, load_embedder(models).embedder).judge
    found = Tally()
    for file in sorted(USE.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            exchange = json.loads(line)
            for way, judging in (("", UseJudge(judge)), (": without models", UseJudge(None))):
                for memory, judged in zip(
                    exchange["memories"], await judged_by(judging, exchange), strict=True
                ):
                    if judged:
                        found.add(f"precision{way}", exchange["lang"], float(memory["used"]))
                    if memory["used"]:
                        found.add(f"recall{way}", exchange["lang"], float(judged))
            tick(file.stem)
    return found.shares()


async def judged_by(judging: UseJudge, exchange: Mapping[str, Any]) -> list[bool]:
    """Return for each memory of the exchange whether it is judged as used."""
    contents = [memory["content"] for memory in exchange["memories"]]
    helps = await judging.helps(exchange["answer"], [MemoryText(content) for content in contents])
    common = shared(contents, exchange["question"], exchange["answer"])
    return [is_used(chance, one) for chance, one in zip(helps, common, strict=True)]
