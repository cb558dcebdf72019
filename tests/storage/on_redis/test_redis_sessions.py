"""Sessions and jobs over Redis: what every store does, and what is only there where replicas share it."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.domain.core import Outcome, Scope
from proxy.domain.errors import LeaseLost, StoreUnavailable
from proxy.domain.oversight import QueueCounts
from proxy.storage.redis import instance, retention, sweeping
from proxy.storage.redis import jobs as jobs_module
from proxy.storage.redis.unit import uid
from tests.storage.contract_sessions import ConversationContract
from tests.storage.making import ANNA, APOLLO, BEN, NOW, always, exchange, never, talk
from tests.storage.on_redis.conversing_support import replica
from tests.storage.on_redis.memories_support import replica as memories_of
from tests.storage.on_redis.shared_support import by_rows, shared

WHOLE = Outcome("an answer", whole=True)


@pytest.fixture
async def replicas(server, redis):
    """Make replicas of one store."""
    async with AsyncExitStack() as living:

        async def made(count):
            return [await living.enter_async_context(replica(server.url)) for _ in range(count)]

        yield made
        assert await shared(redis) == await by_rows(redis)


@pytest.fixture
async def ours(replicas):
    (made,) = await replicas(1)
    return made


@pytest.fixture
async def theirs(replicas):
    (made,) = await replicas(1)
    return made


@pytest.fixture
def sessions(ours):
    return ours.sessions


@pytest.fixture
def jobs(ours):
    return ours.jobs


@pytest.fixture
async def memories(redis):
    client = AsyncQdrantClient(":memory:")
    yield memories_of(redis, client)
    await client.close()


class TestRedisConversations(ConversationContract):
    """SessionStore and JobQueue over Redis."""


# ---------------------------------------------------------------- several replicas
async def test_an_exchange_begun_at_one_replica_is_answered_at_another(ours, theirs):
    begun = await ours.sessions.begin(exchange("hi"))
    assert await theirs.sessions.complete(begun, WHOLE, always)
    (found,) = await ours.sessions.recent(ANNA, "s1", 9)
    assert (found.said, found.answer) == ("hi", "an answer")
    assert await theirs.serve(await ours.jobs.claim(NOW, 60)) == ["hi"]


async def test_a_broken_answer_that_a_job_has_read_does_not_give_way(ours, theirs):
    broken = await ours.sessions.begin(exchange(key="k"))
    await ours.sessions.complete(broken, Outcome("an ans", whole=False), always)
    await theirs.jobs.batch(await theirs.jobs.claim(NOW, 60), limit=9, context=0)
    assert await ours.sessions.complete(await ours.sessions.begin(exchange(key="k")), WHOLE, never)
    assert [e.answer for e in await ours.sessions.recent(ANNA, "s1", 9)] == ["an ans"]


async def test_the_same_request_at_two_replicas_at_once_is_one_exchange(ours, theirs):
    both = await asyncio.gather(*(each.sessions.begin(exchange("hi", key="k")) for each in (ours, theirs)))
    assert both[0] == both[1]
    await ours.sessions.abort(both[0])
    assert await theirs.sessions.complete(both[1], WHOLE, never)
    assert len(await ours.sessions.recent(ANNA, "s1", 9)) == 1


async def test_claims_of_many_replicas_at_once_never_meet(replicas):
    many = await replicas(4)
    users = [Scope("acme", f"u{n}") for n in range(40)]
    for scope in users:
        for session in ("s1", "s2"):
            await talk(
                many[0].sessions, f"{scope.user} {session}", scope=scope, session=session, trigger=always
            )
    running, most, read = set(), 0, []

    async def work(each):
        nonlocal most
        while job := await each.jobs.claim(NOW, 60):
            assert job.scope.user not in running, "two jobs of one user"
            running.add(job.scope.user)
            most = max(most, len(running))
            batch = await each.jobs.batch(job, limit=9, context=0)
            running.remove(job.scope.user)
            await each.finish(job)
            read.extend(e.said for e in batch.pending)

    while (await many[0].jobs.counts()).queued:
        await asyncio.gather(*(work(each) for each in many for _ in range(3)))
    assert sorted(read) == sorted(f"{scope.user} {session}" for scope in users for session in ("s1", "s2"))
    assert most > 1


async def test_users_who_were_never_served_are_served_in_the_order_in_which_they_came(ours, theirs):
    users = [Scope("acme", f"u{n}") for n in range(9)]
    for scope in users:
        await talk(ours.sessions, scope=scope, trigger=always)
    claimed = [await each.jobs.claim(NOW, 60) for each in (ours, theirs) * 4]
    assert [job.scope for job in claimed] == users[:8]


async def test_sessions_that_a_new_one_makes_due_are_served_in_the_order_in_which_they_began(ours):
    names = [f"s{n}" for n in range(8)]
    begun = [await ours.sessions.begin(exchange(session=name)) for name in names]
    for each in reversed(begun):
        await ours.sessions.complete(each, WHOLE, never)
    await ours.sessions.begin(exchange(session="new"))
    assert [job.session_id for job in await ours.jobs.list("acme", "anna", state=None, limit=9)] == names


async def test_users_take_turns_wherever_they_are_served(ours, theirs):
    for n in range(2):
        for scope in (ANNA, BEN):
            await talk(ours.sessions, scope=scope, session=f"s{n}", trigger=always)
    order = []
    for each in (ours, theirs, ours, theirs):
        job = await each.jobs.claim(NOW, 60)
        order.append(job.scope.user)
        await each.serve(job)
    assert order == ["anna", "ben", "anna", "ben"]


async def test_no_key_and_no_jobs_id_tells_who_or_what_it_is_about(ours, redis):
    secret = Scope("acme", "Rosalind")
    await talk(ours.sessions, scope=secret, session="about Francis", trigger=always)
    job = await ours.jobs.claim(NOW, 60)
    names = [key.decode() for key in await redis.call("KEYS", "*")]
    assert len(names) > 9
    for name in (*names, job.id):
        assert not any(word in name for word in ("Rosalind", "Francis", "acme"))


async def test_a_tenants_jobs_are_listed_in_order_whatever_their_states(ours, monkeypatch):
    monkeypatch.setattr(jobs_module, "_LISTED_AT_ONCE", 2)
    for n in range(7):
        await talk(ours.sessions, scope=Scope("acme", f"u{n}"), trigger=always)
    for n in range(4):
        job = await ours.jobs.claim(NOW, 60)
        if n != 2:
            await ours.jobs.retry(job, at=NOW + 9, reason="x", dead=n > 0)
    listed = await ours.jobs.list("acme", None, state=None, limit=9)
    assert [job.scope.user for job in listed] == [f"u{n}" for n in range(7)]


async def test_a_batch_read_again_settles_what_it_read_last(ours):
    for said in "ab":
        await talk(ours.sessions, said, trigger=always)
    job = await ours.jobs.claim(NOW, 60)
    await ours.jobs.batch(job, limit=2, context=0)
    assert await ours.serve(job, limit=1) == ["a"]
    assert await ours.serve(await ours.jobs.claim(NOW, 60)) == ["b"]


# ---------------------------------------------------------------- replicas that die
async def test_a_job_of_a_replica_that_closed_is_the_next_ones_at_once(ours, theirs):
    await talk(ours.sessions, "hi", trigger=always)
    lost = await ours.jobs.claim(NOW, 600)
    await ours.jobs.batch(lost, limit=9, context=0)
    assert await theirs.jobs.claim(NOW, 60) is None
    await ours.instance.close()
    job = await theirs.jobs.claim(NOW, 60)
    assert (job.id, job.attempts) == (lost.id, 2)
    assert (await ours.jobs.batch(lost, limit=9, context=0)).pending == ()
    with pytest.raises(LeaseLost):
        await ours.finish(lost, "late")
    assert await theirs.serve(job) == ["hi"]
    assert await ours.facts(ANNA) == {"hi": 1}


async def test_a_replica_that_fell_silent_is_as_dead(ours, theirs):
    await talk(ours.sessions, "hi", trigger=always)
    lost = await ours.jobs.claim(NOW, 600)
    await ours.fall_silent()
    assert (await theirs.jobs.claim(NOW, 60)).id == lost.id


async def test_a_job_of_a_living_replica_is_taken_from_it_when_its_lease_ends(ours, theirs):
    await talk(ours.sessions, trigger=always)
    lost = await ours.jobs.claim(NOW, 10)
    assert await theirs.jobs.claim(NOW + 9.9, 60) is None
    assert (await theirs.jobs.claim(NOW + 10, 60)).id == lost.id


async def test_nobody_is_taken_for_dead_who_could_not_say_that_they_live(replicas, monkeypatch):
    """Redis was away: the first to reach it again must not take everybody's jobs."""
    clock, failed = [1.0], asyncio.Event()
    monkeypatch.setattr(instance, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(instance, "BEAT_S", 0.0)
    ours, theirs = await replicas(2)
    await talk(ours.sessions, trigger=always)
    job = await ours.jobs.claim(NOW, 600)
    await ours.fall_silent()

    async def fail(self):
        failed.set()
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(instance.Instance, "_beat", fail)
        await failed.wait()
        await asyncio.sleep(0)
    assert await theirs.jobs.claim(NOW, 60) is None
    clock[0] += instance.DEAD_AFTER_S
    assert (await theirs.jobs.claim(NOW, 60)).id == job.id


async def test_what_a_dead_replica_left_open_is_completed_as_broken_off(ours, theirs):
    begun = await ours.sessions.begin(exchange("broken off"))
    assert await theirs.sessions.sweep(NOW, always) == 0  # it may still answer
    await ours.fall_silent()
    assert await theirs.sessions.sweep(NOW, always) == 1
    (found,) = await theirs.sessions.recent(ANNA, "s1", 9)
    assert (found.said, found.answer, found.whole) == ("broken off", "", False)
    assert await theirs.sessions.complete(begun, WHOLE, never)  # it lives after all
    assert (await theirs.sessions.recent(ANNA, "s1", 9))[0].answer == "an answer"


async def test_what_was_asked_again_at_a_living_replica_is_not_broken_off(ours, theirs):
    await ours.sessions.begin(exchange("hi", key="k"))
    again = await theirs.sessions.begin(exchange("hi", key="k"))
    await ours.fall_silent()
    assert await theirs.sessions.sweep(NOW, always) == 0
    assert await theirs.sessions.complete(again, WHOLE, never)


async def test_what_was_asked_again_while_a_sweep_looked_is_not_broken_off(ours, theirs, redis):
    begun = await ours.sessions.begin(exchange("hi"))
    await redis.call("HSET", redis.key("open"), f"{uid(ANNA)} {begun.id}", "gone")  # as the sweep saw it
    assert await theirs.sessions.sweep(NOW, always) == 0
    assert await theirs.sessions.recent(ANNA, "s1", 9) == []
    assert await ours.sessions.complete(begun, WHOLE, never)


async def test_ending_a_session_takes_what_a_dead_replica_left_open(ours, theirs):
    await ours.sessions.begin(exchange("broken off"))
    assert await theirs.sessions.end(ANNA, "s1", NOW) == 1
    assert await theirs.jobs.claim(NOW, 60) is None  # its replica may still answer
    await ours.instance.close()
    assert await theirs.sessions.end(ANNA, "s1", NOW) == 1
    assert await theirs.serve(await theirs.jobs.claim(NOW, 60)) == ["broken off"]


@pytest.mark.parametrize("steps", range(7))
async def test_a_replica_that_dies_between_two_steps_leaves_nothing_undone_and_nothing_done_twice(
    ours, theirs, steps
):
    async def serve():
        begun = await ours.sessions.begin(exchange("hi", key="k"))
        yield
        await ours.sessions.complete(begun, WHOLE, never)
        yield
        await ours.sessions.sweep(NOW, always)
        yield
        job = await ours.jobs.claim(NOW, 60)
        yield
        batch = await ours.jobs.batch(job, limit=9, context=0)
        yield
        await ours.finish(job, *(e.said for e in batch.pending))
        yield

    done = serve()
    for _ in range(min(steps, 6)):
        await anext(done)
    await done.aclose()
    await ours.fall_silent()
    if steps in (0, 1):  # the client was never answered: it asks again, or not
        await talk(theirs.sessions, "hi", key="k")
    await theirs.sessions.sweep(NOW, always)
    while job := await theirs.jobs.claim(NOW, 60):
        await theirs.serve(job)
    assert await theirs.facts(ANNA) == {"hi": 1}
    assert await theirs.jobs.counts() == QueueCounts()
    assert await theirs.sessions.sweep(NOW, always) == 0


# ---------------------------------------------------------------- sweeps
async def test_two_sweeps_at_once_ask_one_after_the_other(ours, theirs):
    for n in range(5):
        await talk(ours.sessions, scope=Scope("acme", f"u{n}"))
    made = await asyncio.gather(*(each.sessions.sweep(NOW, always) for each in (ours, theirs)))
    assert sorted(made) == [0, 5]
    assert (await ours.jobs.counts()).queued == 5


async def test_who_waits_in_vain_for_anothers_sweep_leaves_it_to_the_other(ours, theirs, monkeypatch):
    monkeypatch.setattr(sweeping, "_PATIENCE_S", 0.1)
    await talk(ours.sessions)

    async def swept_meanwhile():
        return await theirs.sessions.sweep(NOW, always)

    found = []

    async def held(self):
        found.append(await swept_meanwhile())

    with monkeypatch.context() as patched:
        patched.setattr(sweeping.Sweep, "_close_abandoned", held)
        assert await ours.sessions.sweep(NOW, always) == 1
    assert found == [0]
    assert await theirs.sessions.sweep(NOW, always) == 0


async def test_a_sweep_that_died_holds_the_next_one_up_for_a_while_only(ours, redis, monkeypatch):
    key, left = redis.key("sweeping"), []

    async def look(self):
        left.append(await redis.call("TTL", key))

    monkeypatch.setattr(sweeping.Sweep, "_close_abandoned", look)
    await ours.sessions.sweep(NOW, always)
    assert 0 < left[0] <= 30
    assert not await redis.call("EXISTS", key)


async def test_a_session_that_changed_since_it_was_shared_is_offered_as_it_is(ours, theirs):
    await talk(ours.sessions, "one")
    seen = []

    def trigger(state):
        seen.append(state.pending)
        return always(state)

    offer = sweeping.Sweep._offer

    async def late(self, found, asked, now):
        await talk(theirs.sessions, "two")
        return await offer(self, found, asked, now)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweeping.Sweep, "_offer", late)
        assert await ours.sessions.sweep(NOW, trigger) == 1
    assert seen == [1, 2]
    assert await ours.serve(await ours.jobs.claim(NOW, 60)) == ["one", "two"]


