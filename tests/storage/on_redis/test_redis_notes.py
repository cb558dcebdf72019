"""The contract of notes over Redis, and what replicas share of them."""

import asyncio
from typing import Any

import pytest

from proxy.domain.core import Evidence, Scope
from proxy.domain.errors import StoreUnavailable
from proxy.domain.notes import OTHER, Anchor
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.notes import RedisNotes
from proxy.storage.redis.unit import Unit, Units
from tests import redis_server
from tests.storage.contract_notes import (
    STATE,
    AnchorContract,
    ClosingContract,
    LineContract,
    StateContract,
    keep,
    told,
)
from tests.storage.making import ANNA, BEN, NOW, create, exchange, of, store, talk
from tests.storage.on_redis.forgetting_support import Replica
from tests.storage.on_redis.kept_support import Counted

CHINESE = Anchor("language", "Answer in Chinese.")


class TestRedisAnchors(AnchorContract):
    """Anchors over Redis."""


class TestRedisLines(LineContract):
    """Lines over Redis."""


class TestRedisStates(StateContract):
    """States over Redis."""


class TestRedisClosing(ClosingContract):
    """Ends of sessions over Redis."""


# ---------------------------------------------------------------- notes
async def test_what_one_replica_notes_another_tells(stores: Replica, second: Replica) -> None:
    await talk(stores.sessions, anchors=(CHINESE,), stateful=True)
    await talk(second.sessions, "and then", anchors=(Anchor(OTHER, "Ask first."),))
    assert await told(stores.notes) == await told(second.notes) == ["Answer in Chinese.", "Ask first."]
    assert await keep(second.notes)
    standing = await stores.notes.standing(ANNA, "s1")
    assert standing is not None
    assert standing.state == STATE


async def test_of_two_replicas_that_read_the_same_one_keeps_its_state(
    stores: Replica, second: Replica
) -> None:
    await talk(stores.sessions, stateful=True)
    unread = [await each.notes.unread(ANNA, "s1", limit=9) for each in (stores, second)]
    kept = await asyncio.gather(
        *(
            each.notes.keep_state(ANNA, "s1", STATE, one.exchanges[-1], [], expect=one.stamp)
            for each, one in zip((stores, second), unread, strict=True)
            if one is not None
        )
    )
    assert sorted(kept) == [False, True]


async def test_notes_of_a_long_session_take_few_ways_to_redis(stores: Replica, counted: Counted) -> None:
    for n in range(60):
        await talk(stores.sessions, f"say {n}", f"answer {n}", anchors=(CHINESE,), stateful=True)
    assert await keep(stores.notes)
    notes = RedisNotes(Units(counted))
    shown = await notes.notes(ANNA, "s1", after="answer 59", lines=3)
    assert (len(shown.anchors), len(shown.lines), shown.state) == (1, 3, STATE)
    assert counted.ways <= 5
    counted.ways = 0
    assert await notes.standing(ANNA, "s1")
    assert counted.ways == 2


async def test_nothing_is_left_of_a_sessions_notes_once_it_is_forgotten(
    stores: Replica, redis: Redis
) -> None:
    begun = await talk(stores.sessions, anchors=(CHINESE,), stateful=True)
    await talk(stores.sessions, "two")
    assert await keep(stores.notes)
    await store(stores.memories, create("fact", id="m", evidence=(Evidence("s1", begun.id),)))
    await stores.memories.forget(of(ANNA), "m", by="test")

    async def tables(unit: Unit) -> list[Any]:
        return [await unit.table(name).all() for name in ("anchored", "states")]

    assert await stores.units.read(ANNA, tables) == [{}, {}]
    assert await redis.call("KEYS", "*anchors:*") == []
    await stores.memories.forget(of(ANNA), by="test")
    assert await redis.call("EXISTS", redis.key("unsummarised")) == 0


# ---------------------------------------------------------------- ends
async def closed(replica: Replica, *, idle: float = NOW - 1, left: float = NOW - 1) -> int:
    return await replica.notes.close(idle_since=idle, left_since=left, now=NOW)


async def test_replicas_that_close_at_once_close_each_session_once(stores: Replica, second: Replica) -> None:
    for n in range(30):
        for _ in range(2):
            await talk(stores.sessions, scope=Scope("t", f"user {n % 7}"), session=f"s{n}")
    counts = await asyncio.gather(*(closed(each, idle=NOW) for each in (stores, second) * 2))
    assert sum(counts) == 30
    assert (await stores.jobs.counts()).queued == 30


async def test_looking_for_ended_sessions_costs_next_to_nothing_while_there_are_none(
    stores: Replica, counted: Counted
) -> None:
    notes = RedisNotes(Units(counted))
    assert await notes.close(idle_since=NOW, left_since=NOW, now=NOW) == 0
    assert counted.ways == 1
    for n in range(40):
        await talk(stores.sessions, scope=Scope("t", f"user {n}"))
    counted.ways = 0
    assert await notes.close(idle_since=NOW - 1, left_since=NOW, now=NOW) == 0
    assert counted.ways == 3


async def test_a_new_session_that_is_taken_back_ends_no_other(stores: Replica) -> None:
    for _ in range(2):
        await talk(stores.sessions)
    await stores.sessions.abort(await stores.sessions.begin(exchange(session="s2")))
    assert await closed(stores, left=NOW) == 0
    await stores.sessions.begin(exchange(session="s3"))
    assert await closed(stores, left=NOW) == 1


async def test_a_session_whose_closing_died_is_left_to_whoever_revives_it(stores: Replica) -> None:
    for scope in (ANNA, BEN):
        for _ in range(2):
            await talk(stores.sessions, scope=scope)
    assert await closed(stores, idle=NOW) == 2
    job = await stores.jobs.claim(NOW, 60)
    assert job is not None
    await stores.jobs.retry(job, at=NOW, reason="refused", dead=True)
    assert await closed(stores, idle=NOW) == 0
    await talk(stores.sessions, scope=job.scope)
    assert await closed(stores, idle=NOW) == 0
    assert await stores.jobs.revive("acme", None) == 1
    assert (await stores.jobs.counts()).queued == 2


async def test_a_replica_that_dies_with_a_closing_job_leaves_it_to_another(
    stores: Replica, second: Replica
) -> None:
    for _ in range(2):
        await talk(stores.sessions)
    assert await closed(stores, idle=NOW) == 1
    job = await stores.jobs.claim(NOW, 60)
    assert job is not None
    await stores.instance.close()
    again = await second.jobs.claim(NOW, 60)
    assert again is not None
    assert again.closing
    assert await stores.notes.episode(job, limit=9) is None  # its lease is lost
    await second.jobs.batch(again, limit=9, context=0)
    episode = await second.notes.episode(again, limit=9)
    assert episode is not None
    assert len(episode.exchanges) == 2


async def test_notes_say_when_redis_is_away_and_are_all_there_when_it_is_back(
    stores: Replica, server: redis_server.Server
) -> None:
    await talk(stores.sessions, anchors=(CHINESE,), stateful=True)
    assert await keep(stores.notes)
    before = await stores.notes.notes(ANNA, "s1", lines=2)
    server.kill()
    try:
        with pytest.raises(StoreUnavailable):
            await stores.notes.notes(ANNA, "s1", lines=2)
    finally:
        server.start()
    assert await stores.notes.notes(ANNA, "s1", lines=2) == before
    assert await stores.notes.standing(ANNA, "s1") is not None
