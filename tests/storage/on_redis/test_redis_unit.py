import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client
from redis.exceptions import ConnectionError as Lost

from proxy.domain.core import Stamp
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.unit import Unit, Units, uid
from tests import redis_server
from tests.storage.making import ANNA, BEN


async def rows(units: Units, name: str = "t") -> dict[str, object]:
    return await units.read(ANNA, lambda unit: unit.table(name).all())


async def test_what_a_unit_wrote_is_there_for_the_next_and_for_nobody_else(units: Units) -> None:
    async def work(unit: Unit) -> None:
        unit.table("t").put("a", {"x": 1})
        unit.blobs("b").put("raw", b"\x00\xff")
        unit.set_number("generation", 3)

    await units.write(ANNA, work)
    assert await rows(units) == {"a": {"x": 1}}

    async def look(unit: Unit) -> tuple[object, Stamp]:
        return await unit.blobs("b").get("raw"), unit.stamp

    assert await units.read(ANNA, look) == (b"\x00\xff", Stamp(3, 0))
    assert await units.read(BEN, look) == (None, Stamp(0, 0))


async def test_a_unit_sees_its_own_writes(units: Units) -> None:
    async def work(unit: Unit) -> dict[str, object]:
        table = unit.table("t")
        table.put("a", 1)
        table.put("b", 2)
        table.drop("a")
        assert await table.get("a") is None
        return await table.all()

    assert await units.write(ANNA, work) == {"b": 2}
    assert await rows(units) == {"b": 2}


async def test_writers_of_one_user_come_one_after_the_other_wherever_they_run(redis: Redis) -> None:
    processes = [Units(redis) for _ in range(8)]

    async def count(unit: Unit) -> None:
        found = await unit.table("t").get("n") or 0
        await asyncio.sleep(0)
        unit.table("t").put("n", found + 1)

    await asyncio.gather(*(units.write(ANNA, count) for units in processes for _ in range(10)))
    assert await rows(processes[0]) == {"n": 80}


async def test_work_that_saw_two_states_is_done_again(redis: Redis) -> None:
    ours, theirs = Units(redis), Units(redis)
    tries = 0

    async def step(unit: Unit) -> None:
        unit.table("t").put("n", 1)

    async def work(unit: Unit) -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            await theirs.write(ANNA, step)
            raise KeyError("a row that another has removed meanwhile")
        return "done"

    assert await ours.write(ANNA, work) == "done"


