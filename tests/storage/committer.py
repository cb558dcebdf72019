"""A process that commits in a loop and prints what was acknowledged, until it is killed.

`python committer.py <data_dir, or URL of a PostgreSQL> <name>`: each line is `begun <exchange>`,
`done <exchange>` or `stored <memory>`, printed after the store has returned.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from proxy.domain.changes import Create
from proxy.domain.core import Memory, Scope
from proxy.domain.errors import Conflict
from proxy.domain.session import NewExchange, NewJob, Outcome, SessionState
from proxy.storage.postgres import PostgresStores
from proxy.storage.sql.stores import SqlStores
from proxy.storage.sqlite import SqliteStores

SCOPE = Scope("t", "shared")


def say(*words: str) -> None:
    print(*words, flush=True)


def at_once(state: SessionState) -> NewJob:
    return NewJob(state.session_id, state.last_seq, 1)


async def converse(stores: SqlStores, name: str) -> None:
    for n in itertools.count():
        id_ = f"{name}-{n}"
        new = NewExchange(
            id=id_, key=id_, scope=SCOPE, session_id=f"{name}-{n % 3}", model="m", said=id_, at=0.0
        )
        begun = await stores.sessions.begin(new)
        say("begun", id_)
        await stores.sessions.complete(begun, Outcome(f"answer {id_}", whole=True), at_once)
        say("done", id_)


async def extract(stores: SqlStores) -> None:
    """Store every exchange as one memory of a fresh id: a second extraction would show as a second memory."""
    for n in itertools.count():
        job = await stores.jobs.claim(0.0, 3600.0)
        if job is None:
            await asyncio.sleep(0.001)
            continue
        batch = await stores.jobs.batch(job, limit=5, context=0)
        changes = [Create(fact(f"{job.id}-{n}-{e.id}-{job.attempts}", e.said), None) for e in batch.pending]
        try:
            await stores.memories.apply(job.scope, changes, expect=batch.stamp, done=job)
        except Conflict:
            await stores.jobs.retry(job, at=0.0, reason="conflict")
            continue
        for exchange in batch.pending:
            say("stored", exchange.said)


def fact(id_: str, content: str) -> Memory:
    return Memory(
        id=id_, scope=SCOPE, type="semantic", content=f"{content} {id_}", source="extracted", created_at=0.0,
        updated_at=0.0, valid_from=0.0,
    )  # fmt: skip


def opened(place: str) -> SqlStores:
    """Return the stores over a directory, or over PostgreSQL's URL; still closed."""
    return PostgresStores(place, connections=4) if "://" in place else SqliteStores(Path(place))


async def main(data_dir: str, name: str) -> None:
    stores = opened(data_dir)
    await stores.open()
    async with asyncio.TaskGroup() as group:
        group.create_task(extract(stores))
        for n in range(4):
            group.create_task(converse(stores, f"{name}{n}"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
