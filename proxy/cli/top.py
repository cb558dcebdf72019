"""`memory-proxy top`: a live view of a running proxy, from its /metrics and /health.

Counts, rates and quantiles are those of the last minute, or since the proxy's start in the first frame.
"""

import argparse
import http.client
import json
import math
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proxy.client import open_url
from proxy.client.command_line import DEFAULT_URL
from proxy.client.commands import API_KEY

REFRESH_S = 2.0
WINDOW_S = 60.0
TIMEOUT_S = 5.0
_PREFIX = "memory_proxy_"
_LANES = {"1": "explicit", "2": "ordinary", "3": "batch"}
_MOST_ROWS = 5  # of a table, so that a frame fits 24 lines

Labels = frozenset[tuple[str, str]]


class NoMetrics(Exception):
    """The proxy cannot be asked; the message says why."""


def add_top(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show what a running proxy does, refreshed every two seconds; Ctrl-C ends it. Without a terminal one"
        f" frame is printed. A credential in {API_KEY} is sent along, for a proxy in front that asks for one."
    )
    default = os.environ.get("MEMORY_PROXY_URL") or DEFAULT_URL
    parser.add_argument("--url", default=default, help="address of the proxy (default: $MEMORY_PROXY_URL)")
    parser.add_argument("--once", action="store_true", help="print one frame, since the proxy's start")
    parser.set_defaults(func=_top)


def _top(args: argparse.Namespace) -> int:
    console, url = Console(), args.url.rstrip("/").removesuffix("/v1")
    if console.is_terminal and not args.once:
        _watch(console, url)
        return 0
    try:
        console.print(frame(url, Sample.of(url), None))
    except NoMetrics as error:
        Console(stderr=True).print(f"memory-proxy: {error}", markup=False, soft_wrap=True)
        return 1
    return 0


def _watch(console: Console, url: str) -> None:
    """Show frames until Ctrl-C; a new size of the terminal is answered at once."""
    resized, samples = threading.Event(), deque[Sample]()
    if hasattr(signal, "SIGWINCH"):
        signal.signal(signal.SIGWINCH, lambda *_: resized.set())
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                sample = Sample.of(url)
            except NoMetrics as error:
                samples.clear()
                shown: RenderableType = Text(f"{error}\nTrying again every {REFRESH_S:g} s; Ctrl-C ends.")
            else:
                if samples and sample.is_behind(samples[-1]):
                    samples.clear()  # it was started again
                samples.append(sample)
                while sample.at - samples[0].at > WINDOW_S:
                    samples.popleft()
                shown = frame(url, sample, samples[0] if len(samples) > 1 else None)
            until = time.monotonic() + REFRESH_S
            live.update(shown, refresh=True)
            while (left_s := until - time.monotonic()) > 0 and resized.wait(left_s):
                resized.clear()
                live.refresh()


# ---------------------------------------------------------------- samples
@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics and the health of the proxy at one moment."""

    at: float
    health: Mapping[str, Any]
    values: Mapping[tuple[str, Labels], float] = field(default_factory=dict)

    @classmethod
    def of(cls, url: str) -> Self:
        """Ask the proxy. Raises NoMetrics."""
        health: Any = json.loads(_get(f"{url}/health"))
        values = {
            (sample.name.removeprefix(_PREFIX), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(_get(f"{url}/metrics").decode())
            for sample in family.samples
            if sample.name.startswith(_PREFIX)
        }
        if not isinstance(health, dict) or not values:
            raise NoMetrics(f"What answers at {url} is not a memory-proxy.")
        return cls(time.monotonic(), health, values)

    @property
    def uptime_s(self) -> float:
        return float(self.health.get("uptime_seconds", math.inf))

    def since(self, before: "Sample | None") -> Self:
        """Return the counts since an earlier sample. Gauges are not to be read from the result."""
        old = {} if before is None else before.values
        return type(self)(self.at, self.health, {k: v - old.get(k, 0) for k, v in self.values.items()})

    def is_behind(self, before: "Sample") -> bool:
        """True if a counter is lower than it was. The uptime may be another worker's, which started later."""
        counters = ((key, n) for key, n in before.values.items() if key[0].endswith("_total"))
        return any(self.values.get(key, 0) < n for key, n in counters)

    def by(self, name: str, label: str, **only: str) -> dict[str, float]:
        """Return the sums by this label, of the series that have the labels `only`."""
        sums: dict[str, float] = {}
        for (found, labels), value in self.values.items():
            if found == name and only.items() <= set(labels):
                key = dict(labels).get(label, "")
                sums[key] = sums.get(key, 0) + value
        return sums

    def total(self, name: str, **only: str) -> float:
        return sum(self.by(name, "", **only).values())

    def quantile(self, q: float, name: str, **only: str) -> float | None:
        """Return the quantile of a histogram, linear within a bucket as Prometheus has it; None without an
        observation. Beyond the last bound it is that bound."""
        buckets = sorted((float(le), n) for le, n in self.by(f"{name}_bucket", "le", **only).items())
        if not buckets or buckets[-1][1] <= 0:
            return None
        rank, low, below = q * buckets[-1][1], 0.0, 0.0
        for bound, count in buckets:
            if count >= rank and count > below:
                return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
            low, below = bound, count
        return low


def _get(url: str) -> bytes:
    """Return the body of the answer. Raises NoMetrics."""
    request = urllib.request.Request(url, headers={"User-Agent": "memory-proxy-top"})
    if key := os.environ.get(API_KEY):
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with open_url(request, timeout=TIMEOUT_S) as response:
            body: bytes = response.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise NoMetrics(f"{url} answers with status {error.code}.") from None
    except (OSError, ValueError, http.client.HTTPException):
        raise NoMetrics(f"No memory-proxy answers at {url}.") from None


