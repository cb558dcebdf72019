from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest
from redis.asyncio import Redis as Client

from proxy.stores.redis import clearing, forgetting
from proxy.stores.redis.connection import Redis
from proxy.stores.redis.unit import Units
from tests import redis_server
from tests.stores.on_redis import forgetting_support
from tests.stores.on_redis.forgetting_support import Replica, opened
from tests.stores.on_redis.kept_support import Counted


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


@pytest.fixture
async def counted(server: redis_server.Server, redis: Redis) -> AsyncIterator[Counted]:
    """Counts the ways to Redis."""
    connection = Counted(Client.from_url(server.url), prefix=redis.prefix)
    await connection.call("PING")
    connection.ways = 0
    yield connection
    await connection.close()


@pytest.fixture
async def stores(server: redis_server.Server, redis: Redis) -> AsyncIterator[Replica]:
    """A replica: what the fixtures of tests/stores take their ports from."""
    made = await opened(server.url)
    yield made
    await made.close()


@pytest.fixture
async def second(server: redis_server.Server, redis: Redis) -> AsyncIterator[Replica]:
    """Another one, which has nothing in common with it but what is in Redis."""
    made = await opened(server.url)
    yield made
    await made.close()


@pytest.fixture
def in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has anything is forgotten in portions, of two rows."""
    monkeypatch.setattr(forgetting, "AT_ONCE", -1)
    monkeypatch.setattr(forgetting, "PORTION", 2)
    monkeypatch.setattr(forgetting, "_SETTLE_EVERY", 2)
    monkeypatch.setattr(clearing, "_ROWS", 2)
    monkeypatch.setattr(clearing, "_TABLES", 2)


@pytest.fixture
def written(redis: Redis) -> Callable[[], Awaitable[bytes]]:
    """Reads all that is in Redis."""
    return partial(forgetting_support.written, redis)
