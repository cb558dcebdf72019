"""Does anything grow? A robust slope of every curve, and what it may be."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.soak.watch import Sample

WARM_UP = 1 / 3  # of the run: caches fill, allocators find their size, the first generation lives
JUDGED_S = 1200.0  # shorter runs have no slope worth a verdict: their noise is more than the bounds


@dataclass(frozen=True, slots=True)
class Line:
    """One verdict. `passed` None: not judged."""

    name: str
    found: str
    bound: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class _Curve:
    name: str
    unit: str
    of: Callable[[Sample], float]
    per_hour: float  # at most
    why: str


# What an hour may add after the warm-up. A leak of 100 bytes a request would add 1.4 MB at four a second,
# one of 5 kB a user 3 MB; the process's own noise, arenas that are found and given back, is about 1 MB.
CURVES = (
    _Curve("resident memory", "MB", lambda s: s.rss, 3.0, "200 bytes a request"),
    _Curve("of it, not of files", "MB", lambda s: s.anonymous, 3.0, "200 bytes a request"),
    _Curve("open files", "", lambda s: s.fds, 4.0, "connections come and go by the dozen"),
    _Curve("threads", "", lambda s: s.threads, 0.5, "pools have reached their size"),
    _Curve("database", "MB", lambda s: s.disk, 4.0, "receipts stay, 300 bytes a forget"),
    _Curve("write-ahead log", "MB", lambda s: s.wal, 3.0, "it swings between 0 and 4 MB"),
    _Curve("jobs waiting", "", lambda s: s.queued, 5.0, "as many are done as come"),
)


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points: up to 29 % of them may be anything.
    Sen, JASA 1968. Fewer than two points have none: 0."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    return statistics.median(slopes) if slopes else 0.0


def warm(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples after the warm-up."""
    return [s for s in samples if s.at >= samples[-1].at * WARM_UP]


def growth(samples: Sequence[Sample]) -> list[Line]:
    """Return how each curve grows in an hour."""
    judged, rest = samples[-1].at >= JUDGED_S, warm(samples)
    found = []
    for curve in (c for c in CURVES if any(map(c.of, rest))):  # a backend has not all of them
        slope = 3600 * theil_sen([(s.at, curve.of(s)) for s in rest])
        now, unit = statistics.median(curve.of(s) for s in rest[-5:]), f" {curve.unit}" if curve.unit else ""
        shown = f"{slope:+.2f}{unit} an hour (now {now:,.1f}{unit})"
        bound = f"≤ {curve.per_hour:g}{unit} an hour: {curve.why}"
        found.append(Line(curve.name, shown, bound, slope <= curve.per_hour if judged else None))
    return [*found, _work(rest, judged=judged)]


def _work(rest: Sequence[Sample], *, judged: bool) -> Line:
    """Return whether a request costs more work at the end than after the warm-up."""
    half = len(rest) // 2
    first, last = _per_request(rest[: half + 1]), _per_request(rest[half:])
    shown = f"{1000 * first:.1f} ms, then {1000 * last:.1f} ms"
    return Line("processor time a request", shown, "≤ 1.15 times", last <= 1.15 * first if judged else None)


def _per_request(samples: Sequence[Sample]) -> float:
    requests = samples[-1].requests - samples[0].requests
    return (samples[-1].cpu - samples[0].cpu) / requests if requests else 0.0


def none_of(name: str, count: int, why: str) -> Line:
    """Return the verdict on what must not happen at all."""
    return Line(name, f"{count}", f"0: {why}", count == 0)


def health(samples: Sequence[Sample], warnings: int) -> list[Line]:
    """Return whether it felt well all the time."""
    oldest = max(s.oldest_job for s in samples)
    return [
        none_of("samples degraded", sum(s.level > 0 for s in samples), "nothing failed"),
        none_of("jobs given up", samples[-1].dead_jobs, "the model always answers"),
        Line("oldest job waiting", f"{oldest:.0f} s", "≤ 60 s: the silence and its extraction", oldest <= 60),
        none_of("failures of memory work", samples[-1].failures, "nothing failed"),
        none_of("warnings and errors logged", warnings, "nothing failed"),
    ]