# ---------------------------------------------------------------- frames
def frame(url: str, now: Sample, before: Sample | None) -> RenderableType:
    """Return one frame, of at most 80 columns and 24 lines."""
    recent = now.since(before)
    seconds = now.at - before.at if before else now.uptime_s
    grid = Table.grid(padding=(0, 2, 1, 0))
    grid.add_column(width=38)
    grid.add_column(width=40)
    grid.add_row(_requests(recent, seconds), _stages(recent))
    grid.add_row(_recalls(recent), _calls(recent))
    grid.add_row(_queue(now, recent), _store(now, recent))
    memory = now.health.get("memory", {})
    level, reason = memory.get("level", "?"), memory.get("reason")
    up = "" if math.isinf(now.uptime_s) else f", up {_duration(now.uptime_s)}"
    head = Text(f"memory-proxy {now.health.get('version', '?')} at {url}{up}", "bold", no_wrap=True)
    state = Text(f"memory: {level}{f' ({reason})' if reason else ''}", "red" if reason else "green")
    period = f"last {seconds:.0f} s" if before else "time since the start"
    return Group(head, state.append(f"; figures of the {period}", "default"), grid)


def _requests(recent: Sample, seconds: float) -> Table:
    table = _table("requests", "n", "/s", "4xx", "5xx")
    for route, n in _largest(recent.by("requests_total", "route")):
        failed = (_count(recent.total("requests_total", route=route, status=s)) for s in ("4xx", "5xx"))
        table.add_row(route, _count(n), f"{n / max(seconds, 1):.1f}", *failed)
    return table


def _stages(recent: Sample) -> Table:
    table = _table("stages", "n", "p50", "p99")
    rows = _largest(recent.by("stage_seconds_count", "stage"))
    for stage, n in rows:
        table.add_row(stage, _count(n), *_times(recent, "stage_seconds", stage=stage))
    if total := recent.total("memory_seconds_count"):
        table.add_row("all stages", _count(total), *_times(recent, "memory_seconds"))
    return table


def _recalls(recent: Sample) -> Table:
    table, found = _table("recalls", "n", "%"), recent.by("recalls_total", "status")
    for status, n in _largest(found):
        table.add_row(status, _count(n), f"{100 * n / sum(found.values()):.0f}")
    injected, tokens = recent.total("injected_memories_total"), recent.total("injected_tokens_total")
    table.add_row(f"memories ({_count(tokens)} tokens)", _count(injected), "")
    return table


def _calls(recent: Sample) -> Table:
    table = _table("LLM calls", "n", "fail", "p50", "tokens")
    for role, n in _largest(recent.by("model_call_seconds_count", "role"), 4):
        failed = n - recent.total("model_call_seconds_count", role=role, ended="answered")
        median = _times(recent, "model_call_seconds", role=role)[0]
        tokens = recent.total("model_call_tokens_total", role=role)
        table.add_row(role.removeprefix("memory_"), _count(n), _count(failed), median, _count(tokens))
    tokens = recent.total("model_tokens_total")
    table.add_row("by clients", "", "", "", _count(tokens))
    return table


def _queue(now: Sample, recent: Sample) -> Table:
    table = _table("queue", "wait", "done", "p50", "p99")
    done = recent.by("job_outcomes_total", "lane")
    for lane, name in _LANES.items():
        waiting = now.total("queued_jobs", lane=lane)
        times = _times(recent, "said_to_stored_seconds", lane=lane)
        table.add_row(name, _count(waiting), _count(done.get(lane, 0)), *times)
    return table


def _store(now: Sample, recent: Sample) -> Table:
    table, states = _table("store", ""), now.by("jobs", "state")
    jobs = ", ".join(f"{_count(states.get(s, 0))} {s}" for s in ("running", "dead"))
    stored = recent.by("stored_memories_total", "change")
    disk = now.by("disk_free_bytes", "disk").get("data")
    table.add_row("jobs", jobs)
    table.add_row("oldest job waits", _duration(now.total("oldest_queued_job_seconds")))
    new, evolved = stored.get("created", 0) + stored.get("superseded", 0), recent.total("evolved_total")
    table.add_row("memories", f"{_count(new)} new, {_count(evolved)} evolved")
    table.add_row("failures", _count(recent.total("memory_failures_total")))
    table.add_row("disk free", "elsewhere" if disk is None else f"{disk / 1e9:.1f} GB")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    table.add_column(title, min_width=10, no_wrap=True, overflow="ellipsis")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True, min_width=max(4, len(name)))
    return table


def _largest(counts: Mapping[str, float], most: int = _MOST_ROWS) -> Iterable[tuple[str, float]]:
    """Return what was counted, in the order of its name; the most frequent if there are too many."""
    rows = sorted(counts.items(), key=lambda item: -item[1])[:most]
    return sorted(row for row in rows if row[1] > 0)


def _times(recent: Sample, name: str, **only: str) -> list[str]:
    quantiles = (recent.quantile(q, name, **only) for q in (0.5, 0.99))
    return ["–" if seconds is None else _duration(seconds) for seconds in quantiles]


def _duration(seconds: float) -> str:
    """Return a time in the unit that keeps it short: 0.4 ms, 12 ms, 3.1 s, 4 min, 2 h, 3 d."""
    for below, per, unit in ((0.9995, 1e-3, "ms"), (90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < below:
            value = seconds / per
            return f"{value:.0f} {unit}" if value >= 10 or unit in ("min", "h") else f"{value:.1f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _count(n: float) -> str:
    """Return a whole number in at most five characters."""
    for limit, per, unit in ((100_000, 1, ""), (10_000_000, 1e3, "k"), (math.inf, 1e6, "M")):
        if n < limit:
            return f"{n / per:.0f}{unit}"
    return "?"
