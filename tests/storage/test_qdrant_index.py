"""The index in Qdrant: what is found, how collections are made, what a failure looks like."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from proxy.storage.qdrant import collection, sparse
from proxy.storage.qdrant.collection import Collection
from proxy.storage.qdrant.index import QdrantIndex
from proxy.storage.vector_index import IndexUnavailable, Point, Query, Wanted

WANTED = Wanted(project=None, types=None, now=100.0)
POINT = Point(
    uid="u1", memory="a", project=None, type="semantic", current=True, expires_at=None, written=1,
    vector_of=1, vector=np.array([1, 0], np.float32).tobytes(), terms="green tea",
)  # fmt: skip
QUERY = Query(uid="u1", wanted=WANTED, vector=None, generations=(0,), weights={}, limit=10)


@pytest.fixture
async def client():
    opened = AsyncQdrantClient(":memory:")
    yield opened
    await opened.close()


@pytest.fixture
def index(client):
    return QdrantIndex(client, Collection(name="t"), search_timeout_s=10.0)


async def found(index: QdrantIndex, generations=(0,), **fields):
    """Cosines by memory id."""
    near = await index.search(replace(QUERY, **fields), generations)
    return {each.memory: each.cosine for each in near}


def query(x: float, y: float) -> bytes:
    return np.array([x, y], np.float32).tobytes()


async def test_a_point_is_found_by_its_vector_and_by_its_words(index):
    rum = replace(POINT, memory="b", vector=query(0, 1), terms="rum")
    await index.upsert(0, [POINT, rum])
    assert await found(index, vector=query(1, 0)) == {"a": pytest.approx(1), "b": pytest.approx(0)}
    assert await found(index, weights={"rum": 1.0}) == {"b": None}
    both = await found(index, vector=query(1, 0), weights={"rum": 1.0}, limit=1)
    assert both == {"a": pytest.approx(1), "b": pytest.approx(0)}, "what words found has a cosine, too"


@pytest.mark.parametrize(
    "other",
    [
        {"uid": "u2"},
        {"current": False},
        {"expires_at": 100.0},
        {"type": "episodic"},
        {"project": "zeus"},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_each_condition_leaves_a_point_out(index, other):
    wanted = Wanted(project="apollo", types=frozenset({"semantic", "preference"}), now=100.0)
    for fields in ({"project": "apollo"}, {"expires_at": 100.5}, {"type": "preference"}):
        await index.upsert(0, [replace(POINT, memory=str(fields), **fields)])
    await index.upsert(0, [replace(POINT, memory="other", **other)])
    ours = await found(index, vector=query(1, 0), weights={"tea": 1.0}, wanted=wanted)
    assert len(ours) == 3
    assert "other" not in ours


async def test_vectors_of_another_generation_are_not_compared(index):
    await index.upsert(0, [POINT])
    await index.upsert(1, [replace(POINT, memory="b", vector=np.ones(5, np.float32).tobytes())])
    asked = {"vector": query(1, 0), "weights": {"tea": 1.0}}
    assert await found(index, (0, 1), **asked) == {"a": pytest.approx(1), "b": None}


async def test_a_point_is_in_one_generation_only(index, client):
    await index.upsert(0, [POINT])
    await index.upsert(1, [replace(POINT, written=2, vector_of=2)])
    assert (await client.count("t_0")).count == 0
    await index.delete("u1", ["a"])
    assert (await client.count("t_1")).count == 0


async def test_without_a_model_there_are_words_only(index):
    await index.upsert(-1, [replace(POINT, vector=None, vector_of=None)])
    assert await found(index, (-1,), vector=query(1, 0), weights={"tea": 1.0}) == {"a": None}


async def test_all_of_a_user_goes_but_what_was_written_later(index):
    points = [replace(POINT, memory=f"m{n}", written=n) for n in range(5)]
    await index.upsert(0, [*points, replace(POINT, uid="u2", memory="theirs")])
    await index.delete_all("u1", 3)
    assert set(await found(index, weights={"tea": 1.0})) == {"m4"}
    assert set(await found(index, weights={"tea": 1.0}, uid="u2")) == {"theirs"}


async def test_vectors_come_back_as_they_were(index):
    await index.upsert(0, [POINT, replace(POINT, memory="b", vector=None, vector_of=None)])
    assert await index.vectors(0, "u1", ["a", "b", "c"]) == {"a": (1, POINT.vector)}
    assert await index.vectors(0, "u2", ["a"]) == {}


async def test_replicas_that_make_a_collection_at_once_make_one(client):
    both = [QdrantIndex(client, Collection(name="t")) for _ in range(5)]
    await asyncio.gather(*(each.upsert(0, [replace(POINT, memory=str(n))]) for n, each in enumerate(both)))
    assert (await client.count("t_0")).count == 5


async def test_a_missing_collection_is_no_empty_answer(index):
    with pytest.raises(IndexUnavailable):
        await found(index, weights={"tea": 1.0})


async def test_an_error_names_no_question():
    client = AsyncQdrantClient(url="http://127.0.0.1:1", check_compatibility=False)
    with pytest.raises(IndexUnavailable) as error:
        await QdrantIndex(client, Collection(name="t")).upsert(0, [replace(POINT, terms="secret")])
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("generation", "name"), [(0, "my_memories_0"), (12, "my_memories_12"), (-1, "my_memories_plain")]
)
def test_a_collections_name_says_its_generation(generation, name):
    ours = Collection(name="my_memories")
    assert ours.of(generation) == name
    assert ours.generation_of(name) == generation
    assert Collection(name="memories").generation_of(name) is None
    assert ours.generation_of("my_memories_old") is None


@pytest.mark.parametrize(
    ("quantization", "kind"),
    [("none", type(None)), ("scalar", models.ScalarQuantization), ("binary", models.BinaryQuantization)],
)
async def test_what_an_operator_chooses_reaches_qdrant(monkeypatch, quantization, kind):
    client, asked = AsyncQdrantClient(":memory:"), {}

    async def create(name, **options):
        asked.update(options, name=name)

    async def index(name, field, **options):
        asked[field] = options["field_schema"]

    monkeypatch.setattr(client, "create_collection", create)
    monkeypatch.setattr(client, "create_payload_index", index)
    chosen = Collection(
        name="x", replication_factor=2, write_consistency_factor=2, shard_number=6, on_disk=True,
        quantization=quantization,
    )  # fmt: skip
    await collection.create(client, chosen, 3, 384, indexed=True)
    assert (asked["name"], asked["replication_factor"], asked["shard_number"]) == ("x_3", 2, 6)
    assert asked["vectors_config"]["dense"].on_disk
    assert isinstance(asked["quantization_config"], kind)
    assert asked["uid"].is_tenant
    assert asked["sparse_vectors_config"]["words"].modifier is None, "an IDF over all users"
    await client.close()


def test_the_product_of_sparse_vectors_orders_as_bm25_does():
    dice, words = random.Random(1), [f"w{n}" for n in range(40)]
    weights = {word: dice.uniform(0.1, 4) for word in words[:5]}
    question = dict(zip(*_pairs(sparse.of_question(weights)), strict=True))
    exact, product = [], []
    for _ in range(300):
        terms = " ".join(dice.choices(words, k=dice.randint(8, 16)))
        exact.append(bm25(terms.split(), weights, 12.0))
        indices, values = _pairs(sparse.of_memory(terms))
        product.append(sum(question.get(i, 0.0) * v for i, v in zip(indices, values, strict=True)))
    assert product == pytest.approx(exact, rel=1e-6)


def bm25(words: list[str], idf: dict[str, float], mean: float) -> float:
    """Robertson & Zaragoza 2009, with k1 = 1.2 and b = 0.4."""
    norm = 1.2 * (1 - 0.4 + 0.4 * len(words) / mean)
    counts = Counter(word for word in words if word in idf)
    return sum(idf[word] * 2.2 * count / (count + norm) for word, count in counts.items())


def _pairs(vector: models.SparseVector) -> tuple[list[int], list[float]]:
    return vector.indices, vector.values
