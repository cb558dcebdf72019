"""What is measured of a crowd, and the tables that show it."""

import os
import resource
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.crowd import Crowd, heavy_scope
from proxy.domain.storage import Stores

BEYOND = (1_000_000, 10_000_000, 100_000_000)
_SAMPLE, _HOT, _WRITERS, _WRITES = 200, 20, 64, 9


@dataclass(frozen=True, slots=True)
class Step:
    """What was measured with so many memories. Times in ms, rates a second, sizes in MB."""

    users: int
    memories: int
    fill_per_s: float  # memories that the store took while it was filled; 0: it was filled before
    warm_p50: float
    warm_p95: float
    cold_p50: float  # the user's arrays are not at hand and are made from the rows
    cold_p95: float
    list_p50: float  # the first page of what there is of a user, and how many
    count_p50: float  # a dry run of forgetting all of a user
    exchange_p50: float  # begin and complete
    exchange_p95: float
    store_p50: float  # one new memory
    store_p95: float
    exchanges_per_s: float  # of many users at once
    process_mb: float
    disk_mb: float  # the database with its log, or Redis's append-only file
    redis_mb: float


@dataclass(frozen=True, slots=True)
class Heavy:
    """A user with very many memories. Times in ms."""

    memories: int
    first: float  # the arrays are made from the rows
    p50: float
    p95: float
    after_first_write: float  # makes room behind the arrays
    after_write: float
    arrays_mb: float  # by how much the process grew at the first search


async def measured(crowd: Crowd, data: Path, fill_per_s: float) -> Step:
    """Return how the crowd does now. It has grown by some writes afterwards."""
    cold = await crowd.times(crowd.search, crowd.different(_SAMPLE))
    hot = crowd.different(_HOT)
    await crowd.times(crowd.search, hot)
    warm = await crowd.times(crowd.search, hot * (_SAMPLE // _HOT))
    listed = await crowd.times(crowd.page, crowd.different(_SAMPLE // 2))
    counted = await crowd.times(crowd.count_forget, crowd.different(_SAMPLE // 2))
    exchanges = await crowd.times(crowd.exchange, crowd.different(_SAMPLE))
    stored = await crowd.times(crowd.store, crowd.different(_SAMPLE))
    in_redis, its_file = await redis_mb(crowd.stores)
    return Step(
        users=crowd.census.users,
        memories=crowd.census.memories,
        fill_per_s=fill_per_s,
        warm_p50=statistics.median(warm),
        warm_p95=_p95(warm),
        cold_p50=statistics.median(cold),
        cold_p95=_p95(cold),
        list_p50=statistics.median(listed),
        count_p50=statistics.median(counted),
        exchange_p50=statistics.median(exchanges),
        exchange_p95=_p95(exchanges),
        store_p50=statistics.median(stored),
        store_p95=_p95(stored),
        exchanges_per_s=await crowd.rate(crowd.exchange, 10 * _WRITERS, _WRITERS),
        process_mb=resident_mb(),
        disk_mb=disk_mb(data) + its_file,
        redis_mb=in_redis,
    )


async def measured_heavy(crowd: Crowd, memories: int) -> Heavy:
    """Return how one heavy user does."""
    scope, before = [heavy_scope(memories)], resident_mb()
    (first,) = await crowd.times(crowd.search, scope)
    held = resident_mb() - before
    warm = await crowd.times(crowd.search, scope * _SAMPLE)
    after = []
    for _ in range(_WRITES):
        await crowd.store(scope[0])
        after += await crowd.times(crowd.search, scope)
    return Heavy(
        memories, first, statistics.median(warm), _p95(warm), after[0], statistics.median(after[1:]),
        max(0.0, held),
    )  # fmt: skip


def _p95(ordered: Sequence[float]) -> float:
    return ordered[int(0.95 * len(ordered))]


def disk_mb(data: Path) -> float:
    return sum(file.stat().st_size for file in data.glob("memory.db*")) / 1e6


def resident_mb() -> float:
    """Return what the process holds now, or at its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


async def redis_mb(stores: Stores) -> tuple[float, float]:
    """Return the memory that Redis says it uses, and its append-only file; 0 where there is no Redis."""
    connection = getattr(stores, "connection", None)
    if connection is None:
        return 0.0, 0.0
    told = await connection.call("INFO", "memory") | await connection.call("INFO", "persistence")
    return told["used_memory"] / 1e6, told.get("aof_current_size", 0) / 1e6


# ---------------------------------------------------------------- shown
def projected_mb(steps: Sequence[Step], field: str, memories: int) -> float:
    """Return a straight line through the first and the last step, further on."""
    one, two = steps[0], steps[-1]
    share = (memories - two.memories) / (two.memories - one.memories)
    before, now = getattr(one, field), getattr(two, field)
    return float(now + share * (now - before))


_COLUMNS = {
    "filled/s": ("fill_per_s", ",.0f"),
    "search, at hand": ("warm_p50", ".2f"),
    "at hand, p95": ("warm_p95", ".2f"),
    "not at hand": ("cold_p50", ".2f"),
    "not at hand, p95": ("cold_p95", ".2f"),
    "list": ("list_p50", ".2f"),
    "dry run": ("count_p50", ".2f"),
    "exchange": ("exchange_p50", ".2f"),
    "exchange, p95": ("exchange_p95", ".2f"),
    "memory": ("store_p50", ".2f"),
    "memory, p95": ("store_p95", ".2f"),
    "exchanges/s": ("exchanges_per_s", ",.0f"),
    "process": ("process_mb", ",.0f"),
    "disk": ("disk_mb", ",.0f"),
    "Redis": ("redis_mb", ",.0f"),
}


def table(backend: str, steps: Sequence[Step]) -> Table:
    """Return what was measured, then the sizes to be expected of more."""
    shown = Table(title=f"{backend}: ms an operation, MB in all")
    for name in ("memories", "users", *_COLUMNS):
        shown.add_column(name, justify="right")
    for step in steps:
        values = asdict(step)
        shown.add_row(
            f"{step.memories:,}",
            f"{step.users:,}",
            *(format(values[field], form) for field, form in _COLUMNS.values()),
        )
    for memories in [size for size in BEYOND if len(steps) > 1 and size > steps[-1].memories]:
        sizes = [f"~{projected_mb(steps, field, memories):,.0f}" for field in ("disk_mb", "redis_mb")]
        shown.add_row(f"~{memories:,}", *[""] * (len(_COLUMNS) - 1), *sizes)
    return shown


def heavy_table(found: Sequence[Heavy]) -> Table:
    """Return how the heavy users do."""
    shown = Table(title="one user with very many memories, beside the others: ms, MB")
    for name in (
        "memories",
        "first search",
        "search",
        "search, p95",
        "after 1st write",
        "after others",
        "arrays",
    ):
        shown.add_column(name, justify="right")
    for one in found:
        times = (one.first, one.p50, one.p95, one.after_first_write, one.after_write)
        shown.add_row(f"{one.memories:,}", *(f"{time:,.1f}" for time in times), f"{one.arrays_mb:,.0f}")
    return shown
