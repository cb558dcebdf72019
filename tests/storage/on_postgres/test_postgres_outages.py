"""PostgreSQL and its clients in trouble: killed, restarted, deadlocked."""

import asyncio
import threading

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.postgres import PostgresStores
from proxy.storage.sql import rows
from proxy.storage.sql.database import UNAVAILABLE
from tests import postgres_server
from tests.storage.making import ANNA, BEN, contents, create


@pytest.fixture
def own_server():
    """A server that only this test uses."""
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.MISSING)
    with postgres_server.running() as running:
        yield running


async def test_a_server_that_dies_and_comes_back_is_found_again_without_a_restart(own_server):
    stores = PostgresStores(own_server.new_database(), connections=4)
    await stores.open()
    acknowledged, refused = set(), 0

    async def write():
        nonlocal refused
        for n in range(150):
            try:
                stamp = await stores.memories.stamp(ANNA)
                await stores.memories.apply(ANNA, [create(f"fact {n}", id=f"m{n}")], expect=stamp)
                acknowledged.add(f"fact {n}")
            except StoreUnavailable:
                refused += 1
                assert stores.trouble == UNAVAILABLE
                await asyncio.sleep(0.02)

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.3)
    await asyncio.to_thread(own_server.kill)
    await asyncio.sleep(0.5)
    assert not stores.is_readable
    await asyncio.to_thread(own_server.start)
    await writing
    async with asyncio.timeout(20):
        while stores.trouble:
            await stores.upkeep()
            await asyncio.sleep(0.1)
    assert refused
    assert acknowledged <= await contents(stores.memories, "fact", ANNA, limit=999)
    await stores.close()


async def test_a_deadlock_is_resolved_by_doing_one_of_the_two_again(stores):
    for scope in (ANNA, BEN):
        await stores.database.write(lambda tx, scope=scope: rows.ensure_owner(tx, scope))
    both, runs = threading.Barrier(2, timeout=10), []

    def crosswise(first, second):
        def work(tx):
            runs.append(first)
            rows.lock_owner(tx, first)
            if len(runs) <= 2:
                both.wait()
            rows.lock_owner(tx, second)
            return first

        return stores.database.write(work)

    assert await asyncio.gather(crosswise(ANNA, BEN), crosswise(BEN, ANNA)) == [ANNA, BEN]
    assert len(runs) > 2
