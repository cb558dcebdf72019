"""kill -9 of two processes at random moments: what was acknowledged is stored, once."""

import asyncio
import os
import random
import sys
from collections import Counter
from pathlib import Path

from proxy.storage import postgres
from proxy.storage.sql.stores import SqlStores
from tests.storage.committer import SCOPE, at_once
from tests.storage.making import create, of

ENGINES = ("sqlite", "postgres")
ROUNDS = int(os.environ.get("CRASH_ROUNDS", "1"))
COMMITTER = Path(__file__).with_name("committer.py")
ROOT = COMMITTER.parents[2]


async def run_and_kill(data_dir: Path | str, name: str, lines: int) -> list[str]:
    """Run a committer until it has acknowledged so many things, kill it, and return them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(COMMITTER), str(data_dir), name,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    acknowledged = []
    async with asyncio.timeout(60):
        while len(acknowledged) < lines:
            line = await process.stdout.readline()
            assert line, "the committer ended by itself"
            acknowledged.append(line.decode().strip())
        process.kill()
        rest, _ = await process.communicate()
    return acknowledged + rest.decode().splitlines()


async def extract_the_rest(stores: SqlStores) -> None:
    while True:
        while job := await stores.jobs.claim(1.0, 60.0):
            batch = await stores.jobs.batch(job, limit=50, context=0)
            changes = [create(f"{e.said} {job.id}-{e.id}", SCOPE) for e in batch.pending]
            await stores.memories.apply(job.scope, changes, expect=batch.stamp, done=job)
        # Not once only: a session with a queued job is not offered, and that job may end before an orphan.
        if not await stores.sessions.sweep(1.0, at_once):
            return


async def test_nothing_acknowledged_is_lost_or_stored_twice(engine, monkeypatch):
    begun, chance = set(), random.Random(2)
    for n in range(ROUNDS):
        runs = (run_and_kill(engine.address, f"r{n}p{p}-", chance.randint(30, 120)) for p in range(2))
        said = [line.split()[:2] for lines in await asyncio.gather(*runs) for line in lines]
        begun |= {what[1] for what in said if len(what) == 2 and what[0] == "begun"}
    monkeypatch.setattr(postgres, "ALIVE", "FALSE")  # all the others are dead
    stores = await engine.open()
    await extract_the_rest(stores)
    page = await stores.memories.list(of(SCOPE), limit=1_000_000)
    stored = Counter(memory.content.split()[0] for memory in page.items)
    await stores.close()
    assert begun <= stored.keys()
    assert set(stored.values()) == {1}
    if engine.name == "sqlite":
        assert engine.rows("PRAGMA integrity_check") == [("ok",)]
        assert engine.rows("PRAGMA foreign_key_check") == []
