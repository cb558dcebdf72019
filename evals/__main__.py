"""Evaluate the proxy through its HTTP API: `scripts/eval [--quick] [--part retrieval] [--compare FILE]`."""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from evals import baselines, data, documents, extraction, report, retrieval, score
from evals.house import ROOT, DidNotStart, environment_of, opened
from evals.judge import Judge
from evals.model import Model
from proxy.errors import ConfigError
from proxy.settings import load
from proxy.stores.models.catalog import OURS
from proxy.stores.models.load import load_embedder

PARTS = ("retrieval", "extraction", "documents")
# Quality is measured here, not speed: a busy machine must not turn answers into degraded ones.
SETTINGS = {"memory.deadline_ms": 5000}
# Those whose settings this proxy does not have are left out, and said to be.
ABLATIONS: dict[str, dict[str, Any]] = {
    "budget-400": {"memory.budget_tokens": 400},
    "limit-5": {"memory.default_retrieval_limit": 5},
    "limit-20": {"memory.default_retrieval_limit": 20},
    "threshold-.15": {"memory.default_similarity_threshold": 0.15},  # the model's own is .25
    "threshold-.4": {"memory.default_similarity_threshold": 0.4},
    "no-dense": {"retrieval.dense": "false"},
    "no-lexical": {"retrieval.lexical": "false"},
    "rrf": {"retrieval.fusion": "rrf"},
    "dense-weight-.5": {"retrieval.dense_weight": 0.5},
    "dense-weight-.9": {"retrieval.dense_weight": 0.9},
    "no-decay": {"retrieval.recency_depth": 0},
}


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 150)
    personas = data.load(_files(options))
    if options.said:
        personas = [data.as_said(persona) for persona in personas]
    if not personas:
        console.print("No personas: name a folder with --data, or check evals/personas.")
        return 2
    began = time.monotonic()
    try:
        kept = asyncio.run(_run(options, personas, console))
    except (retrieval.Refused, DidNotStart, TimeoutError) as e:
        console.print(f"[red]The evaluation broke off:[/red] {e}", highlight=False)
        return 1
    kept["seconds"] = round(time.monotonic() - began, 1)
    if options.compare:
        report.compare(console, kept, json.loads(options.compare.read_text("utf-8")))
    file = _keep(kept)
    console.print(f"{kept['seconds']:.0f} s; kept in {file.relative_to(ROOT)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/eval", description=__doc__.partition(":")[0] + ".")
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        help="folder or file of personas (default: ../shared, personas/extra)",
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--said", action="store_true", help="memories are what the user said, not the facts")
    parser.add_argument("--quick", action="store_true", help="no replays, one ablation: under 90 seconds")
    parser.add_argument("--ablation", choices=sorted(ABLATIONS), action="append", help="only these")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a setting")
    parser.add_argument("--misses", action="store_true", help="list the questions that went wrong")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier run's JSON")
    return parser.parse_args()


def _files(options: argparse.Namespace) -> list[Path]:
    given = options.data or [data.DEV, data.EXTRA]
    return [
        file for one in given for file in (sorted(one.glob("[a-z][0-9]*.json")) if one.is_dir() else [one])
    ]


async def _run(
    options: argparse.Namespace, personas: Sequence[data.Persona], console: Console
) -> dict[str, Any]:
    parts = options.part or PARTS
    given = dict(pair.split("=", 1) for pair in options.set)
    kept: dict[str, Any] = {**_meta(), "settings": {**SETTINGS, **given}, "scores": {}, "misses": []}
    with tempfile.TemporaryDirectory(prefix="memory-proxy-eval-") as scratch, _progress(console) as progress:
        directory = Path(scratch)
        if "retrieval" in parts:
            runs, others = await _retrieval(options, personas, directory, given, progress)
        if "extraction" in parts:
            reports = await _extraction(options, personas, directory, progress)
        if "documents" in parts:
            read = await _documents(options, personas, directory, given, progress)
    if "retrieval" in parts:
        _tell_retrieval(console, options, runs, others, kept)
    if "extraction" in parts:
        report.extractions(console, reports)
        report.forbidden(console, reports)
        kept["extraction"] = [asdict(r) | {"verdicts": _verdicts(r)} for r in reports]
    if "documents" in parts:
        documents.tell(console, read)
        kept["documents"] = documents.as_json(read)
    return kept


# ------------------------------------------------------------ retrieval
Runs = dict[str, list[score.Outcome]]