async def test_a_sweep_reads_no_user_whom_the_trigger_does_not_want(ours, monkeypatch):
    await talk(ours.sessions)
    with monkeypatch.context() as patched:
        patched.setattr(ours.units, "write", None)
        patched.setattr(ours.units, "read", None)
        assert await ours.sessions.sweep(NOW, never) == 0


# ---------------------------------------------------------------- what is shared
async def test_a_claim_that_was_led_astray_goes_on_and_sets_it_right(ours, redis):
    await talk(ours.sessions)
    await talk(ours.sessions, scope=BEN, trigger=always)
    for lane in (1, 2):
        await redis.call("ZADD", redis.key(f"due:{lane}"), -(2**53), uid(ANNA), -(2**53) + 1, "nobody")
    assert (await ours.jobs.claim(NOW, 60)).scope == BEN
    assert await shared(redis) == await by_rows(redis)


async def test_jobs_that_are_gone_are_not_looked_for_again(ours, redis):
    await talk(ours.sessions)
    await redis.call("ZADD", redis.key("later"), 1, f"{uid(ANNA)}.99")
    await redis.call("HSET", redis.key("running"), f"{uid(ANNA)}.98", b'[1.0,"gone"]')
    assert await ours.jobs.claim(NOW, 60) is None
    assert await shared(redis) == await by_rows(redis)


