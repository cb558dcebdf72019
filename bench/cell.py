"""One measurement: one kind of request, in one shape, to one server."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine, tools
from bench.machine import Patience, Usage
from bench.servers import Server
from bench.workload import Bodies, Kind, Load

WARM_UP_S = 0.3
DISTURBED = 0.25  # share of one processor used by others: measured again
_SAMPLES_S = 0.25


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared: a row of the table."""

    name: str
    server: Server
    kind: Kind
    users: int = 0  # who ask, where memories are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The result. Latencies in milliseconds, None if there were none; `foreign` is the share of one
    processor that other programs used during the measurement."""

    subject: str
    load: str
    round: int
    requests: int
    bad: int
    injected: int  # answers that said X-Memory-Status: injected
    degraded: int
    requests_s: float
    chunks_s: float
    p50: float | None
    p99: float | None
    first_p50: float | None  # until the first chunk, from the request's sending
    first_p99: float | None
    chunk_p50: float | None  # from the upstream's sending of a chunk to the client's having it
    chunk_p99: float | None
    cpu_ms: float  # processor time of the server a request
    peak_mib: float
    foreign: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What measurements share."""

    upstream: Server
    bodies: Bodies
    load_cpus: set[int]
    patience: Patience

    def measure(self, subject: Subject, load: Load, round_: int, *, attempts: int = 2) -> Cell:
        """Return the least disturbed of some tries."""
        tries: list[Cell] = []
        while len(tries) < attempts and (not tries or tries[-1].foreign > DISTURBED):
            self.patience.wait()
            self._load(subject, load, WARM_UP_S)
            self._settle(subject.server)
            tries.append(self._once(subject, load, round_))
            if self.patience.left <= 0:
                break
        return min(tries, key=lambda cell: cell.foreign)

    def _once(self, subject: Subject, load: Load, round_: int) -> Cell:
        pids, upstream = subject.server.pids(), self.upstream.pids()
        usage, cpu, others = Usage.now(), machine.cpu_seconds(pids), machine.cpu_seconds(upstream)
        client_before = _children_seconds()
        began = time.monotonic()
        outcome, peak = self._load(subject, load, load.seconds, watch=pids)
        wall = time.monotonic() - began
        cpu = machine.cpu_seconds(pids) - cpu
        others = machine.cpu_seconds(upstream) - others + _children_seconds() - client_before
        busy = Usage.now().busy_since(usage)
        return Cell(
            subject=subject.name,
            load=load.name,
            round=round_,
            requests=outcome["ok"],
            bad=outcome["bad"],
            injected=outcome["injected"],
            degraded=outcome["degraded"],
            requests_s=outcome["rps"],
            chunks_s=outcome["chunks_s"],
            p50=_ms(outcome, "lat", "p50"),
            p99=_ms(outcome, "lat", "p99"),
            first_p50=_ms(outcome, "ttft", "p50"),
            first_p99=_ms(outcome, "ttft", "p99"),
            chunk_p50=_ms(outcome, "chunk", "p50"),
            chunk_p99=_ms(outcome, "chunk", "p99"),
            cpu_ms=1000 * cpu / max(1, outcome["ok"]),
            peak_mib=peak,
            foreign=max(0.0, (busy - cpu - others) / wall),
        )

    def _load(
        self, subject: Subject, load: Load, seconds: float, watch: list[int] | None = None
    ) -> tuple[dict[str, Any], float]:
        """Send the load; return what the client counted, and the server's peak memory."""
        file = self.bodies.file(subject.kind, load, subject.users)
        client = _client(subject, load, seconds, file, self.bodies.take(file, 0))
        process = subprocess.Popen(
            client, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, self.load_cpus)
        )
        peak, end = 0.0, time.monotonic() + seconds
        try:
            while watch and load.connections >= 256 and time.monotonic() < end - _SAMPLES_S:
                time.sleep(_SAMPLES_S)
                peak = max(peak, machine.memory_mib(watch))
            output, _ = process.communicate(timeout=seconds + 30)
        finally:
            process.kill()
        outcome: dict[str, Any] = json.loads(output)
        self.bodies.take(file, outcome["ok"] + outcome["bad"] + load.connections)
        return outcome, peak

    def _settle(self, server: Server, limit_s: float = 3) -> None:
        """Return when the server has done what the warm-up left it to do."""
        end = time.monotonic() + limit_s
        while server.process is not None and time.monotonic() < end:
            before = machine.cpu_seconds(server.pids())
            time.sleep(0.2)
            if machine.cpu_seconds(server.pids()) - before <= 0.02:
                return


def _client(subject: Subject, load: Load, seconds: float, bodies: Path, first: int) -> list[str]:
    command = [str(tools.built("load")), "-p", str(subject.server.port), "-t", subject.kind.path]
    command += ["-b", str(bodies), "-f", str(first), "-c", str(load.connections)]
    command += ["-d", str(seconds), "-s", str(load.stagger_ms)]
    for header in subject.server.headers:
        command += ["-H", header]
    return command


def _ms(outcome: dict[str, Any], what: str, which: str) -> float | None:
    return outcome[what][which] / 1000 if outcome[what] else None


def _children_seconds() -> float:
    """Return the processor time of our finished children: the load clients."""
    times = os.times()
    return times.children_user + times.children_system
