"""Another embedding model takes over while the store is used: only vectors of one model are compared."""

from typing import Any

import numpy as np
import pytest

from proxy.domain.changes import Edit
from proxy.domain.ports import EmbeddingModel
from tests.storage.making import ANNA, BEN, create, find, forgotten, memory, of, store

ENGINES = ("sqlite", "postgres", "indexed", "behind")

OLD = EmbeddingModel("old", 384, 0.3, 0.8)
NEW = EmbeddingModel("new", 8, 0.3, 0.8)
TWIN = EmbeddingModel("twin", 384, 0.3, 0.8)  # of the same dimension as OLD


def axis(model: EmbeddingModel, number: int = 0) -> bytes:
    vector = np.zeros(model.dimension, np.float32)
    vector[number] = 1
    return vector.tobytes()


async def cosines(stores: Any, model: EmbeddingModel, scope=ANNA) -> dict[str, float | None]:
    """What a process with the model finds by meaning and by the word "tea": each memory's cosine."""
    hits = await find(stores.memories, "tea", scope, vec=axis(model))
    return {hit.memory.id: hit.cosine for hit in hits}


async def put(stores: Any, model: EmbeddingModel, generation: int, *, only: str | None = None) -> list[Any]:
    """Give the memories, or only those that say this, vectors of the model; return what lacked them."""
    stale = await stores.vectors.stale(generation, None, 1000)
    stale = [one for one in stale if only in (None, one.content)]
    await stores.vectors.put(generation, [(one, axis(model)) for one in stale])
    return stale


class TestReembed:
    @pytest.fixture
    async def old(self, stores):
        """A running proxy of the old model, with memories of two users."""
        await stores.memories.stamp_model(OLD)
        await store(
            stores.memories, create("tea", id="a", vec=axis(OLD)), create("tea pot", id="b", vec=axis(OLD))
        )
        await store(stores.memories, create("tea", BEN, id="c", vec=axis(OLD)), scope=BEN)
        return stores

    @pytest.mark.parametrize("model", [NEW, TWIN])
    async def test_both_proxies_find_everything_and_compare_their_own_vectors_only(self, old, second, model):
        assert await cosines(old, OLD) == {"a": 1.0, "b": 1.0}
        generation = await old.vectors.begin(model)
        await second.memories.stamp_model(model)  # may start at once
        assert await cosines(second, model) == {"a": None, "b": None}
        await put(old, model, generation, only="tea")
        assert await cosines(second, model) == {"a": 1.0, "b": None}
        assert await cosines(old, OLD) == {"a": None, "b": 1.0}
        await put(old, model, generation)
        assert await cosines(second, model) == {"a": 1.0, "b": 1.0}
        assert await cosines(old, OLD) == {"a": None, "b": None}
        assert await cosines(second, model, BEN) == {"c": 1.0}

    async def test_what_the_old_proxy_writes_in_between_is_still_to_do(self, old, second):
        generation = await old.vectors.begin(TWIN)
        await put(old, TWIN, generation)
        assert await old.vectors.count(generation) == 0
        await store(old.memories, create("tea leaves", id="d", vec=axis(OLD)))
        await second.memories.stamp_model(TWIN)
        assert (await cosines(second, TWIN))["d"] is None, "another model's vector of the same length"
        await store(second.memories, create("tea cup", id="e", vec=axis(TWIN)))
        assert [one.content for one in await old.vectors.stale(generation, None, 10)] == ["tea leaves"]

    async def test_what_was_changed_or_forgotten_since_it_was_read_is_left_as_it_is(self, old):
        generation = await old.vectors.begin(NEW)
        read = await old.vectors.stale(generation, None, 10)
        await store(old.memories, Edit(memory("tea time", id="a"), axis(OLD)))
        await forgotten(old.memories, of(ANNA), "b")
        assert await old.vectors.put(generation, [(one, axis(NEW)) for one in read]) == 1, "Ben's alone"
        assert [one.content for one in await old.vectors.stale(generation, None, 10)] == ["tea time"]
