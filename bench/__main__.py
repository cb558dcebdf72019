"""The command: installs what is missing, starts all servers, measures them in turn, prints and keeps results.

Every round measures every row once, in another order, so that a drift of the machine falls on all alike.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench import figures, machine, report, seed, servers, tools
from bench.cell import Bench, Cell, Subject
from bench.machine import Patience
from bench.workload import CHAT, FEW, MANY, MEMORY, ONE, PASSTHROUGH, RECALL, STREAMS, Bodies, Kind, Load

ROOT = Path(__file__).resolve().parents[1]
USERS, LARGE_USERS = 100, 1_000
PEER_ROWS = {"nginx": report.NGINX, "litellm": report.LITELLM, "portkey": report.PORTKEY}
OUR_ROWS: dict[str, Kind] = {
    report.PASSTHROUGH: PASSTHROUGH,
    report.CHAT: CHAT,
    report.RECALL: RECALL,
    report.MEMORY: MEMORY,
}
LARGE_ROWS = {report.LARGE_RECALL: RECALL, report.LARGE: MEMORY}
# In addition to direct and our own rows; the others would only make the run longer.
PEER_STREAMS = ("s0_c32", "s5_c32", "s20_c256", "s250_c2000")
MOST_STREAMS = "s250_c2000"  # takes as long as all others together: measured where it is asked for
USUAL_STREAMS = [name for name in STREAMS if name != MOST_STREAMS]
QUICK_STREAMS = ("s5_c32", "s20_c32", "s20_c256")


def main() -> None:
    options = _options()
    if options.docs is not None:
        try:
            print(f"Published {figures.publish(None if options.docs == Path() else options.docs)}")
        except (OSError, ValueError) as error:
            sys.exit(f"bench: {error}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as by Ctrl-C: all servers are ended
    tools.CACHE.mkdir(parents=True, exist_ok=True)
    say("tools")
    try:
        tools.built("upstream"), tools.built("load")
    except tools.Missing as e:
        sys.exit(f"bench: {e}")
    peers = {name: peer for name in options.only if (peer := _peer(name)) is not None}
    began, cells = time.monotonic(), list[Cell]()
    meta = _meta(options, peers)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=tools.CACHE)))
        bench, subjects = _start(stack, scratch, options, peers, meta)
        loads = _loads(options)
        total = sum(_is_measured(s, load) for s in subjects for load in loads) * options.rounds
        for round_, subject, load in _order(subjects, loads, options.rounds):
            if time.monotonic() - began > options.minutes * 60:
                say(f"time is up ({options.minutes:g} minutes): what has been measured is what counts")
                break
            cell = bench.measure(subject, load, round_)
            cells.append(cell)
            _progress(cell, len(cells), total)
    print(file=sys.stderr)
    results = report.Results(cells)
    text = report.markdown(results, meta)
    file = _keep(meta, results, text)
    print(text)
    print(f"\nKept in {file.relative_to(ROOT)}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, fewer streams: about three minutes")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds over all rows (default 3; --quick 1)")
    names = ",".join(tools.PEERS)
    parser.add_argument("--only", default=names, metavar="NAMES", help=f"peers to measure (default {names})")
    parser.add_argument("--no-streams", action="store_true", help="leave the streams out")
    parser.add_argument(
        "--streams",
        metavar="NAMES",
        help=f"streams to measure (default all but {MOST_STREAMS}, 2,000 at a time): {','.join(STREAMS)}",
    )
    parser.add_argument("--large", action="store_true", help="also 100,000 memories of 1,000 users")
    parser.add_argument("--minutes", type=float, help="start no measurement later (default 15; --quick 4)")
    parser.add_argument(
        "--docs",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="measure nothing; copy the tables of a saved run (default the latest) into docs/performance.md",
    )
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    if unknown := set(options.only) - set(tools.PEERS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {names}")
    options.streams = options.streams.split(",") if options.streams else []
    if unknown := set(options.streams) - set(STREAMS):
        parser.error(f"--streams: {', '.join(sorted(unknown))} is not one of {','.join(STREAMS)}")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.minutes = options.minutes or (4 if options.quick else 15)
    return options


# ------------------------------------------------------------ servers
def _peer(name: str) -> tools.Peer | None:
    try:
        return tools.PEERS[name]()
    except tools.Missing as e:
        say(f"!!! {name} is LEFT OUT: {e}")
        return None


def _start(
    stack: ExitStack,
    scratch: Path,
    options: argparse.Namespace,
    peers: dict[str, tools.Peer],
    meta: dict[str, object],
) -> tuple[Bench, list[Subject]]:
    """Start everything; return what measures, and the rows. All is ended when the stack unwinds."""
    proxy_cpus, load_cpus = machine.processors()
    bodies = Bodies(scratch)

    def run(name: str, port: int, plan: servers.Plan, cpus: set[int]) -> servers.Server:
        server = servers.start(name, port, plan, cpus, scratch / f"{name.replace(' ', '-')}.log")
        stack.callback(server.stop)
        say(f"{name} answers after {server.started_s:.1f} s, {server.idle_mib:.0f} MiB")
        return server

    port = servers.free_port()
    upstream = run("upstream", port, servers.upstream(port), load_cpus)
    direct = servers.Server(report.DIRECT, port)
    subjects = [Subject(report.DIRECT, direct, CHAT)]
    for name, peer in peers.items():
        peer_port = servers.free_port()
        try:
            plan = servers.PLANS[name](peer, peer_port, port, scratch)
            subjects.append(Subject(PEER_ROWS[name], run(name, peer_port, plan, proxy_cpus), CHAT))
        except servers.DidNotStart as e:
            say(f"!!! {name} is LEFT OUT: {e}")
    ours = _ours(scratch / "data", USERS, port)
    proxy = run("memory-proxy", *ours, proxy_cpus)
    meta["memory_proxy"] = {"started_s": proxy.started_s, "idle_mib": proxy.idle_mib}
    subjects += [Subject(name, proxy, kind, USERS) for name, kind in OUR_ROWS.items()]
    if options.large:
        large = run("memory-proxy 100k", *_ours(scratch / "large", LARGE_USERS, port), proxy_cpus)
        subjects += [Subject(name, large, kind, LARGE_USERS) for name, kind in LARGE_ROWS.items()]
    patience = Patience(30 if options.quick else 120)
    return Bench(upstream, bodies, load_cpus, patience), subjects


def _ours(data_dir: Path, users: int, upstream_port: int) -> tuple[int, servers.Plan]:
    """Fill a store, and return the port and the plan of a proxy over it."""
    asyncio.run(_fill(data_dir, users))
    port = servers.free_port()
    return port, servers.memory_proxy(port, upstream_port, data_dir)


async def _fill(data_dir: Path, users: int) -> None:
    total = users * seed.FACTS_A_USER
    async for count in seed.fill(data_dir, users):
        if count % 2_000 == 0:
            _line(f"memories {count:,} of {total:,}")
    print(file=sys.stderr)


# ------------------------------------------------------------ order
def _loads(options: argparse.Namespace) -> list[Load]:
    if options.no_streams:
        return [ONE, FEW, MANY]
    usual = QUICK_STREAMS if options.quick else USUAL_STREAMS
    return [ONE, FEW, MANY, *(STREAMS[name] for name in options.streams or usual)]


def _is_measured(subject: Subject, load: Load) -> bool:
    if not load.streams:
        return subject.kind.reads or load is not FEW
    if subject.name in PEER_ROWS.values():
        return load.name in PEER_STREAMS
    return subject.name in (report.DIRECT, report.CHAT, report.MEMORY)


def _order(subjects: list[Subject], loads: list[Load], rounds: int) -> Iterator[tuple[int, Subject, Load]]:
    """Yield all measurements; rows of one load follow each other, and begin with another one each round."""
    for round_ in range(rounds):
        turned = subjects[round_ % len(subjects) :] + subjects[: round_ % len(subjects)]
        for load in loads:
            for subject in turned if round_ % 2 == 0 else turned[::-1]:
                if _is_measured(subject, load):
                    yield round_, subject, load


# ------------------------------------------------------------ words
def _meta(options: argparse.Namespace, peers: dict[str, tools.Peer]) -> dict[str, object]:
    def git(*words: str) -> str:
        try:
            return subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
            ).stdout.strip()
        except OSError:
            return ""

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = bool(git("status", "--porcelain", "--", "proxy"))
    return {
        "commit": f"{commit}, with changes" if changed else commit,
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "rounds": options.rounds,
        "peers": {name: peer.version for name, peer in peers.items()},
        **machine.describe(),
    }


def _keep(meta: dict[str, object], results: report.Results, text: str) -> Path:
    """Write the results to results/; return the file."""
    directory = ROOT / "results"
    directory.mkdir(exist_ok=True)
    commit = str(meta["commit"]).partition(",")[0]
    file = directory / f"bench-{time.strftime('%Y%m%d-%H%M%S')}-{commit}.json"
    goals = [{**asdict(goal), "word": goal.word} for goal in report.goals(results)]
    cells = [asdict(cell) for cell in results.cells]
    file.write_text(json.dumps({"meta": meta, "goals": goals, "cells": cells, "report": text}, indent=1))
    return file


def _progress(cell: Cell, done: int, total: int) -> None:
    latency = f"p50 {cell.p50:.2f} ms" if cell.p50 is not None else ""
    chunk = f"chunk {cell.chunk_p50:.2f}/{cell.chunk_p99:.2f} ms" if cell.chunk_p50 and cell.chunk_p99 else ""
    memory = f"injected {cell.injected}, degraded {cell.degraded}" if cell.injected or cell.degraded else ""
    bad = f"BAD {cell.bad}" if cell.bad else ""
    foreign = f"others {cell.foreign:.0%}"
    facts = [f"{cell.requests_s:,.0f}/s", latency, chunk, memory, foreign, bad]
    _line(f"[{done}/{total}] {cell.load} {cell.subject}: {' '.join(filter(None, facts))}")


def _line(text: str) -> None:
    """Show the text in place of the previous line; without a terminal, as a line of its own."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
