"""Two replicas over one PostgreSQL: forgets in any order of events, and jobs."""

import asyncio

from hypothesis import settings

from proxy.storage.postgres import PostgresStores
from tests import postgres_server
from tests.storage.conftest import rows_in
from tests.storage.making import ANNA, NOW
from tests.storage.talking import always, talk
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
    machine.settings = settings(max_examples=examples(2), stateful_step_count=10, deadline=None)
    machine("runTest").runTest()


async def test_two_replicas_claim_each_job_once(stores, second):
    for n in range(8):
        scope = type(ANNA)("acme", f"user{n}")
        await talk(stores.sessions, scope=scope, trigger=always)
    claimed = await asyncio.gather(*(each.jobs.claim(NOW, 1e9) for each in (stores, second) * 6))
    jobs = [job.id for job in claimed if job is not None]
    assert len(jobs) == len(set(jobs)) == 8
