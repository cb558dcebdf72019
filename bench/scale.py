"""Fill a store with made-up users, and show how latency, memory and disk grow with them.

Every step multiplies the users; after each, users drawn at random are asked and told something, some whose
arrays a process has at hand and some whose it has not. Times are those that were measured, up to the size
that the minutes given allow; of more memories only the size is told, along a straight line, and is marked so.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bench.crowd import Census, Crowd
from bench.growth import Heavy, Step, heavy_table, measured, measured_heavy, table
from bench.operations import Timed, operations, operations_table
from proxy import __version__, telemetry
from proxy.app.open_stores import stores_of
from proxy.config import Settings, load
from proxy.domain.ports import EmbeddingModel

Found = tuple[list[Step], list[Heavy], list[Timed]]


async def run(options: argparse.Namespace, data: Path, console: Console) -> Found:
    """Fill and measure, or only measure; return what was found."""
    settings = settings_of(options, data)
    known = Census.load(data)
    if options.measure_only and known is None:
        raise SystemExit(f"nothing was filled in {data}")
    if options.from_disk:
        leave_the_cache(data)
    stores = stores_of(settings)
    await stores.open()
    try:
        embedding = settings.embedding
        await stores.memories.stamp_model(EmbeddingModel(embedding.model, embedding.dimension, 0.3, 0.8))
        crowd = Crowd(stores, data, known or Census(options.each), options.seed)
        steps = [] if options.measure_only else await filled(options, crowd, data, console)
        if not steps:
            steps.append(await measured(crowd, data, 0.0))
        if not options.measure_only:
            for memories in [size for size in options.heavy if size not in crowd.census.heavy]:
                await crowd.add_heavy(memories)
        heavy = [await measured_heavy(crowd, memories) for memories in crowd.census.heavy]
    finally:
        await stores.close()
    timed = await asyncio.to_thread(operations, data, crowd.census) if options.operations else []
    return steps, heavy, timed


async def filled(options: argparse.Namespace, crowd: Crowd, data: Path, console: Console) -> list[Step]:
    """Grow the crowd step by step, measuring after each."""
    steps = list[Step]()
    until = time.monotonic() + 60 * options.minutes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for users in sizes(options.start, options.to, options.factor, crowd.census.each):
            if users <= crowd.census.users or time.monotonic() >= until:
                continue
            task = progress.add_task(f"{users:,} users", total=users)
            before, spent = crowd.census.memories, crowd.storing_s
            await crowd.grow(users, partial(_tell, progress, task), until)
            rate = (crowd.census.memories - before) / max(crowd.storing_s - spent, 1e-9)
            steps.append(await measured(crowd, data, rate))
            progress.remove_task(task)
    return steps


def _tell(progress: Progress, task: TaskID, users: int) -> None:
    progress.update(task, completed=users)


def sizes(start: int, to: int, factor: int, each: int) -> Iterator[int]:
    """Yield the numbers of users of the steps: the last is that of `to` memories."""
    memories = start
    while memories < to:
        yield max(1, memories // each)
        memories *= factor
    yield max(1, to // each)


def settings_of(options: argparse.Namespace, data: Path) -> Settings:
    overrides: dict[str, dict[str, Any]] = {
        "storage": {"backend": options.backend, "data_dir": str(data)},
        "limits": {"max_memories_per_user": 0, "max_content_mb_per_user": 0},
    }
    if options.backend != "sqlite":
        overrides["redis"] = {"url": options.redis, "prefix": options.prefix}
    return load(None, os.environ, overrides)


def leave_the_cache(data: Path) -> None:
    """Have the system read the database from the disk again. Before it is opened: to close any other
    descriptor drops SQLite's locks."""
    for file in data.glob("memory.db*"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "redis", "redis+qdrant"), default="sqlite")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/15", help="an empty Redis for the numbers")
    parser.add_argument("--prefix", default="scale:")
    parser.add_argument("--each", type=int, default=100, help="memories of a user")
    parser.add_argument("--start", type=int, default=10_000, help="memories of the first step")
    parser.add_argument("--factor", type=int, default=10, help="from step to step")
    parser.add_argument("--to", type=int, default=1_000_000, help="memories of the last step")
    parser.add_argument("--heavy", type=numbers, default=(), metavar="N,N",
                        help="add users with so many memories each, after the last step")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=20, help="for filling; the last step may be smaller")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--data-dir", type=Path, help="where to fill, or go on (default: one that is removed)"
    )
    parser.add_argument("--measure-only", action="store_true", help="measure what --data-dir holds already")
    parser.add_argument("--from-disk", action="store_true", help="with nothing of the database in the cache")
    parser.add_argument("--operations", action="store_true",
                        help="time start-up, backup, forgetting and so on at the end (sqlite)")  # fmt: skip
    options = parser.parse_args()
    if options.measure_only and options.data_dir is None:
        parser.error("--measure-only needs --data-dir")
    if options.operations and options.backend != "sqlite":
        parser.error("--operations is for sqlite")
    return options


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> int:
    options, console = arguments(), Console(stderr=True)
    telemetry.configure("error", "console")
    with tempfile.TemporaryDirectory(prefix="memory-proxy-scale-") as directory:
        data = options.data_dir or Path(directory)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        steps, heavy, timed = asyncio.run(run(options, data, console))
    out = Console(width=200)
    out.print(table(options.backend, steps))
    out.print("~ not measured: a straight line through the first and the last step")
    if heavy:
        out.print(heavy_table(heavy))
    if timed:
        out.print(operations_table(timed))
    out.print(f"kept in {keep(options, steps, heavy, timed)}")
    return 0


def keep(options: argparse.Namespace, steps: list[Step], heavy: list[Heavy], timed: list[Timed]) -> Path:
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    file = (
        Path("results") / f"scale-{options.backend.replace('+', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    )
    file.parent.mkdir(exist_ok=True)
    found: dict[str, object] = {"version": __version__, "commit": commit}
    for name, rows in (("steps", steps), ("heavy", heavy), ("operations", timed)):
        found[name] = [asdict(row) for row in rows]
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return file


if __name__ == "__main__":
    sys.exit(main())
