"""`scripts/soak`: run the proxy for an hour under a mixed load, and say what grows and what was wrong."""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench import machine
from bench.servers import DidNotStart
from bench.soak import servers, verdict
from bench.soak.acts import Acts, Tally
from bench.soak.people import Crowd, Person
from bench.soak.verdict import Line
from bench.soak.watch import Sample, Watch, complaints
from proxy import __version__

EVERY_S = 30.0
SETTLED_S = 60.0  # after the load: the silence of fifteen seconds, the extraction, and time enough
# Chains are kept here and not by the upstream, so that they are part of what is measured.
ENVIRONMENT = {
    "MEMORY_PROXY__UPSTREAM__RESPONSES": "translate",
    "MEMORY_PROXY__LOGGING__FORMAT": "json",
    "MEMORY_PROXY__MEMORY__DEADLINE_MS": "2000",  # other programs may run on this machine
}


class Soak:
    """One run: load, samples, and what was found in the end."""

    def __init__(self, options: argparse.Namespace, stage: servers.Stage, console: Console) -> None:
        self._options, self._stage, self._console = options, stage, console
        self._rng = Random(options.seed)
        self.crowd = Crowd(options.people, self._rng)
        self.samples: list[Sample] = []
        self.lines: list[Line] = []
        self.busy = 0  # acts that came when everybody was busy

    async def run(self, data: Path) -> Tally:
        """Raises ExceptionGroup where a sample could not be taken: then the proxy is gone."""
        origin = f"http://127.0.0.1:{self._stage.proxy.port}"
        process = self._stage.proxy.process
        assert process is not None
        timeout, connector = aiohttp.ClientTimeout(total=60), aiohttp.TCPConnector(limit=64)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            watch = Watch(http, origin, process.pid, data, time.monotonic())
            acts = Acts(http, f"{origin}/v1", self.crowd, self._rng)
            await acts.look_around()
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(watch, acts.tally))
                await self._load(acts)
                watching.cancel()
            self.samples.append(await watch.look())
            self.lines += [*verdict.growth(self.samples), *await self._in_the_end(acts)]
            self.lines += verdict.health(self.samples, complaints(self._stage.log).total())
        return acts.tally

    async def _load(self, acts: Acts) -> None:
        """Let people act at the rate, at random moments, until the time is up."""
        until = time.monotonic() + 60 * self._options.minutes
        due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while due < until:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if (person := self.crowd.take()) is None:
                    self.busy += 1
                else:
                    tasks.create_task(acts.one(person))
                due += self._rng.expovariate(self._options.rate)

    async def _watch(self, watch: Watch, tally: Tally) -> None:
        """Take a sample now and then, and show it."""
        with Live(console=self._console, transient=True, auto_refresh=False) as live:
            while True:
                self.samples.append(await watch.look())
                progress = self._progress(self.samples[-1], tally)
                if self._console.is_terminal:
                    live.update(Text(progress), refresh=True)
                else:
                    self._console.print(progress, highlight=False, soft_wrap=True)
                await asyncio.sleep(EVERY_S)

    def _progress(self, now: Sample, tally: Tally) -> str:
        wrong = ", ".join(f"{count} × {kind}" for kind, count in tally.wrong.most_common(3))
        return (
            f"{now.at / 60:5.1f} of {self._options.minutes:g} min · {now.requests:,} requests · "
            f"{self.crowd.seen} people · {now.rss:.1f} MB · {now.fds} files · {now.threads} threads · "
            f"disk {now.disk:.1f}+{now.wal:.1f} MB · {now.queued} jobs · wrong: {wrong or 'none'}"
        )

    # ------------------------------------------------------------ in the end
    async def _in_the_end(self, acts: Acts) -> list[Line]:
        """Return whether what was promised is there, and what was forgotten is not."""
        await asyncio.sleep(SETTLED_S)
        lost = shown = 0
        promised = [t for p in self.crowd.idle for t in p.stated]
        for person in self.crowd.idle:
            one_lost, one_shown = _lost_and_shown(person, await acts.remembered(person.user_id))
            lost, shown = lost + one_lost, shown + one_shown
        left = [user for user in self.crowd.forgotten_ids if await acts.remembered(user)]
        tally = acts.tally
        share = tally.recalled / tally.asked if tally.asked else 1.0
        of_users = f"forgotten users who left something, of {len(self.crowd.forgotten_ids)}"
        return [
            verdict.none_of("answers not as promised", tally.wrong.total(), "each is counted below"),
            verdict.none_of(
                f"facts lost, of {len(promised)} promised", lost, "X-Memory-Store: queued is kept"
            ),
            verdict.none_of("forgotten facts that show", shown, "forgotten is forgotten"),
            verdict.none_of(of_users, len(left), "forgotten is forgotten"),
            Line(f"questions answered from memory, of {tally.asked}", f"{share:.1%}", "≥ 95%", share >= 0.95),
        ]


