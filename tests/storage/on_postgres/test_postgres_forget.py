"""Forgets over PostgreSQL: at once and in portions, with other replicas, and in any order of events."""

import asyncio
import random

import pytest
from hypothesis import settings

from proxy.domain.errors import Conflict
from proxy.domain.session import Outcome
from proxy.storage.postgres import PostgresStores
from tests import postgres_server
from tests.storage.conftest import rows_in
from tests.storage.making import ANNA, NOW, always, contents, create, exchange, of
from tests.storage.test_sqlite_stateful import Forgetting
from tests.support.examples import examples


class ForgettingOverPostgres(Forgetting):
    """The machine of test_sqlite_stateful, with two replicas of one database."""

    server: postgres_server.PostgresServer

    def __init__(self):
        self.url = self.server.new_database("ours")
        super().__init__()

    def opened(self):
        stores = PostgresStores(self.url, connections=4)
        self.loop.run_until_complete(stores.open())
        return stores

    def written(self):
        return rows_in(self.url)

    def teardown(self):
        super().teardown()
        self.server.drop(self.url)


def test_nothing_forgotten_is_seen_again_in_whatever_order(server, monkeypatch):
    monkeypatch.setattr(ForgettingOverPostgres, "server", server, raising=False)
    machine = ForgettingOverPostgres.TestCase
    machine.settings = settings(max_examples=examples(4), stateful_step_count=12, deadline=None)
    machine("runTest").runTest()


async def extract(stores, said, rounds):
    """Answer and extract, again and again, as a replica does; count what came too late."""
    late = 0
    for n in range(rounds):
        new = exchange(
            f"say {said}-{n}", ANNA, session=f"{said}-{n % 3}", id=f"{said}-{n}", key=f"{said}-{n}"
        )
        begun = await stores.sessions.begin(new)
        await stores.sessions.complete(begun, Outcome(f"answer {said}-{n}", whole=True), always)
        if (job := await stores.jobs.claim(NOW, 1e9)) is None:
            continue
        batch = await stores.jobs.batch(job, limit=9, context=0)
        facts = [create(f"fact {e.said}", ANNA, id=f"of {e.id}") for e in batch.pending]
        await asyncio.sleep(random.random() / 100)  # the model reads
        try:
            await stores.memories.apply(ANNA, facts, expect=batch.stamp, done=job)
        except Conflict:
            late += 1
            await stores.jobs.retry(job, at=NOW, reason="conflict")
    return late


@pytest.mark.parametrize("portions", [False, True])
async def test_a_forget_wins_every_race_against_two_replicas(stores, second, request, url, portions):
    if portions:
        request.getfixturevalue("in_portions")

    async def forget():
        for _ in range(6):
            await asyncio.sleep(0.05)
            await second.memories.forget(of(ANNA), by="test")

    await asyncio.gather(extract(stores, "a", 25), extract(second, "b", 25), forget())
    before = await stores.sessions.begin(exchange("say SECRET", ANNA, id="last", key="last"))
    job = await stores.jobs.claim(NOW, 1e9)
    batch = await stores.jobs.batch(job, limit=9, context=0) if job else None
    await second.memories.forget(of(ANNA), by="test")
    assert not await stores.sessions.complete(before, Outcome("SECRET", whole=True), always)
    if batch is not None:
        with pytest.raises(Conflict):
            await stores.memories.apply(ANNA, [create("SECRET")], expect=batch.stamp, done=job)
    assert await contents(stores.memories, "fact", ANNA) == set()
    text = rows_in(url)
    assert b"fact say" not in text
    assert b"answer " not in text
    assert b"SECRET" not in text


async def test_two_replicas_claim_each_job_once(stores, second):
    for n in range(8):
        scope = type(ANNA)("acme", f"user{n}")
        begun = await stores.sessions.begin(exchange("hi", scope, id=f"e{n}", key=f"k{n}"))
        await stores.sessions.complete(begun, Outcome("hello", whole=True), always)
    claimed = await asyncio.gather(*(each.jobs.claim(NOW, 1e9) for each in (stores, second) * 6))
    jobs = [job.id for job in claimed if job is not None]
    assert len(jobs) == len(set(jobs)) == 8
