"""kill -9 at random moments, one process and two: what was acknowledged is there, once, in a sound file."""

import asyncio
import os
import random
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pytest

from proxy.storage.sql.stores import SqlStores
from proxy.storage.sqlite import SqliteStores
from tests.storage.committer import SCOPE, at_once
from tests.storage.making import create, of

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "4"))
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


@pytest.mark.parametrize("processes", [1, 2])
async def test_nothing_acknowledged_is_lost_or_stored_twice(tmp_path, processes):
    begun, chance = set(), random.Random(processes)
    for n in range(ROUNDS):
        runs = (run_and_kill(tmp_path, f"r{n}p{p}-", chance.randint(30, 300)) for p in range(processes))
        said = [line.split()[:2] for lines in await asyncio.gather(*runs) for line in lines]
        begun |= {what[1] for what in said if len(what) == 2 and what[0] == "begun"}
    stores = SqliteStores(tmp_path)
    await stores.open()
    await extract_the_rest(stores)
    page = await stores.memories.list(of(SCOPE), limit=1_000_000)
    stored = Counter(memory.content.split()[0] for memory in page.items)
    await stores.close()
    assert begun <= stored.keys()
    assert set(stored.values()) == {1}
    file = sqlite3.connect(tmp_path / "memory.db")
    assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert file.execute("PRAGMA foreign_key_check").fetchall() == []
    file.close()
