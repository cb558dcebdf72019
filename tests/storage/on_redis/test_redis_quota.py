"""The quota over Redis, exact among replicas."""

from functools import partial
from types import SimpleNamespace

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.storage.redis import quota
from proxy.storage.redis.unit import Units
from tests.storage.contract_quota import QuotaContract
from tests.storage.making import ANNA, BEN
from tests.storage.on_redis.memories_support import agreement, replica


class TestQuota(QuotaContract):
    """Replicas of one Redis."""

    MODULE = quota

    @pytest.fixture
    async def opened(self, redis):
        client = AsyncQdrantClient(":memory:")

        async def open_one(limit):
            return SimpleNamespace(memories=replica(redis, client, limit))

        yield open_one
        await client.close()

    @pytest.fixture
    def agrees(self, redis):
        async def all_that_follows_agrees_with_the_rows(stores):
            for scope in (ANNA, BEN):
                await Units(redis).read(scope, partial(agreement, redis))

        return all_that_follows_agrees_with_the_rows
