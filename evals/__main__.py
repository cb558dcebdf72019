"""Evaluate the proxy through its HTTP API: `scripts/eval [--quick] [--part everyday] [--write]`.

Exits with 1 if a metric misses its floor (evals/floors.json).
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from evals import (
    baselines,
    conversations,
    data,
    documents,
    everyday,
    extraction,
    report,
    retrieval,
    score,
    use,
    year,
)
from evals.house import DidNotStart, opened
from evals.judge import Judge
from evals.model import Model
from proxy.models.load import load_embedder
from proxy.models.weights import ENCODER_NAME

SETS = ("unseen", "blind", "extra", "languages")
QUICK_PARTS = ("everyday", "changes", "statements", "forgetting")
PARTS = (
    "everyday",
    "changes",
    "statements",
    "forgetting",
    "retrieval",
    "extraction",
    "documents",
    "use",
    "year",
)
LIVED = {**conversations.PARTS, "year": year.run}  # the parts that are conversations with the proxy
# Quality is measured here, not speed: a busy machine must not turn answers into degraded ones.
SETTINGS = {"memory.deadline_ms": 5000}
SHORT = {"memory.budget_tokens": 400}
Found = dict[str, report.Systems]  # by part


class Run:
    """One run: its options, where it may write, and what it found."""

    def __init__(self, options: argparse.Namespace, directory: Path, progress: Progress) -> None:
        self.options, self.directory, self.progress = options, directory, progress
        self.settings = dict(pair.split("=", 1) for pair in options.set)
        self.misses: list[str] = []

    async def part(self, name: str) -> Found:
        """Return what a part found. Raises Refused, DidNotStart."""
        ways: dict[str, Callable[[], Coroutine[Any, Any, Found]]] = {
            "everyday": self._everyday,
            "retrieval": self._retrieval,
            "extraction": self._extraction,
            "documents": self._documents,
            "use": self._use,
        }
        if name in ways:
            return await ways[name]()
        shares = await LIVED[name](
            self.directory / name, self.settings, self.ticking(name), quick=self.options.quick
        )
        return {name: {report.OURS: shares}}

    async def _everyday(self) -> Found:
        """Ask the users of evals/everyday; in a quick run the first of two languages."""
        users = everyday.read(("en", "zh") if self.options.quick else ())
        if self.options.quick:
            users = [u for i, u in enumerate(users) if not i or u["language"] != users[i - 1]["language"]]
        standing = everyday.standing(users)
        return {"everyday": await self._ask("everyday", list(map(everyday.persona, users)), standing)}

    async def _retrieval(self) -> Found:
        """Ask the personas, one set after the other."""
        folders = [
            folder for folder in (*(data.PERSONAS / name for name in SETS), data.DEV) if folder.is_dir()
        ]
        sets = {folder.name: sorted(folder.glob("*.json")) for folder in folders}
        found: Found = {}
        for name, files in ({file.stem: [file] for file in self.options.data} or sets).items():
            personas = data.load(files)
            if self.options.said:
                personas = [data.as_said(persona) for persona in personas]
            found[f"retrieval {name}"] = await self._ask(f"retrieval-{name}", personas, score.Standing())
        return found

    async def _ask(
        self, name: str, personas: Sequence[data.Persona], standing: score.Standing
    ) -> report.Systems:
        """Return the shares of the product, and of the baselines unless the run is quick."""
        runs = {name: {}} if self.options.quick else {name: {}, f"{name}-400": SHORT}
        asked = {}
        for run, settings in runs.items():
            tick = self.ticking(run)
            asked[run] = outcomes = list[score.Outcome]()
            whole = {**SETTINGS, **self.settings, **settings}
            async with opened(self.directory / run, Model(), whole) as house:
                for persona in personas:
                    facts = await retrieval.store(house, persona)
                    outcomes += await retrieval.ask_all(house, persona, persona.questions, facts, tick)
        long, *short = asked.values()
        self.misses += score.misses(long, standing)
        systems = {report.OURS: score.tally(long, standing, *short)}
        if not self.options.quick:
            model = str(self.settings.get("embedding.model", ENCODER_NAME))
            others = await baselines.measure(personas, self.directory / "models", model, (600, 400))
            for one in baselines.NAMES if others else ():
                systems[one] = score.tally(others[f"{one}-600"], score.Standing(), others[f"{one}-400"])
        return systems

    async def _extraction(self) -> Found:
        """Replay the conversations of the personas with three extraction models, at the same time."""
        personas = data.load(self.options.data or sorted(data.EXTRA.glob("*.json")))
        judge = _judge(self.directory / "models")

        async def one(name: str) -> extraction.Report:
            place, tick = self.directory / name, self.ticking(name)
            return await extraction.run(name, personas, place, judge, tick, all_replays=name == "good")

        reports = await asyncio.gather(*map(one, extraction.EXTRACTORS))
        return {"extraction": {report.OURS: extraction.shares(reports, personas)}}

    async def _documents(self) -> Found:
        """Ask the questions to documents, and four personas."""
        personas = data.load(sorted(data.EXTRA.glob("*.json"))[:4])
        settings = {**SETTINGS, **self.settings}
        shares = await documents.run(personas, self.directory, settings, self.ticking("documents"))
        return {"documents": {report.OURS: shares}}

    async def _use(self) -> Found:
        """Judge which memories the answers of evals/use used."""
        return {"use": {report.OURS: await use.run(self.directory / "models", self.ticking("use"))}}

    def ticking(self, name: str) -> retrieval.Tick:
        """Return a callback that counts the steps of a part on the terminal."""
        bar = self.progress.add_task(name, total=None)
        return lambda _: self.progress.advance(bar)


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 170)
    missed: list[str] = []
    columns = (TextColumn("{task.description:24}"), TextColumn("{task.completed}"), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="memory-proxy-eval-") as scratch,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        run = Run(options, Path(scratch), progress)
        for name in options.part or (QUICK_PARTS if options.quick else PARTS):
            began = time.monotonic()
            try:
                found = asyncio.run(run.part(name))
            except (retrieval.Refused, DidNotStart, TimeoutError) as e:
                console.print(f"[red]The evaluation broke off:[/red] {e}", highlight=False)
                return 2
            extra = {"seconds": time.monotonic() - began, "settings": run.settings}
            limits = score.floors("quick" if options.quick else "full")
            for part, systems in found.items():
                report.show(console, part, systems)
                report.keep(part, systems, extra, quick=options.quick)
                missed += score.below(part, systems[report.OURS], limits)
    for line in run.misses if options.misses else ():
        console.print(line, highlight=False)
    if options.write:
        report.write()
    for line in missed:
        console.print(f"[red]below its floor:[/red] {line}", highlight=False)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/eval", description=__doc__.partition(":")[0] + ".")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--quick", action="store_true", help="samples in two languages: under 60 seconds")
    parser.add_argument("--data", type=Path, action="append", default=[], help="a file of personas")
    parser.add_argument("--said", action="store_true", help="memories are what the user said, not the facts")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a setting")
    parser.add_argument("--misses", action="store_true", help="list the questions that went wrong, by id")
    parser.add_argument("--write", action="store_true", help="write evals/RESULTS.md of the last full runs")
    return parser.parse_args()


def _judge(models_dir: Path) -> Judge:
    """Return a judge that embeds each text once; without an embedder only equal texts are the same."""
    embedder = load_embedder(models_dir).embedder
    made: dict[str, npt.NDArray[np.float32] | None] = {}

    async def embed(text: str) -> npt.NDArray[np.float32] | None:
        if text not in made:
            vectors = await embedder.embed([text]) if embedder else []
            made[text] = np.frombuffer(vectors[0], np.float32) if vectors else None
        return made[text]

    return Judge(embed)


if __name__ == "__main__":
    raise SystemExit(main())