async def test_an_error_of_the_works_own_is_the_callers_and_writes_nothing(units: Units) -> None:
    async def work(unit: Unit) -> None:
        unit.table("t").put("a", 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await units.write(ANNA, work)
    assert await rows(units) == {}


async def test_a_wiped_user_has_no_rows_left_but_those_to_keep(redis: Redis, units: Units) -> None:
    async def fill(unit: Unit) -> None:
        for name in ("t", "exchanges:1", "receipts"):
            unit.table(name).put("a", 1)

    async def forget(unit: Unit) -> None:
        await unit.wipe(keep=("receipts",))
        unit.table("t").put("b", 2)

    await units.write(ANNA, fill)
    await units.write(ANNA, forget)
    assert await rows(units) == {"b": 2}
    assert await rows(units, "exchanges:1") == {}
    assert await rows(units, "receipts") == {"a": 1}
    assert await redis.call("KEYS", "*exchanges:1") == []


async def test_what_all_users_share_changes_in_the_same_step(redis: Redis, units: Units) -> None:
    async def work(unit: Unit) -> None:
        unit.table("t").put("a", 1)
        unit.share("ZADD", redis.key("later"), 5, "x")

    await units.write(ANNA, work)
    assert await redis.call("ZSCORE", redis.key("later"), "x") in (b"5", 5.0)


async def test_a_commit_whose_answer_was_lost_counts_once(
    redis: Redis, units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, lost = Redis._evaluate, 0

    async def and_lose(self: Redis, *arguments: object) -> object:
        nonlocal lost
        lost += 1
        await evaluate(self, *arguments)  # type: ignore[arg-type]
        raise Lost("the answer never came")

    async def count(unit: Unit) -> None:
        unit.table("t").put("n", (await unit.table("t").get("n") or 0) + 1)

    with monkeypatch.context() as patched:
        patched.setattr(Redis, "_evaluate", and_lose)
        await units.write(ANNA, count)
    assert (lost, await rows(units)) == (1, {"n": 1})


async def test_a_commit_that_never_arrived_is_said_to_have_failed(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(self: Redis, *arguments: object) -> object:
        raise Lost("never sent")

    async def work(unit: Unit) -> None:
        unit.table("t").put("secret text", 1)

    monkeypatch.setattr(Redis, "_evaluate", lose)
    with pytest.raises(StoreUnavailable) as failed:
        await units.write(ANNA, work)
    assert "secret" not in str(failed.value)
    assert await rows(units) == {}


async def test_many_more_at_once_than_there_are_connections_wait_for_their_turn(units: Units) -> None:
    async def look(unit: Unit) -> object:
        return await unit.table("t").get("a")

    assert await asyncio.gather(*(units.glance(ANNA, look) for _ in range(500))) == [None] * 500


async def test_rows_of_several_tables_come_in_one_go(redis: Redis, units: Units) -> None:
    async def fill(unit: Unit) -> None:
        unit.table("t").put("a", 1)
        unit.table("t").put("b", 2)
        unit.blobs("raw").put("x", b"\xff")

    await units.write(ANNA, fill)

    async def look(unit: Unit) -> object:
        await unit.fetch((unit.table("t"), ("a", "none")), (unit.blobs("raw"), None), (unit.table("no"), ()))
        await redis.call("FLUSHDB")  # what was fetched is not asked for again
        return await unit.table("t").many(("a", "none")), await unit.blobs("raw").all()

    assert await units.glance(ANNA, look) == ({"a": 1}, {"x": b"\xff"})


async def test_a_row_leads_to_others_by_a_field(units: Units) -> None:
    async def fill(unit: Unit) -> None:
        for name, before in (("c", "b"), ("b", "a"), ("a", None), ("x", "y"), ("y", "x")):
            unit.table("t").put(name, {"before": before, "said": "é"})

    await units.write(ANNA, fill)

    async def walk(unit: Unit) -> list[list[str]]:
        table = unit.table("t")
        return [list(await table.follow(start, "before", 3)) for start in ("c", "b", "x", "none")]

    assert await units.read(ANNA, walk) == [["c", "b", "a"], ["b", "a"], ["x", "y"], []]


async def test_users_are_known_by_what_stands_for_them(units: Units) -> None:
    async def work(unit: Unit) -> str:
        unit.table("t").put("a", 1)
        return unit.uid

    anna = await units.write(ANNA, work)
    assert await units.scopes([anna, "unknown"]) == {anna: ANNA}


async def test_a_commit_is_done_once_as_many_of_redis_replicas_have_it_as_are_asked_for(
    server: redis_server.Server, redis: Redis, tmp_path: Path
) -> None:
    async def count(unit: Unit) -> None:
        unit.table("t").put("n", (await unit.table("t").get("n") or 0) + 1)

    async with AsyncExitStack() as stack:
        follower = stack.enter_context(redis_server.running(tmp_path / "follower"))
        client = Client.from_url(follower.url)
        stack.push_async_callback(client.aclose)
        await client.execute_command("REPLICAOF", "127.0.0.1", server.port)
        async with asyncio.timeout(10):
            while (await client.info("replication"))["master_link_status"] != "up":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        # WAIT ends as soon as the replica has it: on a busy machine a second may pass, mostly none does.
        patient, hasty = (
            Redis(Client.from_url(server.url), prefix="t:", replicas=1, replica_wait_ms=wait_ms)
            for wait_ms in (4_000, 500)
        )
        for each in (patient, hasty):
            stack.push_async_callback(each.close)
        await Units(patient).write(ANNA, count)
        assert await client.hgetall(f"t:u:{uid(ANNA)}:t")
        os.kill(follower.pid, signal.SIGSTOP)  # it is connected still, and hears nothing
        with pytest.raises(StoreUnavailable):
            await Units(hasty).write(ANNA, count)
