#!/usr/bin/env python3
"""Measure the memory API on one user with much: `scripts/dev/measure_memory_api.py [--memories 100000]`.

Fills a fresh store with one user's memories and runs every large call over HTTP, from a process of its
own. Every 20 ms another user says something (`begin`, `complete`) and asks for a small list.
Prints how long each call took, and the median, 99th percentile and longest of the other user's waits, next to
those of an idle proxy. Numbers mean something on a quiet machine only: the load is printed with them.
"""

import argparse
import asyncio
import contextlib
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx2
import uvicorn

from proxy.admit.gate import Gate
from proxy.domain.changes import Create, EvolutionPolicy
from proxy.domain.core import Memory, Scope
from proxy.domain.session import NewExchange, NewJob, Outcome, SessionState
from proxy.http.auth.identity import Caller
from proxy.http.memory_api.app import MemoryApi
from proxy.http.memory_api.memories import MemoryEndpoints
from proxy.http.memory_api.response_schemas import MemoryShaper
from proxy.http.memory_api.transfer import TransferEndpoints
from proxy.http.turns import Zones
from proxy.learn.edits import MemoryEditor
from proxy.learn.evolution import Evolution
from proxy.models.load import load_embedder
from proxy.storage.sqlite import SqliteStores

BIG, SMALL = Scope("default", "big"), Scope("default", "small")
PAUSE_S = 0.02
BATCH = 2_000
# Reads the whole answer, as fast as it comes, and says how many bytes it had.
CLIENT = """
import http.client, sys
origin, method, path, file = sys.argv[1:]
connection = http.client.HTTPConnection(origin)
body = open(file, "rb") if file else None
connection.request(method, path, body, {"Content-Type": "application/x-ndjson"} if file else {})
answer, count = connection.getresponse(), 0
kept = b""
while chunk := answer.read(1 << 20):
    count += len(chunk)
    kept = (kept + chunk)[:300]
print(answer.status, count, kept.decode(errors="replace"))
"""
WORDS = "garden river piano window paper summer kitchen mountain bicycle letter market bridge".split()
CHINESE = "用户每天早上在花园里喝一杯绿茶"


@dataclass
class Waits:
    """The other user's waits, in milliseconds, by what they waited for."""

    of: dict[str, list[float]] = field(default_factory=lambda: {"begin": [], "complete": [], "GET": []})

    def row(self) -> str:
        return "  ".join(f"{name} {shown(ms)}" for name, ms in self.of.items())