def _lost_and_shown(person: Person, found: "Sequence[dict[str, Any]]") -> tuple[int, int]:
    """Return how many promised facts are missing, and how many forgotten ones are there."""
    texts = " ".join(m["content"] for m in found)
    lost = sum(not t.forgotten and t.word not in texts for t in person.stated)
    return lost, sum(t.forgotten and t.word in texts for t in person.stated)


def shown(lines: Sequence[Line]) -> Table:
    table = Table("", "found", "bound", "", title="An hour under load")
    for line in lines:
        mark = {True: "[green]PASS", False: "[red]FAIL", None: "too short"}[line.passed]
        table.add_row(line.name, line.found, line.bound, mark)
    return table


def save(options: argparse.Namespace, soak: Soak, tally: Tally, stage: servers.Stage, cpu: float) -> Path:
    """Write everything down; returns where."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    found = {
        "version": __version__, "commit": commit, "machine": machine.describe(), "options": vars(options),
        "lines": [asdict(line) for line in soak.lines],
        "people": soak.crowd.seen, "acts": dict(tally.done),
        "wrong": dict(tally.wrong), "seen": tally.seen,
        "all_busy": soak.busy, "logged": dict(complaints(stage.log)), "processor_share_of_the_load": cpu,
        "memory_ms": {part: _quantiles(times) for part, times in _thirds(tally.memory_ms).items()},
        "samples": [asdict(s) for s in soak.samples],
    }  # fmt: skip
    file = Path("results") / f"soak-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(found, indent=1, default=str) + "\n", "utf-8")
    return file


def _thirds(times: Sequence[tuple[float, float]]) -> dict[str, list[float]]:
    third = len(times) // 3
    parts = {"first third": times[:third], "second": times[third : 2 * third], "last": times[2 * third :]}
    return {name: sorted(ms for _, ms in part) for name, part in parts.items()}


def _quantiles(times: Sequence[float]) -> dict[str, float]:
    return {f"p{q}": times[len(times) * q // 100] for q in (50, 95, 99)} if times else {}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=4.0, help="acts a second")
    parser.add_argument("--people", type=int, default=60, help="at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="its environment")
    return parser.parse_args()


def main() -> int:
    options, console = arguments(), Console(stderr=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as by Ctrl-C: all servers are ended
    extra = dict(pair.split("=", 1) for pair in options.set)
    with tempfile.TemporaryDirectory(prefix="memory-proxy-soak-") as directory:
        try:
            with servers.stage(Path(directory), ENVIRONMENT | extra) as stage:
                soak = Soak(options, stage, console)
                began, before = time.monotonic(), time.process_time()
                tally = asyncio.run(soak.run(Path(directory) / "data"))
                cpu = (time.process_time() - before) / (time.monotonic() - began)
                file = save(options, soak, tally, stage, cpu)
                logged = complaints(stage.log)
        except DidNotStart as error:
            console.print(str(error), highlight=False)
            return 2
    out = Console(width=140)
    out.print(shown(soak.lines))
    for kind, count in [*tally.wrong.most_common(), *logged.most_common()]:
        out.print(f"{count} × {kind}", highlight=False)
    out.print(f"kept in {file}")
    return int(any(line.passed is False for line in soak.lines))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
