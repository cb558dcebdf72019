from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client

from proxy.domain.ports import EmbeddingModel
from proxy.storage.redis import clearing, forgetting
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.unit import Units
from tests import redis_server
from tests.storage.conftest import tell
from tests.storage.on_redis import forgetting_support
from tests.storage.on_redis.forgetting_support import Gate, Replica, break_off, opened
from tests.storage.on_redis.kept_support import Counted


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    """A Redis of this test process."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[redis_server.Server]:
    """A Redis of the test's own, with its files in `tmp_path`: it may be killed, and set up otherwise."""
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path) as running:
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


@asynccontextmanager
async def replica(server: redis_server.Server, embedding: EmbeddingModel | None) -> AsyncIterator[Replica]:
    """A replica that was told of the model, if there is one."""
    made = await opened(server.url)
    await tell(made, embedding)
    yield made
    await made.close()


@pytest.fixture
async def stores(
    server: redis_server.Server, redis: Redis, embedding: EmbeddingModel | None
) -> AsyncIterator[Replica]:
    """A replica: what the fixtures of tests/storage take their ports from."""
    async with replica(server, embedding) as made:
        yield made


@pytest.fixture
async def second(
    server: redis_server.Server, redis: Redis, embedding: EmbeddingModel | None
) -> AsyncIterator[Replica]:
    """Another one, which has nothing in common with it but what is in Redis."""
    async with replica(server, embedding) as made:
        yield made


@pytest.fixture
def in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has anything is forgotten in portions, of two rows."""
    monkeypatch.setattr(forgetting, "AT_ONCE", -1)
    monkeypatch.setattr(forgetting, "PORTION", 2)
    monkeypatch.setattr(forgetting, "_SETTLE_EVERY", 2)
    monkeypatch.setattr(clearing, "_ROWS", 2)
    monkeypatch.setattr(clearing, "_TABLES", 2)


@pytest.fixture
def gate_of() -> type[Gate]:
    return Gate


@pytest.fixture(name="break_off")
def _break_off() -> Callable[[Replica, int], None]:
    return break_off


@pytest.fixture
def written(redis: Redis) -> Callable[[], Awaitable[bytes]]:
    """Reads all that is in Redis."""
    return partial(forgetting_support.written, redis)