async def test_a_job_that_was_put_back_again_meanwhile_is_not_due(ours, redis):
    await talk(ours.sessions, trigger=always)
    job = await ours.jobs.claim(NOW, 60)
    await ours.jobs.retry(job, at=NOW + 50, reason="timeout")
    await redis.call("ZADD", redis.key("later"), 1, job.id)
    assert await ours.jobs.claim(NOW + 49, 60) is None
    assert await shared(redis) == await by_rows(redis)
    assert (await ours.jobs.claim(NOW + 50, 60)).id == job.id


async def test_an_idle_claim_takes_one_round_trip_however_many_users_there_are(ours, monkeypatch):
    for n in range(20):
        await talk(ours.sessions, scope=Scope("acme", f"u{n}"))
    asked = []
    pipeline = ours.redis.pipeline

    async def counted(commands):
        asked.append(len(commands))
        return await pipeline(commands)

    monkeypatch.setattr(ours.redis, "pipeline", counted)
    monkeypatch.setattr(ours.redis, "call", None)
    assert await ours.jobs.claim(NOW, 60) is None
    assert asked == [3]


# ---------------------------------------------------------------- retention
async def test_retention_removes_what_is_read_and_then_the_session_with_all_that_led_to_it(ours, redis):
    begun = await ours.sessions.begin(exchange("old", scope=APOLLO))
    await ours.sessions.complete(begun, Outcome("x", whole=True, response_id="resp_1"), always)
    await talk(ours.sessions, "not read", session="s2")
    job = await ours.jobs.claim(NOW, 60)
    assert await ours.sessions.prune(NOW + 1) == 0
    await ours.serve(job)
    assert await ours.sessions.prune(NOW) == 0
    assert await ours.sessions.prune(NOW + 2) == 1
    assert [s.id for s in await ours.sessions.sessions(ANNA, limit=9)] == ["s2"]
    assert await ours.sessions.session_of(APOLLO, "resp_1") is None
    keys = [key.decode().split(":") for key in await redis.call("KEYS", "t:u:*")]
    assert sorted(name for _, _, _, name, *_ in keys) == [
        "exchanges", "facts", "keys", "owner", "sessions", "tables", "unread", "where"
    ]  # fmt: skip


