"""Stored responses, their expiry and conversations over Redis, where replicas share them."""

import asyncio
import os
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from redis.asyncio import Redis as Client

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.chains import RedisChains
from proxy.storage.redis.connection import Redis, scored
from proxy.storage.redis.unit import Unit, Units, uid
from tests import redis_server
from tests.storage import test_sqlite_chains as on_sqlite
from tests.storage.contract_chains import (
    StoredResponsesContract,
    converse,
    ids,
    items,
    keep,
    linked,
    names,
    response,
)
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, forgotten, of, quote, store, talk
from tests.storage.on_redis.forgetting_support import Replica
from tests.storage.on_redis.kept_support import Counted, replicas


class TestRedisStoredResponses(StoredResponsesContract):
    """ChainStore and ConversationStore over Redis."""


async def everything(redis: Redis) -> bytes:
    """All that is in the database."""
    found = []
    for key in await redis.call("KEYS", "*"):
        found += [key, await redis.call("DUMP", key)]
        if await redis.call("TYPE", key) == b"hash":  # a dump is compressed
            found += (await redis.hash(key.decode())).values()
    return b"\n".join(found)


# ---------------------------------------------------------------- chains
async def test_a_chain_goes_on_at_another_replica(stores: Replica, second: Replica) -> None:
    for place, each in enumerate(linked("a", "b", "c", "d")):
        await keep((stores, second)[place % 2], each)
    for each in (stores, second):
        assert await ids(each.chains, "d") == ["a", "b", "c", "d"]
    assert await second.chains.delete(ANNA, "b")
    assert await ids(stores.chains, "d") == ["a", "c", "d"]


async def test_a_response_deleted_at_another_replica_is_not_stored_by_its_end(
    stores: Replica, second: Replica
) -> None:
    await keep(stores, response("r1", text="in progress"))
    assert await second.chains.delete(ANNA, "r1")
    assert not await stores.chains.save(response("r1", text="completed"), generation=0)


async def test_a_long_chain_takes_few_ways_to_redis(stores: Replica, counted: Counted) -> None:
    await asyncio.gather(*(keep(stores, each) for each in linked(*(f"r{n}" for n in range(100)))))
    chains = RedisChains(Units(counted))
    counted.ways = 0
    assert len(await ids(chains, "r99", limit=200)) == 100
    assert counted.ways <= 5  # one more than usual: the script is new to it
    counted.ways = 0
    assert await chains.get(ANNA, "r99", NOW)
    assert counted.ways == 2
    counted.ways = 0
    assert await chains.save(response("r100", previous_id="r99"), generation=0)
    assert counted.ways <= 4


async def test_a_response_of_5_mb_is_stored_and_read(stores: Replica, second: Replica) -> None:
    large = replace(response("r1"), response=b"x" * 5_000_000)
    await keep(stores, large)
    assert await second.chains.get(ANNA, "r1", NOW) == large


async def test_what_is_deleted_is_nowhere_in_redis(stores: Replica, redis: Redis) -> None:
    await keep(stores, response("r", text="a secret thing"), response("b", text="something that stays"))
    await converse(stores.conversations, "a secret thing", "another secret thing")
    assert (await everything(redis)).count(b"secret thing") >= 3
    assert await stores.chains.delete(ANNA, "r")
    assert await stores.conversations.remove(ANNA, "c1", "another secret thing")
    assert b"another secret thing" not in await everything(redis)
    assert await stores.conversations.delete(ANNA, "c1")
    left = await everything(redis)
    assert b"secret thing" not in left
    assert b"something that stays" in left
    assert b"anna" not in b"".join(await redis.call("KEYS", "*"))


async def test_a_save_and_a_forget_at_once_leave_nothing_of_before(stores: Replica, second: Replica) -> None:
    for n in range(20):
        generation = (await stores.memories.stamp(ANNA)).generation
        late = asyncio.create_task(stores.chains.save(response(f"r{n}"), generation=generation))
        forgetting = asyncio.create_task(forgotten(second.memories, of(ANNA)))
        saved, gone = await late, await forgetting
        assert gone.responses == int(saved)
        assert await stores.chains.get(ANNA, f"r{n}", NOW) is None


