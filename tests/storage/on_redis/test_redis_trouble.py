"""A Redis that is full: what still goes, what does not, and how it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage import outages
from proxy.storage.outages import HOLD_S
from proxy.storage.redis import instance
from proxy.storage.redis.connection import Redis, unavailable
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.trouble import DISK_FULL, FULL, READ_ONLY, Trouble, kind_of
from proxy.storage.redis.unit import Unit, Units
from tests import redis_server
from tests.storage.recording import recorded

ANNA = Scope("t", "anna")


@pytest.fixture
async def full(server: redis_server.Server, redis: Redis) -> AsyncIterator[Any]:
    """Sets how much memory Redis may have; at first 1 MB, which it has already."""
    async with Client.from_url(server.url) as client:
        await client.script_flush()
        await client.config_set("maxmemory", "1mb")
        yield lambda maxmemory: client.config_set("maxmemory", maxmemory)
        await client.config_set("maxmemory", "0")


def putting(name: str, *, frees: bool = False) -> Any:
    async def work(unit: Unit) -> None:
        unit.frees = frees
        unit.table("rows").put(name, 1)

    return work


async def rows(units: Units) -> set[str]:
    async def work(unit: Unit) -> set[str]:
        return set(await unit.table("rows").all())

    return await units.read(ANNA, work)


async def test_what_frees_is_written_though_redis_is_full_and_nothing_else(full: Any, units: Units) -> None:
    with pytest.raises(StoreUnavailable):
        await units.write(ANNA, putting("takes"))
    await units.write(ANNA, putting("frees", frees=True))
    assert await rows(units) == {"frees"}


async def test_trouble_is_told_until_a_write_that_takes_memory_comes_through(
    full: Any, redis: Redis, units: Units
) -> None:
    assert redis.trouble.kind == ""
    with pytest.raises(StoreUnavailable):
        await units.write(ANNA, putting("takes"))
    await units.write(ANNA, putting("frees", frees=True))
    await redis.probe()
    assert redis.trouble.kind == FULL
    await full("0")
    await redis.probe()
    assert redis.trouble.kind == ""


async def test_a_replica_is_alive_to_the_others_though_redis_is_full(full: Any, redis: Redis) -> None:
    one, other = Instance(redis), Instance(redis)
    await one.start()
    try:
        assert await other.dead({one.id, "nobody"}) == {"nobody"}
    finally:
        await one.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError("command not allowed"), FULL),
        (ReadOnlyError("You can't write against a read only replica."), READ_ONLY),
        (ResponseError("MISCONF Errors writing to the AOF file"), DISK_FULL),
        (ResponseError("wrong number of arguments"), ""),
        (TimeoutError(), ""),
    ],
)
def test_redis_objections_have_names(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ResponseError("DENIED Redis is running in protected mode"), "Redis: ResponseError DENIED"),
        (ResponseError("Unknown argument My salary is 9,000"), "Redis: ResponseError"),
        (ResponseError("I earn 9,000"), "Redis: ResponseError"),
        (TimeoutError("DENIED"), "Redis: TimeoutError"),
    ],
)
def test_an_objection_is_told_by_its_word_and_never_by_its_text(error: Exception, shown: str) -> None:
    assert str(unavailable(error)) == shown


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is logged: (event, kind)."""
    return recorded(monkeypatch, lambda facts: facts["kind"])


def test_a_redis_that_is_full_now_and_then_is_told_of_once_a_minute_and_over_when_that_is_over(
    log: list[tuple[str, str]],
) -> None:
    now = [0.0]
    trouble = Trouble(lambda: now[0])
    for second in range(0, 125, 5):
        now[0] = second
        trouble.refused(OutOfMemoryError("command not allowed"))
        trouble.worked()
        assert trouble.kind == ""
    assert log == [("store.trouble", FULL)] * 3
    now[0] += HOLD_S
    trouble.settle()
    assert log[3:] == [("store.recovered", FULL)]


async def test_a_redis_that_is_away_is_told_of_once_and_so_is_its_coming_back(
    own_server: redis_server.Server, log: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "BEAT_S", 0.01)
    monkeypatch.setattr(outages, "HOLD_S", 0.2)
    connection = Redis(Client.from_url(own_server.url), prefix="t:")
    one = Instance(connection)
    await one.start()
    own_server.kill()
    await until(lambda: bool(log))
    await asyncio.sleep(0.2)  # some beats
    assert log == [("store.trouble", instance.AWAY)]
    own_server.start()
    await until(lambda: len(log) > 1)
    assert log[1:] == [("store.recovered", instance.AWAY)]
    await one.close()
    await connection.close()


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if seen():
                return
            await asyncio.sleep(0.01)