async def test_retention_comes_back_for_what_was_not_read_the_last_time(ours):
    for at in (NOW, NOW + 10):
        await talk(ours.sessions, at=at, trigger=always)
    assert await ours.sessions.prune(NOW + 1) == 0
    await ours.serve(await ours.jobs.claim(NOW, 60))
    assert await ours.sessions.prune(NOW + 2) == 1


async def test_retention_of_very_many_goes_in_portions(ours, monkeypatch):
    monkeypatch.setattr(retention, "_EXCHANGES_AT_ONCE", 3)
    monkeypatch.setattr(retention, "_READ_AT_ONCE", 2)
    monkeypatch.setattr(retention, "_SESSIONS_AT_ONCE", 2)
    for scope in (ANNA, APOLLO, BEN):
        for n in range(7):
            await talk(ours.sessions, at=NOW + n, scope=scope, trigger=always)
    while job := await ours.jobs.claim(NOW, 60):
        await ours.serve(job, limit=4)
    assert await ours.sessions.prune(NOW + 5) == 15
    assert [len(await ours.sessions.recent(scope, "s1", 9)) for scope in (ANNA, APOLLO, BEN)] == [2, 2, 2]
    assert await ours.sessions.prune(NOW + 99) == 6
    assert await ours.sessions.sessions(ANNA, limit=9) == []


