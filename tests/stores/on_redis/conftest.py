from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis as Client

from proxy.stores.redis.connection import Redis
from proxy.stores.redis.unit import Units
from tests import redis_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    """A Redis of this test process."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
async def redis(server: redis_server.Server) -> AsyncIterator[Redis]:
    """An empty database."""
    client = Client.from_url(server.url)
    await client.flushdb()
    connection = Redis(client, prefix="t:")
    yield connection
    await connection.close()


@pytest.fixture
def units(redis: Redis) -> Units:
    return Units(redis)
