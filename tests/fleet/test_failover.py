"""A real failover: Redis Sentinel makes a replica the primary when that is killed."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.domain.errors import StoreError
from proxy.storage.redis.stores import Places, RedisStores
from tests import redis_server
from tests.redis_server import Server
from tests.storage.making import contents, create, store

SERVICE = "mymaster"


class Cluster:
    """A primary, two replicas of it, and a sentinel that watches them."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.primary = stack.enter_context(redis_server.running(directory / "primary"))
        for name in ("one", "other"):
            of = f"127.0.0.1 {self.primary.port}"
            stack.enter_context(redis_server.running(directory / name, "--replicaof", of))
        self.sentinel = Server(directory / "sentinel")
        stack.callback(self.sentinel.close)
        config = directory / "sentinel" / "sentinel.conf"
        config.write_text(
            f"port {self.sentinel.port}\nbind 127.0.0.1\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 2000\n",
            "utf-8",
        )
        assert redis_server.PROGRAM is not None
        process = subprocess.Popen(
            [redis_server.PROGRAM, str(config), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


async def until_stored(stores: RedisStores, content: str) -> None:
    """Store a memory as soon as that is possible."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store(stores.memories, create(content))
            except StoreError:
                await asyncio.sleep(0.1)
            else:
                return


async def test_what_was_acknowledged_is_there_after_a_failover_and_writing_goes_on(cluster: Cluster) -> None:
    stores = RedisStores(
        Places(
            redis_url="redis://unused/0",
            sentinels=(f"127.0.0.1:{cluster.sentinel.port}",),
            sentinel_service=SERVICE,
            replicas=1,
            redis_timeout_s=1.0,
        )
    )
    async with asyncio.timeout(60):
        while not stores.is_open:
            try:
                await stores.open()
            except StoreError:
                await asyncio.sleep(0.1)
    await until_stored(stores, "said before")
    cluster.primary.kill()
    with pytest.raises(StoreError):
        await store(stores.memories, create("nobody can keep this"))
    await until_stored(stores, "said afterwards")
    assert {"said before", "said afterwards"} <= await contents(stores.memories, "said before afterwards")
    await stores.close()
