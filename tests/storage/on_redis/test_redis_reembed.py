"""Another embedding model over Redis, and the index that holds its vectors."""

import asyncio
from types import SimpleNamespace

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.storage.redis import model
from tests.storage.contract_reembed import NEW, OLD, ReembedContract, cosines, put
from tests.storage.on_redis.memories_support import points_of, replica


@pytest.fixture
async def qdrant():
    client = AsyncQdrantClient(":memory:")
    yield client
    await client.close()


def opened(redis, qdrant):
    memories = replica(redis, qdrant)
    return SimpleNamespace(memories=memories, vectors=memories.vectors)


class TestReembed(ReembedContract):
    """Two replicas and a Qdrant."""

    @pytest.fixture
    def stores(self, redis, qdrant):
        return opened(redis, qdrant)

    @pytest.fixture
    def second(self, redis, qdrant):
        return opened(redis, qdrant)

    async def test_a_lost_index_is_made_anew(self, old, qdrant):
        """Its vectors were nowhere else; the texts are."""
        for each in (await qdrant.get_collections()).collections:
            await qdrant.delete_collection(each.name)
        assert await cosines(old, OLD) == {"a": None, "b": None}
        generation = await old.vectors.begin(OLD, anew=True)
        await put(old, OLD, generation)
        assert await cosines(old, OLD) == {"a": 1.0, "b": 1.0}
        assert set(await points_of(qdrant)) == {"a", "b", "c"}

    async def test_the_points_of_the_former_model_are_gone_when_all_is_done(self, old, qdrant):
        await put(old, NEW, await old.vectors.begin(NEW))
        assert (await qdrant.count("t_0")).count == 0
        assert (await qdrant.count("t_1")).count == 3

    async def test_two_processes_that_start_at_once_name_one_model_once(self, stores, second, redis):
        await asyncio.gather(*(each.memories.stamp_model(OLD) for each in (stores, second) * 5))
        assert await redis.call("LLEN", redis.key("models")) == 1

    async def test_a_model_that_another_process_names_while_we_look_is_not_named_again(self, redis):
        class Overtaken:
            """Answers that there is none, when another process has just named one."""

            looked = False
            key = staticmethod(redis.key)

            async def call(self, *command):
                answer = await redis.call(*command)
                if not self.looked:
                    self.looked = True
                    await model.stamp(redis, OLD)
                return answer

        await model.stamp(Overtaken(), OLD)
        assert await redis.call("LLEN", redis.key("models")) == 1
