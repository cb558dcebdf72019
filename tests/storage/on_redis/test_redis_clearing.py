"""What is left of a user who had much, and is forgotten: hidden in one step, cleared in portions."""

import asyncio
import os
import random
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.domain.core import Forgotten, Outcome
from proxy.domain.errors import Conflict, StoreUnavailable
from proxy.storage.redis import clearing, orders
from proxy.storage.redis.connection import Redis, scored
from proxy.storage.redis.layout import sid
from proxy.storage.redis.unit import Unit, uid
from tests.storage.contract_chains import keep, response, talk_of
from tests.storage.contract_forgetting import DAY
from tests.storage.forgetting_support import WORD, everything
from tests.storage.making import (
    ANNA,
    BEN,
    NOW,
    always,
    contents,
    create,
    exchange,
    find,
    never,
    of,
    quote,
    store,
    talk,
    vector,
)
from tests.storage.on_redis.forgetting_support import Gate, break_off, lapse, opened, standing
from tests.storage.on_redis.shared_support import by_rows, shared

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
FORGETTER = Path(__file__).with_name("forgetter.py")
ROOT = FORGETTER.parents[3]


async def left_of(redis, home):
    """The keys of a home."""
    return [key.decode() for key in await redis.call("KEYS", redis.key(f"u:{home}:*"))]


async def much(stores, count, scope=ANNA):
    """Let the user have so many memories, each shown in an answer; every third expires."""
    told = await talk(stores.sessions, f"I am a {WORD}", scope=scope, trigger=always)
    facts = [
        create(
            f"{WORD} {n}", scope, id=f"f{n}", evidence=quote(told, WORD), vec=vector(1),
            expires_at=NOW + DAY * 9 if n % 3 == 0 else None,
        )
        for n in range(count)
    ]  # fmt: skip
    await store(stores.memories, *facts, scope=scope)
    for n in range(0, count, 50):
        shown = await stores.sessions.begin(exchange(f"what {n}?", scope, session=f"s{n}"))
        recalled = tuple(f"f{m}" for m in range(n, min(n + 50, count)))
        assert await stores.sessions.complete(shown, Outcome("that", whole=True, recalled=recalled), never)


# ---------------------------------------------------------------- no more than a portion at a time
async def test_no_step_of_a_large_forget_is_large(stores, server, redis, monkeypatch):
    await much(stores, 3000)
    sizes, tables = [], []
    commit, call, script = Redis.commit, Redis.call, Redis.script

    async def committed(self, owner, revision, commands, **how):
        sizes.append(sum(map(len, commands)))
        return await commit(self, owner, revision, commands, **how)

    async def called(self, *command):
        tables.append(len(command))
        return await call(self, *command)

    async def run(self, source, keys, *arguments, **how):
        sizes.append(len(arguments))
        return await script(self, source, keys, *arguments, **how)

    for name, instead in (("commit", committed), ("call", called), ("script", run)):
        monkeypatch.setattr(Redis, name, instead)
    assert (await stores.memories.forget(of(ANNA), by="test")).memories == 3000
    assert max(sizes) < 1000
    assert max(tables) <= clearing._ROWS + 2
    assert sizes[0] < 60, "what hides everything does not grow with it"


async def test_a_user_of_many_things_other_than_memories_goes_in_portions_too(stores, redis, monkeypatch):
    monkeypatch.setattr("proxy.storage.redis.forgetting.AT_ONCE", 20)
    for n in range(30):
        await talk(stores.sessions, f"a {WORD}", session=f"s{n}")
    await keep(stores, *(response(f"r{n}", BEN, text=WORD) for n in range(30)))
    for scope in (ANNA, BEN):
        assert (await stores.memories.forget(of(scope), by="test", dry_run=True)) != Forgotten()
        gone = await stores.memories.forget(of(scope), by="test")
        assert gone.exchanges + gone.responses == 30
        assert (await Unit.begin(redis, scope)).home == f"{uid(scope)}.1"


# ---------------------------------------------------------------- what is left, and what is not
@pytest.mark.usefixtures("in_portions")
async def test_nothing_is_left_of_a_home_and_nothing_leads_to_it(stores, redis, written):
    await everything(stores)
    await much(stores, 5)
    await keep(stores, response("lasting", text=WORD, expires_at=NOW + 9))
    await stores.conversations.create(talk_of("lasting", used_at=NOW), [("i", b'"i"')])
    job = await stores.jobs.claim(NOW, 60)
    await stores.jobs.retry(job, at=NOW, reason="refused", dead=True)
    assert (await stores.jobs.counts()).dead == 1
    assert await left_of(redis, uid(ANNA)) != []
    gone = await stores.memories.forget(of(ANNA), by="test")
    assert gone.memories == 8
    left = {key.rpartition(":")[2] for key in await left_of(redis, uid(ANNA))}
    assert left == {"owner", "receipts"}
    assert {key.rpartition(":")[2] for key in await left_of(redis, f"{uid(ANNA)}.1")} <= {
        "tables",
        "obsolete",
    }
    assert WORD.encode() not in await written()
    for name in (
        "ids:acme",
        "expiring",
        "expiring-responses",
        "used-conversations",
        "unsummarised",
        "waiting",
        "open",
        "oldest",
    ):
        assert await redis.call("EXISTS", redis.key(name)) == 0, name
    assert await shared(redis) == await by_rows(redis)
    assert await redis.call("EXISTS", redis.key("purge-due")) == 1
    counts = await stores.jobs.counts()
    assert (counts.queued, counts.dead) == (0, 0)


