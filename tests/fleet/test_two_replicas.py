"""Nothing that was promised is lost or stored twice when a replica or PostgreSQL is killed under load."""

import asyncio
from contextlib import asynccontextmanager

from tests.fleet.replicas import Client, fact, recovered, replicas, settled, stored, tell_each

NAMES = ("Bado", "Cefi", "Doga", "Feku", "Gilo", "Hamu", "Jono", "Kipe", "Lura", "Mabi", "Neso", "Pilu")
USERS = [f"user-{number}" for number in range(6)]


@asynccontextmanager
async def under_load(made):
    """Let all users talk; the block begins when a quarter was answered. Then what was promised is stored."""
    client = Client(made, kill_after=len(USERS) * len(NAMES) // 4)
    talks = [asyncio.create_task(client.talk(user, [*NAMES], first)) for first, user in enumerate(USERS)]
    await client.halfway.wait()
    yield client
    await asyncio.gather(*talks)
    alive = made[1]
    await recovered(alive)
    # What a dead one had not settled is taken over once it has been silent for long enough.
    for user in USERS:
        await tell_each(alive, user, {fact(name) for name in client.promised[user]})
    await settled(alive)
    for user in USERS:
        found = await stored(alive, user)
        assert len(found) == len(set(found)), "something is stored twice"
        assert set(found) <= {fact(name) for name in NAMES}


async def test_a_replica_killed_under_load_loses_and_doubles_nothing(tmp_path, postgres, scripted):
    async with replicas(tmp_path, scripted[1], postgres.url()) as made:
        async with under_load(made) as client:
            await made[0].kill()
        assert client.failed  # it was under load


async def test_postgres_restarted_under_load_loses_and_doubles_nothing(tmp_path, postgres, scripted):
    quick = {"MEMORY_PROXY__MEMORY__DEADLINE_MS": "1500"}
    async with replicas(tmp_path, scripted[1], postgres.url(), **quick) as made:
        async with under_load(made) as client:
            await asyncio.to_thread(postgres.kill)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(postgres.start)
        assert not client.failed  # no request fares worse
        assert client.forgone, "no request met the outage"
        for user in USERS:
            assert await stored(made[0], user) == await stored(made[1], user)