def shown(ms: Sequence[float]) -> str:
    ordered = sorted(ms) or [0.0]
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{ordered[len(ordered) // 2]:5.1f} {p99:6.1f} {ordered[-1]:6.1f}"


def memory(number: int, rng: random.Random) -> Memory:
    words = " ".join(rng.choices(WORDS, k=8))
    content = f"{CHINESE}，第{number}次。" if number % 50 == 0 else f"User's note {number} is about {words}."
    return Memory(
        id=f"mem_{number:08}", scope=BIG, type=("semantic", "episodic")[number % 2], content=content,
        source="extracted", created_at=1.7e9 + number, updated_at=1.7e9 + number, valid_from=1.7e9 + number,
    )  # fmt: skip


async def fill(stores: SqliteStores, count: int) -> None:
    """Store so many memories, with vectors, without going through the gate."""
    rng = random.Random(1)  # the same memories each time
    vector = bytes(4 * 383) + b"\x00\x00\x80\x3f"
    for start in range(0, count, BATCH):
        changes = [Create(memory(n, rng), vector) for n in range(start, min(count, start + BATCH))]
        await stores.memories.apply(BIG, changes, expect=await stores.memories.stamp(BIG))


def due(state: SessionState) -> NewJob | None:
    return NewJob(state.session_id, state.last_seq, 2) if state.pending >= 10 else None


async def live(stores: SqliteStores, http: httpx2.AsyncClient, waits: Waits, stop: asyncio.Event) -> None:
    """Act as the other user until stopped."""

    async def timed(name: str, work: Awaitable[Any]) -> Any:
        started = time.perf_counter()
        result = await work
        waits.of[name].append((time.perf_counter() - started) * 1000)
        return result

    number = time.time_ns()
    while not stop.is_set():
        number += 1
        new = NewExchange(
            id=f"ex{number}", key=f"{number}", scope=SMALL, session_id=f"s{number % 50}", model="m",
            said="I like figs.", at=time.time(),
        )  # fmt: skip
        begun = await timed("begin", stores.sessions.begin(new))
        await timed("complete", stores.sessions.complete(begun, Outcome("Noted.", whole=True), due))
        answer = await timed("GET", http.get("/v1/memory", params={"user_id": "small", "limit": 5}))
        assert answer.status_code == 200
        await asyncio.sleep(PAUSE_S)


async def call(origin: str, method: str, path: str, file: Path | None = None) -> str:
    """Make one call from a process of its own; return status, bytes, and how the answer begins."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, origin, method, path, str(file or ""), stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    out, _ = await child.communicate()
    return out.decode().strip()


@contextlib.asynccontextmanager
async def served(api: MemoryApi) -> AsyncIterator[str]:
    with socket.socket() as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            api,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await task


async def measured(name: str, stores: SqliteStores, origin: str, work: Callable[[], Awaitable[str]]) -> None:
    waits, stop = Waits(), asyncio.Event()
    async with httpx2.AsyncClient(base_url=f"http://{origin}", timeout=60) as http:
        other = asyncio.create_task(live(stores, http, waits, stop))
        await asyncio.sleep(0.2)
        started = time.perf_counter()
        outcome = await work()
        took = time.perf_counter() - started
        stop.set()
        await other
    print(
        f"{name:26} {took:8.2f} s  {waits.row()}  load {os.getloadavg()[0]:.1f}  {outcome[:70]!r}", flush=True
    )


async def idle() -> str:
    await asyncio.sleep(5)
    return ""


async def measure(count: int, directory: Path) -> None:
    loaded = load_embedder(directory / "models")
    stores = SqliteStores(directory / "data")
    await stores.open()
    await fill(stores, count)
    api = _api(stores, Gate(stores.memories, loaded.embedder))
    lines = directory / "import.ndjson"
    rng = random.Random(2)  # the same lines each time
    lines.write_text(
        "".join(
            f'{{"content": "User keeps item {n}: {" ".join(rng.choices(WORDS, k=6))}.", "user_id": "new"}}\n'
            for n in range(10_000)
        )
    )
    big = "user_id=big"
    async with served(api) as origin:

        def http(method: str, path: str, file: Path | None = None) -> Callable[[], Awaitable[str]]:
            return lambda: call(origin, method, f"/v1/memory{path}", file)

        print(f"{count} memories; of the other user: median, 99 %, longest in ms")
        for name, work in (
            ("idle", idle),
            ("list, 100 and total", http("GET", f"?{big}&limit=100")),
            ("list, q ascii", http("GET", f"?{big}&limit=100&q=no+such+thing")),
            ("list, q Chinese", http("GET", f"?{big}&limit=100&q={quote('绿茶')}")),
            ("forget by id", http("DELETE", f"/mem_00000007?{big}")),
            ("forget a type, dry run", http("DELETE", f"?{big}&type=episodic&dry_run=true")),
            ("forget all, dry run", http("DELETE", f"?{big}&dry_run=true")),
            ("export", http("GET", f"/export?{big}")),
            ("import of 10,000", http("POST", "/import", lines)),
            ("import of the same again", http("POST", "/import", lines)),
            ("forget a type", http("DELETE", f"?{big}&type=episodic")),
            ("forget all", http("DELETE", f"?{big}")),
        ):
            await measured(name, stores, origin, work)
    await stores.close()
    if loaded.embedder is not None:
        loaded.embedder.close()


def _api(stores: SqliteStores, gate: Gate) -> MemoryApi:
    edits = MemoryEditor(gate, stores.quarantine, time.time)
    zones = Zones(stores.sessions, "UTC", time.time)
    shape = MemoryShaper(Evolution(stores.evolution, (), EvolutionPolicy(), time.time).policy_of, time.time)
    return MemoryApi(
        lambda request: Caller("default"),
        MemoryEndpoints(stores.memories, edits, zones, time.time, lambda scope: None, shape),
        TransferEndpoints(stores.memories, edits, zones, time.time),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, help="where to put the store (default: a temporary directory)")
    parser.add_argument("--switch-ms", type=float, default=5.0, help="how long a thread may keep the GIL")
    args = parser.parse_args()
    sys.setswitchinterval(args.switch_ms / 1000)
    with tempfile.TemporaryDirectory(dir=args.dir) as directory:
        asyncio.run(measure(args.memories, Path(directory)))


if __name__ == "__main__":
    main()
