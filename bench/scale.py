"""Fill a store with made-up users, and show how latency, memory and disk grow with them.

Every step multiplies the users; after each, users drawn at random are asked and told something, some whose
arrays a process has at hand and some whose it has not. Times are those that were measured, up to the size
that the minutes given allow; of more memories only the size is told, along a straight line, and is marked so.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from proxy import __version__, observe, terms
from proxy.domain import Create, Memory, NewExchange, NewJob, Outcome, Scope, Search, SessionState
from proxy.open_stores import stores_of
from proxy.settings import load
from proxy.storage import Stores

DIMENSION, SAMPLE, AT_ONCE = 384, 200, 4
BEYOND = (1_000_000, 10_000_000)
_STARTS = ("ka", "lo", "mi", "nu", "re", "so", "ti", "vu")
WORDS = [f"{a}{b}{c}" for a in _STARTS for b in "abcdefgh" for c in "lmnrst"]


@dataclass(frozen=True, slots=True)
class Step:
    """What was measured with so many memories. Times in ms, the rest in MB."""

    users: int
    memories: int
    fill_per_s: float
    warm_p50: float
    warm_p95: float
    cold_p50: float
    cold_p95: float
    exchange_p50: float  # begin and complete
    store_p50: float  # one new memory
    process_mb: float
    disk_mb: float
    redis_mb: float


class Crowd:
    """Made-up users with made-up memories."""

    def __init__(self, stores: Stores, each: int, seed: int) -> None:
        self.stores, self.each, self._rng = stores, each, Random(seed)
        self._numbers = np.random.default_rng(seed)
        self.users = 0

    async def grow(self, users: int, told: Callable[[int], None], until: float) -> None:
        """Add users up to a number, or until the time is up."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def add(number: int) -> None:
            async with turn:
                if time.monotonic() < until:
                    await self._add(number)
                    self.users += 1
                    told(self.users)

        await asyncio.gather(*(add(number) for number in range(self.users, users)))

    async def _add(self, number: int) -> None:
        scope = scope_of(number)
        changes = [self.new(scope, f"{number}-{k}") for k in range(self.each)]
        await self.stores.memories.apply(scope, changes, expect=await self.stores.memories.stamp(scope))

    def new(self, scope: Scope, name: str) -> Create:
        content = "User " + " ".join(self._rng.choices(WORDS, k=9))
        memory = Memory(
            id=f"mem_{name}", scope=scope, type="semantic", content=content, source="api",
            created_at=time.time(), updated_at=time.time(), valid_from=time.time(),
        )  # fmt: skip
        return Create(memory, self.vector())

    def vector(self) -> bytes:
        values = self._numbers.standard_normal(DIMENSION).astype(np.float32)
        return (values / np.linalg.norm(values)).astype(np.float32).tobytes()

    # ------------------------------------------------------------ measured
    async def search(self, number: int) -> None:
        words = terms.terms(" ".join(self._rng.choices(WORDS, k=5)))
        await self.stores.memories.search(scope_of(number), Search(self.vector(), words, now=time.time()))

    async def store(self, number: int) -> None:
        scope = scope_of(number)
        change = self.new(scope, f"{number}-{self._rng.randrange(10**12)}")
        await self.stores.memories.apply(scope, [change], expect=await self.stores.memories.stamp(scope))

    async def exchange(self, number: int) -> None:
        name = str(self._rng.randrange(10**12))
        new = NewExchange(
            id=f"ex_{name}", key=name, scope=scope_of(number), session_id="s", model="m",
            said=" ".join(self._rng.choices(WORDS, k=30)), at=time.time(),
        )  # fmt: skip
        begun = await self.stores.sessions.begin(new)
        await self.stores.sessions.complete(begun, Outcome("Noted.", whole=True), _no_job)

    async def times(self, ask: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> list[float]:
        """Return how long each took, in ms."""
        found = []
        for number in numbers:
            began = time.perf_counter()
            await ask(number)
            found.append((time.perf_counter() - began) * 1000)
        return sorted(found)

    def some(self, count: int = SAMPLE) -> list[int]:
        return [self._rng.randrange(self.users) for _ in range(count)]


def scope_of(number: int) -> Scope:
    return Scope("scale", f"user-{number}")


def _no_job(state: SessionState) -> NewJob | None:
    return None


async def measured(crowd: Crowd, fill_per_s: float, data: Path) -> Step:
    cold = await crowd.times(crowd.search, list(dict.fromkeys(crowd.some())))
    ours = crowd.some(20)
    await crowd.times(crowd.search, ours)
    warm = await crowd.times(crowd.search, ours * (SAMPLE // 20))
    exchanges = await crowd.times(crowd.exchange, crowd.some(SAMPLE // 2))
    stored = await crowd.times(crowd.store, crowd.some(SAMPLE // 2))
    return Step(
        users=crowd.users,
        memories=crowd.users * crowd.each,
        fill_per_s=fill_per_s,
        warm_p50=statistics.median(warm),
        warm_p95=warm[int(0.95 * len(warm))],
        cold_p50=statistics.median(cold),
        cold_p95=cold[int(0.95 * len(cold))],
        exchange_p50=statistics.median(exchanges),
        store_p50=statistics.median(stored),
        process_mb=resident_mb(),
        disk_mb=await asyncio.to_thread(disk_mb, data),
        redis_mb=await redis_mb(crowd.stores),
    )


def disk_mb(data: Path) -> float:
    return sum(file.stat().st_size for file in data.glob("memory.db*")) / 1e6


def resident_mb() -> float:
    """Return what the process holds now, or at its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


async def redis_mb(stores: Stores) -> float:
    connection = getattr(stores, "connection", None)
    if connection is None:
        return 0.0
    told: object = await connection.call("INFO", "memory")
    text = told.decode() if isinstance(told, bytes) else str(told)
    return next((int(line[12:]) / 1e6 for line in text.splitlines() if line.startswith("used_memory:")), 0.0)


def projected_mb(steps: Sequence[Step], field: str, memories: int) -> float:
    """Return a straight line through the last two steps, further on."""
    one, two = steps[-2], steps[-1]
    share = (memories - two.memories) / (two.memories - one.memories)
    before, now = getattr(one, field), getattr(two, field)
    return float(now + share * (now - before))


def shown(backend: str, steps: Sequence[Step]) -> Table:
    """Return the table: what was measured, then the sizes to be expected of more."""
    table = Table(title=f"{backend}: ms per operation, MB in all")
    for name in ("memories", "users", "filled/s", "search, at hand", "p95", "search, not at hand", "p95",
                 "exchange", "one memory", "process", "disk", "Redis"):  # fmt: skip
        table.add_column(name, justify="right")
    for step in steps:
        times = (
            step.warm_p50,
            step.warm_p95,
            step.cold_p50,
            step.cold_p95,
            step.exchange_p50,
            step.store_p50,
        )
        sizes = (step.process_mb, step.disk_mb, step.redis_mb)
        table.add_row(
            f"{step.memories:,}", f"{step.users:,}", f"{step.fill_per_s:,.0f}",
            *(f"{time:.2f}" for time in times), *(f"{size:,.0f}" for size in sizes),
        )  # fmt: skip
    for memories in [size for size in BEYOND if len(steps) > 1 and size > steps[-1].memories]:
        sizes = [f"~{projected_mb(steps, field, memories):,.0f}" for field in ("disk_mb", "redis_mb")]
        table.add_row(f"~{memories:,}", *[""] * 9, *sizes)
    return table


async def run(options: argparse.Namespace, data: Path, console: Console) -> list[Step]:
    overrides: dict[str, dict[str, str]] = {"storage": {"backend": options.backend, "data_dir": str(data)}}
    overrides |= (
        {"redis": {"url": options.redis, "prefix": options.prefix}} if options.backend != "sqlite" else {}
    )
    stores, steps = stores_of(load(None, os.environ, overrides)), list[Step]()
    await stores.open()
    crowd = Crowd(stores, options.each, options.seed)
    until = time.monotonic() + 60 * options.minutes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        users = max(1, options.start // options.each)
        while time.monotonic() < until and users * options.each <= options.to:
            task = progress.add_task(f"{users:,} users", total=users)
            before, began = crowd.users, time.monotonic()
            await crowd.grow(users, lambda done, task=task: progress.update(task, completed=done), until)
            added = (crowd.users - before) * options.each
            steps.append(await measured(crowd, added / (time.monotonic() - began), data))
            progress.remove_task(task)
            users *= options.factor
    await stores.close()
    return steps


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "redis", "redis+qdrant"), default="sqlite")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/15", help="an empty Redis for the numbers")
    parser.add_argument("--prefix", default="scale:")
    parser.add_argument("--each", type=int, default=100, help="memories of a user")
    parser.add_argument("--start", type=int, default=10_000, help="memories of the first step")
    parser.add_argument("--factor", type=int, default=10, help="from step to step")
    parser.add_argument("--to", type=int, default=10_000_000, help="memories of the last step")
    parser.add_argument("--minutes", type=float, default=20, help="for filling; the last step may be smaller")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, help="where to fill (default: a directory that is removed)")
    return parser.parse_args()


def main() -> int:
    options, console = arguments(), Console(stderr=True)
    observe.configure("error", "console")
    with tempfile.TemporaryDirectory(prefix="memory-proxy-scale-") as directory:
        steps = asyncio.run(run(options, options.data_dir or Path(directory), console))
    out = Console(width=150)
    out.print(shown(options.backend, steps))
    out.print("~ not measured: a straight line through the last two steps")
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    name = f"scale-{options.backend.replace('+', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file = Path("results") / name
    file.parent.mkdir(exist_ok=True)
    found = {"version": __version__, "commit": commit, "each": options.each}
    found["steps"] = [asdict(step) for step in steps]
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    out.print(f"kept in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
