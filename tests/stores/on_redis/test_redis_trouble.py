"""A Redis that is full: what still goes, what does not, and how it is told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from proxy.domain import Scope
from proxy.errors import StoreUnavailable
from proxy.stores.redis.connection import Redis
from proxy.stores.redis.instance import Instance
from proxy.stores.redis.trouble import DISK_FULL, FULL, READ_ONLY, kind_of
from proxy.stores.redis.unit import Unit, Units
from tests import redis_server

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
