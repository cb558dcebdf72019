"""What a running proxy holds: memory, files, threads, disk and queue, as the kernel and /metrics tell."""

import json
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench import machine


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment. Sizes in MB (10⁶ bytes), times in seconds."""

    at: float  # since the load began
    rss: float
    pss: float
    anonymous: float  # what the process itself wrote to; the rest are files' pages
    fds: int
    threads: int
    cpu: float  # processor time so far
    requests: int  # answered so far
    disk: float
    wal: float
    queued: int
    oldest_job: float
    dead_jobs: int
    level: int  # of degradation
    failures: int  # of memory work so far
    stored: int  # memories, by extraction, so far


@dataclass(frozen=True, slots=True)
class Watch:
    """Looks at one proxy, its worker processes included."""

    http: aiohttp.ClientSession
    origin: str
    pid: int
    data: Path
    began: float

    async def look(self) -> Sample:
        async with self.http.get(f"{self.origin}/metrics") as answer:
            metrics = _metrics(await answer.text())
        return self._sample(metrics)

    def _sample(self, metrics: dict[str, float]) -> Sample:
        pids = machine.family(self.pid)
        memory = Counter[str]()
        for pid in pids:
            memory.update(_rollup(pid))
        return Sample(
            at=time.monotonic() - self.began,
            rss=memory["Rss"] / 1e6,
            pss=memory["Pss"] / 1e6,
            anonymous=memory["Anonymous"] / 1e6,
            fds=sum(_entries(pid, "fd") for pid in pids),
            threads=sum(_entries(pid, "task") for pid in pids),
            cpu=machine.cpu_seconds(pids),
            requests=int(metrics["memory_proxy_requests_total"]),
            disk=_size(self.data, "memory.db"),
            wal=_size(self.data, "memory.db-wal"),
            queued=int(metrics["memory_proxy_jobs"] - metrics["memory_proxy_jobs/dead"]),
            oldest_job=metrics["memory_proxy_oldest_queued_job_seconds"],
            dead_jobs=int(metrics["memory_proxy_jobs/dead"]),
            level=int(metrics["memory_proxy_degradation_level"]),
            failures=int(metrics["memory_proxy_memory_failures_total"]),
            stored=int(metrics["memory_proxy_stored_memories_total"]),
        )


# A reader was at work when the log should have been emptied; the next commit does it.
_HARMLESS = frozenset({"store.purge.delayed"})


def complaints(log: Path) -> Counter[str]:
    """Return the warnings and errors of a log, by event; lines that are not JSON by their beginning."""
    found = Counter[str]()
    for line in log.read_text("utf-8", "replace").splitlines():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("level") in ("warning", "error", "critical"):
                if entry.get("event") in _HARMLESS:
                    continue
                found[str(entry.get("event"))] += 1
        if line.startswith(("WARNING ", "ERROR ", "CRITICAL ", "Traceback ")):
            found[line[:60]] += 1
    return found


def _metrics(text: str) -> dict[str, float]:
    """Return each metric's sum over its labels, and of jobs also the dead ones'."""
    found: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        found[name.partition("{")[0]] += float(value)
        if 'state="dead"' in name:
            found["memory_proxy_jobs/dead"] += float(value)
    return found


def _rollup(pid: int) -> dict[str, int]:
    """Return a process's memory in bytes, by the kernel's names."""
    found = dict[str, int]()
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]:
            name, _, value = line.partition(":")
            found[name] = int(value.split()[0]) * 1024
    return found


def _entries(pid: int, name: str) -> int:
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/{name}").iterdir()))
    return 0


def _size(data: Path, name: str) -> float:
    with suppress(OSError):
        return (data / name).stat().st_size / 1e6
    return 0.0