async def test_a_forgotten_memory_is_nowhere_in_what_is_kept(stores: Replica, redis: Redis) -> None:
    secret = "xylophonist"
    told = await talk(stores.sessions, f"I am a {secret}", f"A {secret}!")
    await converse(stores.conversations, id="c1")
    await keep(stores, *linked("a", "b", text=f"a {secret}", conversation_id="c1"))
    await keep(stores, response("on", text=f"the {secret}", session_id="s2", previous_id="b"))
    said = [("i1", f'"{secret}"'.encode())]
    assert await stores.conversations.add(ANNA, "c1", said, generation=0)
    await store(stores.memories, create(f"Is a {secret}", id="m", evidence=quote(told, f"a {secret}")))
    await keep(stores, response("unwritten", text=f"One {secret}", session_id="s4"), recalled=["m"])
    await keep(stores, response("tea", text="I like tea", session_id="s5"))
    assert secret.encode() in await everything(redis)
    gone = await forgotten(stores.memories, of(ANNA), "m")
    assert (gone.memories, gone.exchanges, gone.responses) == (1, 1, 4)
    assert secret.encode() not in await everything(redis)
    assert await ids(stores.chains, "tea") == ["tea"]


# ---------------------------------------------------------------- expiry
async def test_replicas_that_expire_at_once_count_each_response_once(
    stores: Replica, second: Replica
) -> None:
    scopes = [Scope("t", f"user {n}") for n in range(20)]
    await asyncio.gather(*(keep(stores, *linked("a", "b", "c", scope=scope)) for scope in scopes))
    counts = await asyncio.gather(*(each.chains.expire(NOW + 100) for each in (stores, second)))
    assert sum(counts) == 60


async def test_nothing_is_left_of_what_expired(stores: Replica, redis: Redis) -> None:
    await keep(stores, *linked("a", "b", "c"))
    await keep(stores, response("other", BEN, expires_at=None))
    assert await stores.chains.expire(NOW + 100) == 3
    left = await everything(redis)
    for each in (b"msg_a", b"msg_b", b"msg_c"):
        assert each not in left
    assert await redis.call("EXISTS", redis.key("expiring-responses")) == 0

    async def tables(unit: Unit) -> list[dict[str, Any]]:
        return [await unit.table("stored").all(), await unit.table("next").all()]

    assert await stores.units.read(ANNA, tables) == [{}, {}]


async def test_what_is_continued_is_looked_at_again_and_not_at_every_sweep(
    stores: Replica, redis: Redis
) -> None:
    await keep(stores, response("a", expires_at=NOW + 5), response("b", previous_id="a", expires_at=None))
    assert await stores.chains.expire(NOW + 6) == 0
    ((_, at),) = scored(await redis.call("ZRANGE", redis.key("expiring-responses"), 0, -1, "WITHSCORES"))
    assert at > NOW + 60
    await stores.chains.delete(ANNA, "b")
    assert await stores.chains.expire(NOW + 1e6) == 0  # a row without content holds the chain together, too
    await stores.chains.save(response("c", expires_at=NOW + 7), generation=0)


async def test_a_forgotten_end_lets_the_expired_beginning_go_at_the_next_sweep(
    stores: Replica, redis: Redis
) -> None:
    await keep(stores, response("a", expires_at=NOW + 5), response("b", APOLLO, previous_id="a"))
    assert await stores.chains.expire(NOW + 6) == 0
    assert (await forgotten(stores.memories, of(APOLLO))).responses == 1
    assert await stores.chains.expire(NOW + 7) == 1


async def test_what_leads_to_nothing_any_more_is_not_looked_at_for_ever(
    stores: Replica, redis: Redis
) -> None:
    await keep(stores, response("a", expires_at=NOW + 1))
    key = redis.key("expiring-responses")
    for member in (f"{uid(ANNA)} gone", f"{'0' * 32} of nobody"):
        await redis.call("ZADD", key, NOW, member)
    assert await stores.chains.expire(NOW + 2) == 1
    assert await redis.call("ZCARD", key) == 0


async def test_what_is_no_longer_continued_goes_at_the_next_sweep(stores: Replica) -> None:
    await keep(stores, response("a", expires_at=NOW + 5), response("b", previous_id="a"))
    assert await stores.chains.expire(NOW + 6) == 0
    await keep(stores, response("b", previous_id="elsewhere"))
    assert await stores.chains.expire(NOW + 7) == 1


