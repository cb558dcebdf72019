"""A replica that talks and extracts in a loop and prints what was acknowledged, until it is killed.

`python talker.py <redis url> <name>`: each line is `begun <what was said>`, printed after the store has
returned.
"""

import asyncio
import itertools
import sys

from proxy.domain.core import Outcome
from proxy.domain.errors import LeaseLost
from tests.storage.making import NOW, always, exchange
from tests.storage.on_redis.conversing_support import Replica, replica


async def converse(ours: Replica, name: str) -> None:
    for n in itertools.count():
        said = f"{name}-{n}"
        new = exchange(said, session=f"{name}-{n % 3}", id=said, key=said)
        begun = await ours.sessions.begin(new)
        print("begun", said, flush=True)
        await ours.sessions.complete(begun, Outcome("an answer", whole=True), always)


async def extract(ours: Replica) -> None:
    while True:
        job = await ours.jobs.claim(NOW, 3600.0)
        if job is None:
            await asyncio.sleep(0.001)
            continue
        try:
            await ours.serve(job, limit=3)
        except LeaseLost:
            continue


async def main(url: str, name: str) -> None:
    async with replica(url) as ours, asyncio.TaskGroup() as group:
        group.create_task(extract(ours))
        for n in range(3):
            group.create_task(converse(ours, f"{name}{n}"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