@pytest.mark.usefixtures("in_portions")
async def test_what_the_user_has_again_stays_known_to_all(stores, second, redis):
    """The same ids, in the same session, said before what was there is cleared."""
    await much(stores, 9)
    await keep(stores, response("r1", text=WORD, expires_at=NOW + 9))
    open_before = await stores.sessions.begin(exchange("never answered", session="s9"))
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(of(ANNA), by="test"))
    await gate.reached.wait()
    assert await stores.jobs.claim(NOW, 60) is None
    await store(stores.memories, create("tea", id="f0", expires_at=NOW + 1), create("rum", id="f1"))
    await keep(stores, response("r1", text="anew", expires_at=NOW + 1))
    for n in range(2):
        await talk(second.sessions, f"hello {n}", session="s0")
    begun = await stores.sessions.begin(exchange("and now?"))
    gate.go_on.set()
    assert (await forgetting).memories == 9
    assert await shared(redis) == await by_rows(redis)
    holders = await redis.hash(redis.key("ids:acme"))
    assert holders == {"f0": uid(ANNA).encode(), "f1": uid(ANNA).encode()}
    (lasts,) = scored(await redis.call("ZRANGE", redis.key("unsummarised"), 0, -1, "WITHSCORES"))
    assert lasts == (f"{uid(ANNA)} {sid(None, 's0')}", NOW)
    assert not await stores.sessions.complete(open_before, Outcome("late", whole=True), always)
    assert await stores.sessions.complete(begun, Outcome("hi", whole=True), always)
    assert await second.chains.expire(NOW + 2) == 1
    assert await second.memories.expire(NOW + 2 * DAY) == 1
    assert await contents(second.memories, "tea rum") == {"rum"}


@pytest.mark.usefixtures("in_portions")
async def test_an_order_for_a_part_and_one_for_everything_do_not_get_into_each_others_way(
    stores, second, redis
):
    await much(stores, 9)
    break_off(stores, 1)
    with pytest.raises(RuntimeError):
        await stores.memories.forget(of(ANNA, type="semantic"), by="test")
    whole = await second.memories.forget(of(ANNA), by="test")
    assert whole.memories == 7
    await store(second.memories, create("tea", id="f5"))
    await lapse(redis)
    assert await second.memories.resume_forgets() == 1
    assert await contents(second.memories, "tea") == {"tea"}
    part, all_of_it = await second.receipts.list("acme", "anna", limit=9)
    assert (part.counts.memories, all_of_it.counts.memories) == (2, 7)
    assert await standing(redis) == 0
    assert (await Unit.begin(redis, ANNA)).number("forgetting") == 0
    assert await shared(redis) == await by_rows(redis)


@pytest.mark.usefixtures("in_portions")
async def test_whoever_forgets_again_and_again_leaves_nothing(stores, second, redis):
    for n in range(4):
        await much((stores, second)[n % 2], 3)
        assert (await stores.memories.forget(of(ANNA), by="test")).memories == 3
    assert await left_of(redis, f"{uid(ANNA)}.3") == []
    assert len(await stores.receipts.list("acme", None, limit=9)) == 4
    assert len(await stores.receipts.list("acme", "anna", limit=9)) == 4


@pytest.mark.usefixtures("in_portions")
async def test_a_session_that_its_user_has_left_is_found_in_the_new_home_too(stores):
    await much(stores, 3)
    await stores.memories.forget(of(ANNA), by="test")
    for session in ("first", "second"):
        for _ in range(2):
            await talk(stores.sessions, session=session)
    assert await stores.notes.close(idle_since=NOW - 1, left_since=NOW, now=NOW) == 1


@pytest.mark.usefixtures("in_portions")
async def test_who_read_before_everything_was_forgotten_writes_nothing(stores):
    await much(stores, 3)
    before = await stores.memories.stamp(ANNA)
    await stores.memories.forget(of(ANNA), by="test")
    with pytest.raises(Conflict):
        await stores.memories.apply(ANNA, [create(WORD)], expect=before)
    assert not await stores.chains.save(response("r", text=WORD), generation=before.generation)
    assert await contents(stores.memories, WORD) == set()


