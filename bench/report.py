"""From measurements to a table and to words: medians over the rounds, differences to the upstream itself."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.cell import DISTURBED, Cell

DIRECT, NGINX, LITELLM, PORTKEY = "direct", "nginx", "LiteLLM", "Portkey"
PASSTHROUGH, CHAT = "memory-proxy, passthrough", "memory-proxy, chat"
RECALL, MEMORY = "memory-proxy, recall", "memory-proxy, memory"
LARGE_RECALL, LARGE = "memory-proxy, recall, 100k", "memory-proxy, memory, 100k"
WITH_MEMORY = (RECALL, MEMORY, LARGE_RECALL, LARGE)

Field = Callable[[Cell], float | None]
Row = tuple[str, ...]


class Results:
    """The cells of a run, asked by row and load. Undisturbed rounds count, where there are any."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.subjects = list(dict.fromkeys(cell.subject for cell in cells))
        self.loads = list(dict.fromkeys(cell.load for cell in cells))

    def median(self, subject: str, load: str, field: Field) -> float | None:
        """Return the median over the rounds; None for what was not measured."""
        cells = [c for c in self.cells if c.subject == subject and c.load == load]
        quiet = [c for c in cells if c.foreign <= DISTURBED] or cells
        values = [value for cell in quiet if (value := field(cell)) is not None]
        return median(values) if values else None

    def added(self, subject: str, load: str, field: Field, base: str = DIRECT) -> float | None:
        """Return how much more it is than `base`'s."""
        return _both(self.median(subject, load, field), self.median(base, load, field), lambda a, b: a - b)

    def ratio(self, subject: str, load: str, field: Field, base: str) -> float | None:
        return _both(self.median(subject, load, field), self.median(base, load, field), lambda a, b: a / b)

    def served(self, subject: str, *loads: str) -> float | None:
        """Return the percentage of answers into whose request memories were injected. One that went
        without, for want of time, is fast for the wrong reason."""
        cells = [c for c in self.cells if c.subject == subject and c.load in loads and c.requests]
        if not cells:
            return None
        # A stream that was cut when the time was up counts as injected, and not as a request.
        return min(100.0, 100 * sum(c.injected for c in cells) / sum(c.requests for c in cells))


@dataclass(frozen=True, slots=True)
class Goal:
    """One acceptance criterion: `measured` against `bound`. `below`: less is better."""

    text: str
    measured: float | None
    bound: float
    unit: str
    below: bool

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        held = self.measured < self.bound if self.below else self.measured >= self.bound
        return "pass" if held else "FAIL"

    def row(self) -> Row:
        sign = "<" if self.below else "≥"
        return (
            self.text,
            f"{sign} {self.bound:g} {self.unit}",
            _number(self.measured, 2, self.unit),
            self.word,
        )


def goals(results: Results) -> list[Goal]:
    """Return the project's goals for speed that this run can judge."""
    found: list[Goal] = []
    for row in (PASSTHROUGH, CHAT):
        for peer, factor in ((LITELLM, 25.0), (PORTKEY, 3.0)):
            times = results.ratio(row, "c32", lambda c: c.requests_s, peer)
            found.append(Goal(f"{row}: requests/s against {peer}'s", times, factor, "x", below=False))
    for row in (PASSTHROUGH, CHAT):
        found.append(Goal(f"{row}: added p50", results.added(row, "c1", _p50), 0.5, "ms", below=True))
    for row in WITH_MEMORY:
        if row in results.subjects:
            found.append(Goal(f"{row}: added p50", results.added(row, "c1", _p50), 5.0, "ms", below=True))
    for load in ("s5_c32", "s20_c32", "s20_c256"):
        if load in results.loads:
            text = f"{shape(load)}: a chunk later with memory than without"
            for name, field, bound in (("p50", _chunk_p50, 0.5), ("p99", _chunk_p99, 10.0)):
                later = results.added(MEMORY, load, field, base=CHAT)
                found.append(Goal(f"{text}, {name}", later, bound, "ms", below=True))
    for row in WITH_MEMORY:
        if row in results.subjects:
            served = results.served(row, "c1", "c4")
            found.append(Goal(f"{row}: requests that got their memories", served, 99, "%", below=False))
    broken = sum(cell.bad for cell in results.cells if cell.subject.startswith("memory-proxy"))
    found.append(Goal("memory-proxy: answers that were not 200 and whole", float(broken), 1, "", below=True))
    return found