# ---------------------------------------------------------------- faults
async def test_what_was_acknowledged_before_redis_was_killed_is_there_once_after_it(own_server):
    async with replica(own_server.url) as ours:
        told = await _talk_while_redis_dies(ours, own_server)
    async with replica(own_server.url) as theirs:
        await _serve_all(theirs)
        stored = await theirs.facts(ANNA)
        assert told <= stored.keys()
        assert set(stored.values()) == {1}
        assert await shared(theirs.redis) == await by_rows(theirs.redis)


async def _serve_all(each):
    """Extract all there is."""
    while True:
        if job := await each.jobs.claim(NOW + 1e6, 60):
            await each.serve(job)
        elif not await each.sessions.sweep(NOW, always):
            return


async def _talk_while_redis_dies(ours, server):
    """Return what was acknowledged."""
    told, failed = set(), 0
    enough = {20: asyncio.Event(), 60: asyncio.Event()}

    def tell(said):
        told.add(said)
        for count, reached in enough.items():
            if len(told) >= count:
                reached.set()

    async def converse(name):
        nonlocal failed
        for n in range(60):
            try:
                await ours.sessions.begin(exchange(f"{name} {n}", session=f"s{name}"))
                tell(f"{name} {n}")
                if job := await ours.jobs.claim(NOW, 60):
                    await ours.serve(job)
                begun = await ours.sessions.begin(exchange(f"{name} {n} too", session=f"s{name}"))
                await ours.sessions.complete(begun, WHOLE, always)
                tell(f"{name} {n} too")
            except StoreUnavailable:
                failed += 1
                await asyncio.sleep(0.005)
            except LeaseLost:
                pass

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(converse(name))
        for reached in enough.values():
            await reached.wait()
            server.kill()
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
    assert failed
    return told