# ---------------------------------------------------------------- orders
@pytest.mark.usefixtures("in_portions")
async def test_wherever_a_crash_breaks_it_off_another_erases_the_rest_and_counts_the_whole(
    server, second, redis, written
):
    for portions in range(0, 200, 5):
        dying = await opened(server.url)
        await everything(dying)
        counted = await dying.memories.forget(of(ANNA), by="test", dry_run=True)
        break_off(dying, portions)
        with suppress(RuntimeError):
            await dying.memories.forget(of(ANNA), by="test")
        broke_off = await standing(redis)
        await dying.close()
        await lapse(redis)
        assert await second.memories.resume_forgets() == broke_off
        receipt, *_ = await second.receipts.list("acme", "anna", limit=9)
        assert replace(receipt.counts, receipt=None) == counted
        assert WORD.encode() not in await written()
        if not broke_off:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.usefixtures("in_portions")
async def test_whoever_is_at_a_long_clearing_keeps_others_away(stores, second, redis, monkeypatch):
    """However long it takes: each portion says anew until when."""
    await much(stores, 9)
    gate = Gate(stores)
    forgetting = asyncio.create_task(stores.memories.forget(of(ANNA), by="test"))
    for _ in range(3):
        await portion(gate)
    await lapse(redis)
    monkeypatch.setattr(orders, "LEASE_S", 1e6)
    await portion(gate)
    assert await second.memories.resume_forgets() == 0
    gate.go_on.set()
    assert (await forgetting).memories == 9


async def portion(gate):
    """Let a forget go on for one portion."""
    await gate.reached.wait()
    gate.reached.clear()
    gate.go_on.set()
    gate.go_on.clear()
    await gate.reached.wait()


@pytest.mark.usefixtures("in_portions")
async def test_a_full_redis_is_no_reason_to_keep_what_is_to_be_forgotten(stores, second, redis, written):
    await much(stores, 9)
    break_off(stores, 3)
    with pytest.raises(RuntimeError):
        await stores.memories.forget(of(ANNA), by="test")
    await much(second, 9, BEN)
    await lapse(redis)
    await redis.call("CONFIG", "SET", "maxmemory", "1mb")
    try:
        assert (await second.memories.forget(of(BEN), by="test")).memories == 9
        with pytest.raises(StoreUnavailable):  # the append-only file stays as it is
            await second.memories.resume_forgets()
        assert await standing(redis) == 0
        assert WORD.encode() not in await written()
    finally:
        await redis.call("CONFIG", "SET", "maxmemory", "0")


async def test_an_order_of_an_earlier_release_is_carried_out(stores, second, redis):
    """It knew no homes, and did not say so."""
    await store(stores.memories, *(create(f"{WORD} {n}", id=f"f{n}") for n in range(9)))

    async def placed(unit):
        return orders.place(unit, of(ANNA, type="semantic"), by="test", counts=Forgotten())

    token = await stores.units.write(ANNA, placed)

    async def as_before(unit):
        row = await orders.find(unit, token)
        unit.table("forgets").put(token, {name: row[name] for name in row if name != "left"})

    await stores.units.write(ANNA, as_before)
    assert await find(second.memories, WORD, vec=vector(1)) == []
    await lapse(redis)
    assert await second.memories.resume_forgets() == 1
    (receipt,) = await second.receipts.list("acme", "anna", limit=9)
    assert (receipt.id, receipt.counts.memories) == (token, 9)


# ---------------------------------------------------------------- kill -9
async def begin_and_kill(url: str, redis: Redis, after: int) -> bool:
    """Let a replica forget everything of Anna's, and kill it so many commits later; return whether the forget
    was under way then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(FORGETTER), url, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    async with asyncio.timeout(60):
        assert (await process.stdout.readline()).strip() == b"ready"
        before = (await Unit.begin(redis, ANNA)).revision
        process.stdin.write(b"\n")
        while (await Unit.begin(redis, ANNA)).revision < before + after:
            assert process.returncode is None
        process.kill()
        await process.communicate()
    return await standing(redis) == 1


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_what_kill_9_breaks_off_is_hidden_and_finished_by_another_replica(server, redis, written, seed):
    stores = await opened(server.url)
    await much(stores, 300)
    counted = await stores.memories.forget(of(ANNA), by="test", dry_run=True)
    assert await begin_and_kill(server.url, redis, random.Random(seed).randint(1, 25))
    assert await find(stores.memories, WORD, vec=vector(1), limit=999) == []
    assert (await stores.memories.list(of(ANNA, include_inactive=True), limit=9)).total == 0
    await store(stores.memories, create("tea", id="f7"))
    assert await stores.memories.resume_forgets() == 0  # nobody knows that it is dead
    await lapse(redis)
    assert await stores.memories.resume_forgets() == 1
    (receipt,) = await stores.receipts.list("acme", "anna", limit=9)
    assert replace(receipt.counts, receipt=None) == counted
    assert WORD.encode() not in await written()
    assert await contents(stores.memories, "tea") == {"tea"}
    left = {key.rpartition(":")[2] for key in await left_of(redis, uid(ANNA))}
    assert left == {"owner", "receipts"}
    assert await shared(redis) == await by_rows(redis)
    await stores.close()