def markdown(results: Results, meta: dict[str, object]) -> str:
    """Return the report of a run."""
    where = f"{meta['processor']}, {meta['processors']} processors"
    parts = [f"Commit {meta['commit']}, {meta['when']}, {where}, {meta['rounds']} rounds.", ""]
    parts += ["### Requests", "", *_table(*_requests(results)), ""]
    parts += ["### Requests with memory", "", *_table(*_memory(results)), ""]
    streams = [load for load in results.loads if load.startswith("s")]
    if streams:
        parts += ["### Streams of 64 chunks", "", *_table(*_streams(results, streams)), ""]
    foreign = [cell.foreign for cell in results.cells]
    disturbed = sum(share > DISTURBED for share in foreign)
    parts += ["### Goals", ""]
    if disturbed > len(foreign) / 4:
        parts += ["**The machine was not quiet: this run says little, whatever the words below.**", ""]
    parts += _table(("goal", "bound", "measured", ""), [g.row() for g in goals(results)])
    parts += ["", f"Disturbed measurements (others used over {DISTURBED:.0%} of a processor): "
              f"{disturbed} of {len(foreign)}; median use by others {median(foreign):.0%}."]  # fmt: skip
    wrong = {f"{c.subject} {c.load}": c.bad for c in results.cells if c.bad}
    if wrong:
        parts.append(f"Answers that were not 200 and whole: {wrong}.")
    return "\n".join(parts)


def shape(load: str) -> str:
    """Return a load's name in words: "32 streams, 5 ms"."""
    kind, _, connections = load.partition("_c")
    return f"{connections} streams, {kind[1:]} ms" if connections else load


def _requests(results: Results) -> tuple[Row, list[Row]]:
    head: Row = (
        *("", "requests/s, 32 connections", "of nginx's", "processor ms a request"),
        *("added p50, 1 connection", "added p99", "added p50, 32 connections"),
    )
    rows: list[Row] = [
        (
            subject,
            _number(results.median(subject, "c32", lambda c: c.requests_s), 0),
            _number(results.ratio(subject, "c32", lambda c: c.requests_s, NGINX), 3),
            "" if subject == DIRECT else _number(results.median(subject, "c32", lambda c: c.cpu_ms), 3),
            _number(results.added(subject, "c1", _p50), 2, "ms"),
            _number(results.added(subject, "c1", lambda c: c.p99), 2, "ms"),
            _number(results.added(subject, "c32", _p50), 1, "ms"),
        )
        for subject in results.subjects
        if subject not in WITH_MEMORY
    ]
    return head, rows


def _memory(results: Results) -> tuple[Row, list[Row]]:
    head: Row = (
        *("", "added p50, 1 connection", "added p99", "processor ms a request"),
        *("requests/s, 4 connections", "with memories", "requests/s, 32 connections", "with memories"),
    )
    rows: list[Row] = [
        (
            subject,
            _number(results.added(subject, "c1", _p50), 2, "ms"),
            _number(results.added(subject, "c1", lambda c: c.p99), 2, "ms"),
            _number(results.median(subject, "c4", lambda c: c.cpu_ms), 2),
            _number(results.median(subject, "c4", lambda c: c.requests_s), 0),
            _number(results.served(subject, "c4"), 0, "%"),
            _number(results.median(subject, "c32", lambda c: c.requests_s), 0),
            _number(results.served(subject, "c32"), 0, "%"),
        )
        for subject in WITH_MEMORY
        if subject in results.subjects
    ]
    return head, rows


def _streams(results: Results, loads: Sequence[str]) -> tuple[Row, list[Row]]:
    head: Row = (
        *("", "", "chunks/s", "a chunk's way, p50", "p99", "added p50", "added p99"),
        *("first chunk added p50", "with memories", "MiB at most"),
    )
    rows: list[Row] = [
        (
            shape(load),
            subject,
            _number(results.median(subject, load, lambda c: c.chunks_s), 0),
            _number(results.median(subject, load, _chunk_p50), 2, "ms"),
            _number(results.median(subject, load, _chunk_p99), 2, "ms"),
            _number(results.added(subject, load, _chunk_p50), 2, "ms"),
            _number(results.added(subject, load, _chunk_p99), 2, "ms"),
            _number(results.added(subject, load, lambda c: c.first_p50), 2, "ms"),
            _number(results.served(subject, load) or None, 0, "%"),
            _number(results.median(subject, load, lambda c: c.peak_mib or None), 0),
        )
        for load in loads
        for subject in results.subjects
        if any(c.subject == subject and c.load == load for c in results.cells)
    ]
    return head, rows


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:,.{digits}f} {unit}".rstrip()


def _both(a: float | None, b: float | None, combine: Callable[[float, float], float]) -> float | None:
    return None if a is None or not b else combine(a, b)


def _p50(cell: Cell) -> float | None:
    return cell.p50


def _chunk_p50(cell: Cell) -> float | None:
    return cell.chunk_p50


def _chunk_p99(cell: Cell) -> float | None:
    return cell.chunk_p99
