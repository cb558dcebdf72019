"""Forgets over Redis beside others: what they see and write meanwhile, and what a crash leaves."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain import Edit, Forgotten, Outcome, Scope
from proxy.errors import Conflict, StoreUnavailable
from proxy.notes import NOTHING, OTHER, Anchor
from proxy.oversight import Applied
from proxy.stores.redis import expiry, forgetting, orders
from proxy.stores.redis.connection import scored
from proxy.stores.redis.indexing import IndexUnavailable
from proxy.stores.redis.points import RedisIndex
from proxy.stores.redis.purging import purge_if_due
from tests import redis_server
from tests.stores.contract_chains import keep, response
from tests.stores.contract_forgetting import DAY
from tests.stores.forgetting_support import SCOPES, WORD, ZEUS, everything, on_disk
from tests.stores.making import (
    ANNA,
    APOLLO,
    BEN,
    NOW,
    always,
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
from tests.stores.on_redis.forgetting_support import Gate, break_off, opened, standing, written
from tests.stores.on_redis.shared_support import by_rows, shared

SCOPES_IN_PORTIONS = {
    name: SCOPES[name] for name in ("project", "type", "type of a project")
}  # the others are one commit


@pytest.fixture
async def stores(server, redis):
    made = await opened(server.url)
    yield made
    await made.close()


@pytest.fixture
async def second(server, redis):
    made = await opened(server.url)
    yield made
    await made.close()


@pytest.fixture
def sessions(stores):
    return stores.sessions


@pytest.fixture
def jobs(stores):
    return stores.jobs


@pytest.fixture
def in_portions(monkeypatch):
    """Whoever has anything is forgotten in portions, of two memories."""
    monkeypatch.setattr(forgetting, "AT_ONCE", -1)
    monkeypatch.setattr(forgetting, "PORTION", 2)


@pytest.fixture
def abandoned_at_once(monkeypatch):
    """Nobody waits until the process that is at a forget must be dead."""
    monkeypatch.setattr(orders, "LEASE_S", -1.0)


# ---------------------------------------------------------------- beside others
@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(APOLLO), of(ANNA, type="episodic")], ids=["project", "type"])
async def test_what_is_being_forgotten_is_hidden_from_the_first_moment(stores, second, where):
    scope = Scope("acme", "anna", where.project)
    facts = [create(f"fact {n}", scope, id=f"f{n}", type="episodic", vec=vector(1)) for n in range(9)]
    await store(stores.memories, *facts, create("older", id="older", type="semantic"))
    # Reached only through what superseded it.
    await store(stores.memories, supersede("older", "newer", scope, id="newer", type="episodic"))
    assert len(await find(second.memories, "fact", vec=vector(1))) == 9
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    for each in (stores.memories, second.memories):
        assert await find(each, "fact newer older", vec=vector(1)) == []
        page = await each.list(of(ANNA, include_inactive=True), limit=99)
        assert (page.items, page.total) == ((), 0)
        assert (await each.list(of(ANNA), limit=99)).total == 0
        for id_ in ("f8", "older", "newer"):
            assert await each.get(of(ANNA), id_) is None
            assert await each.history(of(ANNA), [id_]) == {}
    assert await stores.receipts.list("acme", "anna", limit=9) == []
    gate.go_on.set()
    assert (await under_way).memories == 11


@pytest.mark.usefixtures("in_portions")
async def test_who_begins_during_a_forget_is_stored_and_survives(stores, sessions):
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}") for n in range(9)))
    before = await stores.memories.stamp(ANNA)
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="semantic"), by="test"))
    await gate.reached.wait()
    with pytest.raises(Conflict):
        await stores.memories.apply(ANNA, [create("late")], expect=before)
    # The same words as one that is not erased yet.
    await store(stores.memories, create("fact 8", id="again"), create("new"))
    assert await contents(stores.memories, "fact new late") == {"fact 8", "new"}
    begun = await sessions.begin(exchange("new words"))
    await keep(stores, response("new"))
    gate.go_on.set()
    assert (await under_way).memories == 9
    assert await contents(stores.memories, "fact new late") == {"fact 8", "new"}
    assert await sessions.complete(begun, Outcome("hi", whole=True), never)
    assert await stores.chains.get(ANNA, "new", NOW) is not None


@pytest.mark.usefixtures("in_portions")
async def test_an_answer_under_way_when_a_forget_begins_is_not_kept(stores, sessions):
    await store(stores.memories, *(create(f"fact {n}", id=f"f{n}", type="episodic") for n in range(9)))
    elsewhere = await sessions.begin(exchange("hm?", session="s2"))
    begun = await sessions.begin(exchange("what?", scope=APOLLO))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(APOLLO), by="test"))
    await gate.reached.wait()
    assert not await sessions.complete(begun, Outcome(f"a {WORD}", whole=True), always)
    assert await sessions.complete(elsewhere, Outcome("hello", whole=True), always)
    gate.go_on.set()
    await under_way


@pytest.mark.usefixtures("in_portions")
async def test_an_answer_that_repeats_what_is_being_forgotten_is_not_read(stores, sessions, jobs, redis):
    await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, id=f"f{n}") for n in range(9)))
    shown = await sessions.begin(exchange("who am I?", session="s2"))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(APOLLO), by="test"))
    await gate.reached.wait()
    assert await sessions.complete(shown, Outcome(f"a {WORD}", whole=True, recalled=("f8",)), always)
    assert [e.answer for e in await sessions.recent(ANNA, "s2", 9)] == [""]
    assert await jobs.claim(NOW, 60) is None
    gate.go_on.set()
    await under_way
    assert WORD.encode() not in await written(redis)
    batch = await jobs.batch(await jobs.claim(NOW, 60), limit=9, context=0)
    assert [(e.said, e.answer) for e in batch.pending] == [("who am I?", "")]
    assert await shared(redis) == await by_rows(redis)


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(APOLLO), of(ANNA, type="episodic")], ids=["project", "type"])
async def test_who_read_what_is_being_forgotten_does_not_save_its_continuation(stores, redis, where):
    told = await talk(stores.sessions, f"I am a {WORD}", scope=APOLLO)
    await keep(stores, response("r1", APOLLO, text=WORD))
    facts = [create(f"fact {n}", APOLLO, type="episodic", evidence=quote(told)) for n in range(9)]
    await store(stores.memories, *facts)
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    generation = (await stores.memories.stamp(ANNA)).generation
    later = response("r2", APOLLO, text=f"still a {WORD}", previous_id="r1")
    gate.go_on.set()
    await under_way
    assert not await stores.chains.save(later, generation=generation)
    await keep(stores, response("fresh", APOLLO), response("next", APOLLO, previous_id="fresh"))
    assert WORD.encode() not in await written(redis)


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA, type="semantic"), of(APOLLO)], ids=["type", "project"])
async def test_what_is_being_forgotten_keeps_out_neither_its_id_nor_its_words(stores, where):
    scope = Scope("acme", "anna", where.project)
    told = await talk(stores.sessions, f"I am a {WORD}", scope=scope)
    facts = [create(f"{WORD} {n}", scope, id=f"f{n}", evidence=quote(told)) for n in range(9)]
    await store(stores.memories, create("first", scope, id="old"), *facts)
    await store(stores.memories, supersede("old", "second", scope, id="new"))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    again = [
        create("first", scope, id="old", superseded_by="new"),
        create("second", scope, id="new"),
        create(f"{WORD} 7", scope, id="f7"),
        create(f"{WORD} 8", scope, id="elsewhere"),
    ]
    for change in again:  # one by one: each may meet what the next one makes way for
        assert await store(stores.memories, change) == Applied()
    await store(stores.memories, create("new", scope, id="e"))
    await store(stores.memories, Edit(memory(f"{WORD} 6", scope, id="e"), None))
    gate.go_on.set()
    gone = await under_way
    page = await stores.memories.list(of(ANNA, include_inactive=True), limit=99)
    assert {m.id for m in page.items} == {"old", "new", "f7", "elsewhere", "e"}
    assert gone.memories == 11
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert receipt.counts == gone


@pytest.mark.usefixtures("in_portions")
@pytest.mark.parametrize("where", [of(ANNA, type="semantic"), of(APOLLO)], ids=["type", "project"])
async def test_no_memory_becomes_one_that_is_being_forgotten(stores, where):
    facts = [create(f"fact {n}", APOLLO, id=f"f{n}") for n in range(9)]
    await store(stores.memories, *facts, create("plan", ZEUS, id="e", type="episodic"))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(where, by="test"))
    await gate.reached.wait()
    with pytest.raises(Conflict):
        await store(stores.memories, Edit(memory("plan", APOLLO, id="e", type="semantic"), None))
    await store(stores.memories, Edit(memory("plan b", ZEUS, id="e", type="episodic"), None))
    gate.go_on.set()
    assert (await under_way).memories == 9
    await store(stores.memories, Edit(memory("plan c", APOLLO, id="e", type="semantic"), None))
    assert (await stores.memories.get(of(ANNA), "e")).content == "plan c"


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


async def test_another_replica_never_serves_from_memory_what_was_forgotten(stores, second):
    facts = [create(f"fact {n}", id=f"f{n}", type=("semantic", "episodic")[n % 2]) for n in range(4)]
    await store(stores.memories, *facts)
    assert len(await find(second.memories, "fact", limit=99)) == 4
    await stores.memories.forget(of(ANNA, type="episodic"), by="test")
    assert await contents(second.memories, "fact") == {"fact 0", "fact 2"}
    await stores.memories.forget(of(ANNA), "f0", by="test")
    assert await contents(second.memories, "fact") == {"fact 2"}
    await stores.memories.forget(of(ANNA), by="test")
    assert await contents(second.memories, "fact") == set()
    await store(stores.memories, create("fact 9", id="f2"))
    assert await contents(second.memories, "fact") == {"fact 9"}


@pytest.mark.parametrize("mode", ["at once", "in portions"])
async def test_forgets_at_once_take_everything_once(stores, second, redis, mode, request):
    if mode == "in portions":
        request.getfixturevalue("in_portions")
    facts = (create(f"{WORD} {n}", type=("semantic", "episodic")[n % 2]) for n in range(20))
    await store(stores.memories, *facts)
    gone = await asyncio.gather(
        stores.memories.forget(of(ANNA, type="semantic"), by="test"),
        second.memories.forget(of(ANNA), by="test"),
        stores.memories.forget(of(ANNA), by="test"),
    )
    assert sum(each.memories for each in gone) == 20
    assert len(await stores.receipts.list("acme", "anna", limit=9)) == 3
    assert WORD.encode() not in await written(redis)
    assert await standing(stores) == 0


async def test_nothing_of_a_forgotten_user_is_left_but_receipts(stores, redis):
    await store(stores.memories, create("ben's", BEN, id="bens", expires_at=NOW), scope=BEN)
    await everything(stores)
    await store(stores.memories, create("short", expires_at=NOW + 5))
    await stores.memories.forget(of(ANNA), by="test")
    await stores.memories.forget(of(BEN), by="test")
    left = {key.decode().removeprefix("t:") for key in await redis.call("KEYS", "*")}
    uids = set(await redis.hash(redis.key("users")))
    of_users = {f"u:{uid}:{table}" for uid in uids for table in ("owner", "tables", "receipts", "obsolete")}
    shared_keys = {"users", "receipts:acme", "unindexed", "embedded", "instances", "job-numbers", "purge-due"}
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
@pytest.mark.usefixtures("in_portions", "abandoned_at_once")
@pytest.mark.parametrize("where", SCOPES_IN_PORTIONS.values(), ids=SCOPES_IN_PORTIONS)
@pytest.mark.parametrize("portions", [0, 1, 2, 4])
async def test_another_replica_finishes_what_a_crash_broke_off(stores, second, redis, where, portions):
    await everything(stores)
    await store(stores.memories, *(create(f"{WORD} {n}", APOLLO, type="preference") for n in range(9)))
    counted = await stores.memories.forget(where, by="test", dry_run=True)
    break_off(stores, portions)
    with pytest.raises(RuntimeError):
        await stores.memories.forget(where, by="test")
    assert await standing(stores) == 1
    await stores.close()
    assert await second.memories.resume_forgets() == 1
    assert await second.memories.resume_forgets() == 0
    assert await standing(second) == 0
    (receipt,) = await second.receipts.list("acme", "anna", limit=9)
    assert replace(receipt.counts, receipt=None) == counted
    assert await second.memories.forget(where, by="test", dry_run=True) == Forgotten()
    await second.memories.forget(of(ANNA), by="test")
    assert WORD.encode() not in await written(redis)


@pytest.mark.usefixtures("in_portions")
async def test_nobody_goes_on_with_a_forget_that_somebody_is_at(stores, second):
    await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="semantic"), by="test"))
    await gate.reached.wait()
    assert await second.memories.resume_forgets() == 0
    gate.go_on.set()
    assert (await under_way).memories == 9


@pytest.mark.usefixtures("in_portions", "abandoned_at_once")
async def test_two_replicas_at_one_forget_count_everything_once(stores, second, redis):
    await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="semantic"), by="test"))
    await gate.reached.wait()
    assert await second.memories.resume_forgets() == 1
    gate.go_on.set()
    gone = await under_way
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert gone == receipt.counts
    assert gone.memories == 9
    assert WORD.encode() not in await written(redis)


@pytest.mark.usefixtures("in_portions", "abandoned_at_once")
async def test_a_forget_whose_caller_gave_up_is_finished_by_the_upkeep(stores, second, redis):
    await store(stores.memories, *(create(f"{WORD} {n}") for n in range(9)))
    gate = Gate(stores)
    under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="semantic"), by="test"))
    await gate.reached.wait()
    under_way.cancel()
    await asyncio.wait([under_way])
    assert await second.memories.resume_forgets() == 1
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


async def test_the_append_only_file_is_written_anew_after_a_forget(tmp_path):
    with redis_server.running(tmp_path) as server:
        stores = await opened(server.url)
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


@pytest.mark.usefixtures("in_portions", "abandoned_at_once")
async def test_a_forget_that_redis_broke_off_by_dying_is_finished_when_it_is_back(tmp_path):
    with redis_server.running(tmp_path) as server:
        stores = await opened(server.url)
        await everything(stores)
        await store(stores.memories, *(create(f"{WORD} {n}", type="preference") for n in range(9)))
        counted = await stores.memories.forget(of(ANNA, type="semantic"), by="test", dry_run=True)
        gate = Gate(stores)
        under_way = asyncio.create_task(stores.memories.forget(of(ANNA, type="semantic"), by="test"))
        await gate.reached.wait()
        server.kill()
        gate.go_on.set()
        with pytest.raises(StoreUnavailable):
            await under_way
        server.start()
        again = await opened(server.url)
        assert await find(again.memories, WORD) == []
        assert await again.memories.resume_forgets() == 1
        (receipt,) = await again.receipts.list("acme", "anna", limit=9)
        assert replace(receipt.counts, receipt=None) == counted
        await again.close()
        await stores.close()
