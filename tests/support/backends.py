"""Every backend, for tests that must come to the same over each of them: import the fixtures."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client

from proxy.storage.redis.connection import Redis
from proxy.storage.redis.stores import Places, RedisStores
from proxy.storage.sqlite import SqliteStores
from tests import redis_server

__all__ = ["BACKENDS", "place", "running_redis"]

BACKENDS = ("sqlite", "redis")


class Place:
    """Where the stores of one test keep everything."""

    def __init__(self, backend: str, directory: Path, redis_url: str | None) -> None:
        self.backend, self.directory, self.redis_url = backend, directory, redis_url

    @property
    def settings(self) -> dict[str, dict[str, object]]:
        """What the settings say of it, but for the directory."""
        return {} if self.redis_url is None else {"redis": {"url": self.redis_url, "prefix": "t:"}}

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[SqliteStores | RedisStores]:
        """Open the stores of one process."""
        made: SqliteStores | RedisStores
        if self.redis_url is None:
            made = SqliteStores(self.directory)
        else:
            made = RedisStores(Places(redis_url=self.redis_url, prefix="t:"))
        await made.open()
        try:
            yield made
        finally:
            await made.close()

    async def written(self) -> bytes:
        """Return all that is kept there now."""
        from tests.storage.on_redis.forgetting_support import written

        if self.redis_url is None:
            return b"".join(p.read_bytes() for p in self.directory.rglob("memory.db*") if p.is_file())
        redis = Redis(Client.from_url(self.redis_url), prefix="t:")
        try:
            return await written(redis)
        finally:
            await redis.close()


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    """A Redis of this test process."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=BACKENDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each backend."""
    directory = tmp_path / "data"
    if request.param == "sqlite":
        return Place("sqlite", directory, None)
    server: redis_server.Server = request.getfixturevalue("running_redis")
    async with Client.from_url(server.url) as client:
        await client.flushdb()
    return Place("redis", directory, server.url)
