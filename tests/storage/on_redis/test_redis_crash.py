"""kill -9 of replicas at random moments while others go on: what was acknowledged is extracted, once."""

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from tests.storage.making import ANNA, NOW, always
from tests.storage.on_redis.conversing_support import replica
from tests.storage.on_redis.shared_support import by_rows, shared

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
TALKER = Path(__file__).with_name("talker.py")
ROOT = TALKER.parents[3]


async def run_and_kill(url: str, name: str, lines: int) -> set[str]:
    """Run a replica until it has acknowledged so many things, kill it, and return them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TALKER), url, name,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = []
    async with asyncio.timeout(60):
        while len(told) < lines:
            line = await process.stdout.readline()
            assert line, "the replica ended by itself"
            told.append(line.decode())
        process.kill()
        rest, _ = await process.communicate()
    return {line.split()[1] for line in told + rest.decode().splitlines(keepends=True) if line.endswith("\n")}


async def are_dead(redis) -> None:
    """To the others, all replicas so far were last seen long ago."""
    for name in await redis.call("ZRANGE", redis.key("instances"), 0, -1):
        await redis.call("ZADD", redis.key("instances"), 1, name)


@pytest.mark.parametrize("together", [1, 2])
async def test_nothing_acknowledged_is_lost_or_extracted_twice(server, redis, together):
    told, chance = set(), random.Random(together)
    for n in range(ROUNDS):
        runs = (run_and_kill(server.url, f"r{n}p{p}-", chance.randint(10, 60)) for p in range(together))
        told |= set().union(*await asyncio.gather(*runs))
        await are_dead(redis)
    async with replica(server.url) as ours:
        while await ours.sessions.sweep(NOW, always) or (await ours.jobs.counts()).queued:
            while job := await ours.jobs.claim(NOW, 60.0):
                await ours.serve(job)
        stored = await ours.facts(ANNA)
    assert told <= stored.keys()
    assert set(stored.values()) == {1}
    assert await shared(redis) == await by_rows(redis)
