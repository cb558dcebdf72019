"""Forgets over Redis beside others: what they see and write meanwhile, and what a crash leaves."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from proxy.domain.core import Edit, Outcome
from proxy.domain.errors import StoreUnavailable
from proxy.domain.notes import NOTHING, OTHER, Anchor
from proxy.storage.redis import expiry
from proxy.storage.redis.connection import scored
from proxy.storage.redis.points import RedisIndex
from proxy.storage.redis.purging import purge_if_due
from proxy.storage.vector_index import IndexUnavailable
from tests.storage.contract_forget_beside import ForgetBesideContract
from tests.storage.contract_forgetting import DAY
from tests.storage.forgetting_support import WORD, everything, on_disk
from tests.storage.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    contents,
    create,
    exchange,
    find,
    memory,
    never,
    of,
    quote,
    store,
    supersede,
    talk,
    vector,
)
from tests.storage.on_redis import forgetting_support as support
from tests.storage.on_redis.forgetting_support import Gate, lapse, opened, written
from tests.storage.on_redis.shared_support import by_rows, shared


class TestForgetBeside(ForgetBesideContract):
    """Beside other replicas."""

    KEEPS_GENERATION, QUEUES_ANEW = False, False

    @pytest.fixture
    def gate(self, stores):
        return support.Gate(stores)

    @pytest.fixture
    def break_off(self, stores):
        return partial(support.break_off, stores)

    @pytest.fixture
    def standing(self, redis):
        return partial(support.standing, redis)

    @pytest.fixture
    def lapse(self, redis):
        """Who gave a forget up cannot be told from who is slow: it said until when it is at it."""
        return partial(support.lapse, redis)

    @pytest.fixture
    def successor(self, stores, second, redis):
        """Another replica, once nobody says any more that they are at it."""

        async def take_over():
            broken_off = await support.standing(redis)
            await stores.close()
            await support.lapse(redis)
            assert await second.memories.resume_forgets() == broken_off
            return second

        return take_over

    @pytest.fixture
    def agrees(self, redis):
        async def what_is_shared_follows_from_the_rows():
            assert await shared(redis) == await by_rows(redis)

        return what_is_shared_follows_from_the_rows


# ---------------------------------------------------------------- beside others
@pytest.mark.usefixtures("in_portions")
async def test_nothing_is_told_of_a_session_while_something_is_being_forgotten(stores, second):
    await talk(stores.sessions, anchors=(Anchor(OTHER, "Be brief."),), stateful=True)
    await store(stores.memories, create("fact", type="episodic"))
    last = (await stores.notes.unread(ANNA, "s1", limit=9)).exchanges[-1]
    job = await stores.sessions.end(ANNA, "s1", NOW) and await stores.jobs.claim(NOW, 60)
    stamp = (await stores.jobs.batch(job, limit=9, context=0)).stamp
    await stores.memories.apply(ANNA, [], expect=stamp, done=job)  # read, so that it stays
    kept = await stores.notes.keep_state(ANNA, "s1", {"topic": "tea"}, last, ["m"], expect=stamp)
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="episodic"), by="test"))
    await gate.reached.wait()
    assert kept
    assert await second.notes.notes(ANNA, "s1", lines=3) == NOTHING
    assert await second.notes.standing(ANNA, "s1") is None
    assert await second.notes.unread(ANNA, "s1", limit=9) is None
    gate.go_on.set()
    assert (await under_way).exchanges == 0
    assert (await second.notes.notes(ANNA, "s1")).anchors != ()
    assert await second.notes.standing(ANNA, "s1") is not None


async def test_nothing_of_a_forgotten_user_is_left_but_receipts(stores, redis):
    await store(stores.memories, create("ben's", BEN, id="bens", expires_at=NOW), scope=BEN)
    await everything(stores)
    await store(stores.memories, create("short", expires_at=NOW + 5))
    await stores.memories.forget(of(ANNA), by="test")
    await stores.memories.forget(of(BEN), by="test")
    left = {key.decode().removeprefix("t:") for key in await redis.call("KEYS", "*")}
    uids = set(await redis.hash(redis.key("users")))
    of_users = {f"u:{uid}:{table}" for uid in uids for table in ("owner", "tables", "receipts", "obsolete")}
    shared_keys = {"users", "names", "receipts:acme", "unindexed", "embedded", "instances", "job-numbers"}
    shared_keys.add("purge-due")
    points = {f"points:{uid}" for uid in uids}
    assert {key for key in left if not key.startswith("commit:")} <= of_users | shared_keys | points


async def test_nothing_leads_from_a_forgotten_memory_to_anything(stores, redis):
    told = await talk(stores.sessions)
    await store(stores.memories, create("old", id="m1"), create("vegan", id="m2", evidence=quote(told)))
    await store(stores.memories, supersede("m1", "new", id="m3", expires_at=NOW))
    shown = await stores.sessions.begin(exchange("dinner?", session="s2"))
    outcome = Outcome("Vegan!", whole=True, recalled=("m2", "m3"))
    assert await stores.sessions.complete(shown, outcome, never)
    for id_ in ("m2", "m3"):
        await stores.memories.forget(of(ANNA), id_, by="test")
    keys = [key for key in await redis.call("KEYS", "*") if b"shown:" in key or key.endswith(b":ids:acme")]
    assert keys == []
    assert await redis.call("ZCARD", redis.key("expiring")) == 0


# ---------------------------------------------------------------- expiry
async def test_what_was_given_more_time_does_not_expire_and_others_do_in_portions(
    stores, second, redis, monkeypatch
):
    monkeypatch.setattr(expiry, "_AT_ONCE", 2)
    facts = [create(f"fact {n}", id=f"f{n}", expires_at=NOW + n) for n in range(7)]
    await store(stores.memories, *facts)
    later = [Edit(memory(f"fact {n}", id=f"f{n}", expires_at=end), None) for n, end in ((1, None), (2, 1e9))]
    await store(stores.memories, *later)
    uid = (await redis.call("HKEYS", redis.key("users")))[0].decode()
    for name in ("f1", "f2", "gone"):  # as a store restored from elsewhere might have them
        await redis.call("ZADD", redis.key("expiring"), NOW, f"{uid} {name}")
    await redis.call("ZADD", redis.key("expiring"), NOW, "nobody f3")
    both = await asyncio.gather(stores.memories.expire(NOW + 2 * DAY), second.memories.expire(NOW + 2 * DAY))
    assert sum(both) == 5
    assert await contents(stores.memories, "fact") == {"fact 1", "fact 2"}
    issued = await stores.receipts.list("acme", "anna", limit=9)
    assert sum(each.counts.memories for each in issued) == 5
    (left,) = scored(await redis.call("ZRANGE", redis.key("expiring"), 0, -1, "WITHSCORES"))
    assert left == (f"{uid} f2", 1e9)


# ---------------------------------------------------------------- crashes
@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA), of(ANNA, type="semantic")], ids=["user", "type"])
async def test_two_replicas_at_one_forget_count_everything_once(stores, second, redis, where):
    await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    await lapse(redis)
    assert await second.memories.resume_forgets() == 1
    gate.go_on.set()
    gone = await under_way
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert gone == receipt.counts
    assert gone.memories == 9
    assert WORD.encode() not in await written(redis)


# ---------------------------------------------------------------- without the index, without Redis
class Away(RedisIndex):
    """An index that cannot delete now."""

    is_away = True

    async def delete(self, uid, ids):
        if self.is_away:
            raise IndexUnavailable("away")
        await super().delete(uid, ids)

    async def delete_all(self, uid, written):
        if self.is_away:
            raise IndexUnavailable("away")
        await super().delete_all(uid, written)


@pytest.mark.parametrize("where", [of(ANNA), of(APOLLO)], ids=["user", "project"])
async def test_what_is_forgotten_while_the_index_is_away_is_hidden_and_leaves_it_later(
    server, redis, second, where
):
    index = Away(redis)
    alone = await opened(server.url, index)
    await store(alone.memories, create(f"a {WORD}", APOLLO, vec=vector(1)))
    assert (await alone.memories.forget(where, by="test")).memories == 1
    assert WORD.encode() in await written(redis)  # the point's words
    for each in (alone, second):
        assert await find(each.memories, WORD, vec=vector(1)) == []
    index.is_away = False
    later = alone.memories.indexing
    later._clock = lambda: 1e11
    assert await later.catch_up() == 1
    assert WORD.encode() not in await written(redis)
    await alone.close()


async def test_the_append_only_file_is_written_anew_after_a_forget(own_server, tmp_path):
    stores = await opened(own_server.url)
    await everything(stores)
    assert not await purge_if_due(stores.redis)  # nothing was forgotten
    await stores.memories.forget(of(ANNA), by="test")
    assert WORD.encode() in on_disk(tmp_path)
    await stores.memories.resume_forgets()
    async with asyncio.timeout(10):
        while WORD.encode() in on_disk(tmp_path):  # noqa: ASYNC110  # Redis says nothing when it is done
            await asyncio.sleep(0.02)
    await stores.memories.forget(of(ANNA), by="test")
    assert not await purge_if_due(stores.redis)  # not as often as anybody likes
    await stores.close()


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA), of(ANNA, type="semantic")], ids=["user", "type"])
async def test_a_forget_that_redis_broke_off_by_dying_is_finished_when_it_is_back(own_server, where):
    stores = await opened(own_server.url)
    await everything(stores)
    await store(stores.memories, *(create(f"{WORD} {n}", type="preference") for n in range(9)))
    counted = await stores.memories.forget(where, by="test", dry_run=True)
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    own_server.kill()
    gate.go_on.set()
    with pytest.raises(StoreUnavailable):
        await under_way
    own_server.start()
    again = await opened(own_server.url)
    assert await find(again.memories, WORD) == []
    await lapse(again.redis)
    assert await again.memories.resume_forgets() == 1
    (receipt,) = await again.receipts.list("acme", "anna", limit=9)
    assert replace(receipt.counts, receipt=None) == counted
    await again.close()
    await stores.close()
