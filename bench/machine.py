"""Processes and the machine, as reported by the kernel (Linux: /proc)."""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        children.setdefault(int(rest.split()[1]), []).append(int(name.split()[0]))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of living processes, user and system."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def memory_mib(pids: Iterable[int]) -> float:
    """Return the resident memory. What processes share counts more than once, but to ask the kernel for
    exact shares (smaps) would stop a process for milliseconds while it is measured."""
    pages = 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time of the whole machine since it started, in seconds over all processors."""

    total: float
    idle: float

    @classmethod
    def now(cls) -> "Usage":
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(fields) / _TICKS, (fields[3] + fields[4]) / _TICKS)

    def busy_since(self, before: "Usage") -> float:
        """Return the seconds that processors worked."""
        return (self.total - before.total) - (self.idle - before.idle)


class Patience:
    """Waits for the machine to be quiet, but in the whole run no longer than `seconds`."""

    BUSY = 0.2  # share of one processor that others may use

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def wait(self) -> None:
        """Return when the machine is quiet, or the patience is at its end."""
        while self.left > 0:
            before, began = Usage.now(), time.monotonic()
            time.sleep(0.3)
            took = time.monotonic() - began
            if Usage.now().busy_since(before) / took < self.BUSY:
                return
            self.left -= took


def processors() -> tuple[set[int], set[int]]:
    """Return where the proxies run, and where upstream and load client do: apart, if there are two."""
    usable = sorted(os.sched_getaffinity(0))
    return ({usable[1]}, {usable[0]}) if len(usable) > 1 else (set(usable), set(usable))


def describe() -> dict[str, str | int]:
    """Return a description of this machine."""
    models = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return {"processor": model, "processors": os.cpu_count() or 1, "python": platform.python_version()}