async def _retrieval(
    options: argparse.Namespace,
    personas: Sequence[data.Persona],
    directory: Path,
    given: dict[str, Any],
    progress: Progress,
) -> tuple[Runs, Runs]:
    """Return the outcomes of all runs, by name, and those of the baselines."""
    names = options.ablation or (["budget-400"] if options.quick else list(ABLATIONS))
    wanted = {"default": {}, **{name: ABLATIONS[name] for name in names if _knows(ABLATIONS[name])}}
    if unknown := [name for name in names if name not in wanted]:
        progress.console.print(f"left out, for want of their settings: {', '.join(unknown)}")
    total = sum(len(p.questions) for p in personas)
    model = str(given.get("embedding.model", OURS))
    runs: Runs = {}
    for name, settings in wanted.items():
        bar = progress.add_task(f"retrieval, {name}", total=total)
        runs[name] = []
        async with opened(directory / name, Model(), {**SETTINGS, **given, **settings}) as house:
            stored = {p.user: await retrieval.store(house, p) for p in personas}
            for persona in personas:
                runs[name] += await retrieval.ask_all(
                    house, persona, persona.questions, stored[persona.user], _advance(progress, bar)
                )
        progress.remove_task(bar)
    return runs, await baselines.measure(personas, directory / "models", model, (600, 400))


def _knows(settings: dict[str, Any]) -> bool:
    """True if this proxy has the settings."""
    try:
        load(None, environment_of(settings))
    except ConfigError:
        return False
    return True


def _tell_retrieval(
    console: Console, options: argparse.Namespace, runs: Runs, others: Runs, kept: dict[str, Any]
) -> None:
    report.retrieval(console, "Retrieval", runs["default"])
    report.baselines(console, runs, others)
    report.ablations(console, runs)
    kept["goals"] = report.goals(console, runs)
    kept["misses"] = score.misses(runs["default"])
    kept["scores"] = {name: round(score.overall(outcomes), 2) for name, outcomes in runs.items()}
    kept["retrieval"] = {name: report.as_json(outcomes) for name, outcomes in {**runs, **others}.items()}
    if options.misses:
        for line in kept["misses"]:
            console.print(line, highlight=False)


# ------------------------------------------------------------ extraction
async def _extraction(
    options: argparse.Namespace, personas: Sequence[data.Persona], directory: Path, progress: Progress
) -> list[extraction.Report]:
    judge = _judge(directory / "models")

    async def run(name: str) -> extraction.Report:
        again, everything = not options.quick, name == "good" and not options.quick
        passes = 1 + again + everything
        total = passes * sum(len(p.sessions) for p in personas)
        tick = _advance(progress, progress.add_task(f"extraction, {name}", total=total))
        return await extraction.run(
            name, personas, directory / name, judge, tick, again=again, all_replays=everything
        )

    # They wait more than they work: side by side.
    return list(await asyncio.gather(*map(run, extraction.EXTRACTORS)))


def _judge(models_dir: Path) -> Judge:
    """Return a judge that embeds each text once; without an embedder only equal texts are the same."""
    embedder = load_embedder(models_dir).embedder
    made: dict[str, npt.NDArray[np.float32] | None] = {}

    async def embed(text: str) -> npt.NDArray[np.float32] | None:
        if text not in made:
            known = embedder is not None and embedder.understands(text)
            vectors = await embedder.embed([text]) if known and embedder else []
            made[text] = np.frombuffer(vectors[0], np.float32) if vectors else None
        return made[text]

    return Judge(embed)


def _verdicts(one: extraction.Report) -> dict[str, Any]:
    return {
        user: {
            **asdict(v),
            "found": sorted(v.found),
            "covered": sorted(v.covered),
            "recall": v.recall,
            "precision": v.precision,
        }
        for user, v in one.verdicts.items()
    }


# ------------------------------------------------------------ documents
async def _documents(
    options: argparse.Namespace,
    personas: Sequence[data.Persona],
    directory: Path,
    given: dict[str, Any],
    progress: Progress,
) -> documents.Report:
    some = personas[:2] if options.quick else personas
    total = len(documents.questions()) + 2 * sum(len(p.questions) for p in some)
    tick = _advance(progress, progress.add_task("documents", total=total))
    return await documents.run(some, directory, {**SETTINGS, **given}, tick)


# ------------------------------------------------------------ words
def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _advance(progress: Progress, bar: TaskID) -> retrieval.Tick:
    return lambda _: progress.advance(bar)


def _meta() -> dict[str, Any]:
    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
            )
        except OSError:
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = bool(git("status", "--porcelain", "--", "proxy"))
    return {
        "commit": f"{commit}, with changes" if changed else commit,
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }


def _keep(kept: dict[str, Any]) -> Path:
    """Write the results beside the checkout's other results; return the file."""
    directory = ROOT / "results" / "eval"
    directory.mkdir(parents=True, exist_ok=True)
    commit = str(kept["commit"]).partition(",")[0]
    file = directory / f"eval-{time.strftime('%Y%m%d-%H%M%S')}-{commit}.json"
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False), "utf-8")
    return file


if __name__ == "__main__":
    raise SystemExit(main())