async def agree(stores: Replica, redis: Redis) -> None:
    """Hold everything that follows from the rows of responses to the rows."""
    looked_at = scored(await redis.call("ZRANGE", redis.key("expiring-responses"), 0, -1, "WITHSCORES"))
    due: dict[str, set[str]] = {}
    for member, _ in looked_at:
        user, _, id_ = member.partition(" ")
        due.setdefault(user, set()).add(id_)
    for scope in (ANNA, BEN):
        unit = await Unit.begin(redis, scope)
        rows = await unit.table("stored").all()
        leading: dict[str, set[str]] = {}
        for id_, row in rows.items():
            if row["previous_id"] is not None:
                leading.setdefault(row["previous_id"], set()).add(id_)
        following = await unit.table("next").all()
        assert {name: set(ids) for name, ids in following.items()} == leading
        assert all(len(ids) == len(set(ids)) for ids in following.values())
        kept = {f"{id_} {body}" for id_, row in rows.items() if not row["deleted"] for body in "ri"}
        assert (await unit.blobs("bodies").all()).keys() == kept
        assert due.get(unit.uid, set()) == {id_ for id_, row in rows.items() if row["expires_at"] is not None}


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_replicas_do_at_once_what_leads_to_responses_agrees_with_them(
    stores: Replica, second: Replica, redis: Redis, seed: int
) -> None:
    chance = random.Random(seed)

    async def step(now: float) -> object:
        replica, scope = chance.choice((stores, second)), chance.choice((ANNA, APOLLO, BEN))
        id_, before = (chance.choice("abcdefgh") for _ in range(2))
        match chance.choice(("save",) * 6 + ("delete", "expire", "forget")):
            case "save":
                life = chance.choice((5, 50, None))
                new = response(
                    id_, scope, previous_id=before if before < id_ else None,
                    expires_at=life and now + life,
                )  # fmt: skip
                generation = (await replica.memories.stamp(scope)).generation
                return await replica.chains.save(new, generation=generation)
            case "delete":
                return await replica.chains.delete(scope, id_)
            case "expire":
                return await replica.chains.expire(now)
        return await forgotten(replica.memories, of(scope))

    for now in range(15):
        await asyncio.gather(*(step(NOW + 3 * now) for _ in range(12)))
        await agree(stores, redis)


# ---------------------------------------------------------------- conversations
async def test_items_added_at_both_replicas_at_once_are_all_there_once(
    stores: Replica, second: Replica
) -> None:
    await converse(stores.conversations)
    added = [
        each.conversations.add(ANNA, "c1", items(f"i{n}", "shared"), generation=0)
        for n, each in enumerate((stores, second) * 10)
    ]
    assert all(await asyncio.gather(*added))
    found = (await names(stores.conversations)).split()
    assert sorted(found) == sorted(["shared", *(f"i{n}" for n in range(20))])
    assert found == (await names(second.conversations)).split()


async def test_an_item_that_is_there_stays_as_it_is(stores: Replica) -> None:
    await converse(stores.conversations, "a")
    assert await stores.conversations.add(ANNA, "c1", [("a", b'"changed"')], generation=0)
    assert await names(stores.conversations) == "a"


# ---------------------------------------------------------------- without Redis
async def test_what_was_saved_before_redis_died_is_there_when_it_is_back(
    stores: Replica, server: redis_server.Server
) -> None:
    saved: list[str] = []
    some = asyncio.Event()

    async def save(n: int) -> None:
        try:
            if await stores.chains.save(response(f"r{n}"), generation=0):
                saved.append(f"r{n}")
            if len(saved) >= 30:
                some.set()
        except StoreUnavailable:
            pass

    saving = asyncio.gather(*(save(n) for n in range(300)))
    await some.wait()
    server.kill()
    server.start()
    await saving
    assert len(saved) >= 30
    for id_ in saved:
        assert await stores.chains.get(ANNA, id_, NOW), id_
    assert await stores.chains.save(response("after"), generation=0)


# ---------------------------------------------------------------- a model of it
SERVER: list[redis_server.Server] = []
EXAMPLES = int(os.environ.get("FORGET_EXAMPLES", "15"))


@pytest.fixture(autouse=True, scope="module")
def _server(server: redis_server.Server) -> None:
    SERVER[:] = [server]


class Chains(on_sqlite.Chains):
    """The machine of test_sqlite_chains; each step at one of two replicas."""

    turn = 0

    def __init__(self) -> None:
        super().__init__()
        self.run(self.stores.close())
        self.redis = Redis(Client.from_url(SERVER[0].url), prefix="t:")
        self.run(self.redis.call("FLUSHDB"))
        self.open = replicas(self.redis, 2)
        self.replicas = self.run(self.open.__aenter__())

    @property
    def stores(self) -> Any:
        self.turn += 1
        return self.replicas[self.turn % 2] if hasattr(self, "replicas") else self._sqlite

    @stores.setter
    def stores(self, opened: Any) -> None:
        self._sqlite = opened

    def teardown(self) -> None:
        self.run(self.open.__aexit__(None, None, None))
        self.run(self.redis.close())
        self.loop.close()
        self.dir.cleanup()


Chains.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=20, deadline=None)
TestChains = Chains.TestCase
