"""The outbox: the index becomes complete after an outage or a killed sender."""

import random
import secrets
from contextlib import asynccontextmanager

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.storage.qdrant import Collection, QdrantIndex
from proxy.storage.sql import vectors
from proxy.storage.sql.vectors import Indexed, IndexUnavailable
from tests.storage.indexed import SERVERS
from tests.storage.making import ANNA, APOLLO, create, find, of, store, vector

ENGINES = ("sqlite", "postgres")


class Flaky(QdrantIndex):
    """Can be switched off, as a whole or after so many writes."""

    down = False
    writes_left = 1_000_000
    fallbacks = 0

    def fell_back(self):
        self.fallbacks += 1

    @asynccontextmanager
    async def _guarded(self, timeout_s=None):
        if self.down:
            raise IndexUnavailable("down")
        async with super()._guarded(timeout_s):
            yield

    async def upsert(self, *args):
        self.writes_left -= 1
        if self.writes_left < 0:
            raise IndexUnavailable("died")
        await super().upsert(*args)

    async def held(self):
        """Numbers of all points."""
        client, found = self._client, []
        for generation in await self.generations():
            points, _ = await client.scroll(self._collection.of(generation), limit=10_000)
            found += [point.id for point in points]
        return sorted(found)


@pytest.fixture(params=SERVERS)
async def index(request):
    client = AsyncQdrantClient(request.param)
    prefix = f"test-{secrets.token_hex(4)}"
    yield Flaky(client, Collection(prefix=prefix), search_timeout_s=10)
    if request.param != ":memory:":
        for each in (await client.get_collections()).collections:
            if each.name.startswith(prefix):
                await client.delete_collection(each.name)
        await client.close()


@pytest.fixture
async def another(engine, index, monkeypatch):
    """Opens stores as a further replica would."""
    every = []

    async def stays_open():
        """The other stores of the test use it."""

    async def open_one(indexed):
        opened = await engine.open(indexed=indexed)
        every.append(opened)
        return opened

    monkeypatch.setattr(index, "close", stays_open)
    monkeypatch.setattr(vectors, "_SETTLE_S", -1.0)
    yield open_one
    for each in every:
        await each.close()


@pytest.fixture
async def stores(another, index):
    opened = await another(Indexed(index, exact_up_to=-1, fell_back=index.fell_back))
    await opened.deliver()
    return opened


async def ids(stores, **asked):
    return {hit.memory.id for hit in await find(stores.memories, **asked)}


class TestOutbox:
    async def test_what_was_written_while_the_index_was_down_is_found_and_arrives(self, stores, index):
        await store(stores.memories, create("green tea", id="a"))
        await stores.deliver()
        index.down = True
        await store(stores.memories, create("black tea", id="b"))
        await stores.deliver()
        assert await ids(stores, words="tea") == {"a", "b"}
        assert index.fallbacks == 1, "the user was searched exactly"
        index.down = False
        assert await ids(stores, words="tea") == {"a", "b"}, "one from the index, one from the outbox"
        assert len(await index.held()) == 1
        await stores.deliver()
        assert len(await index.held()) == 2
        assert index.fallbacks == 1

    async def test_what_was_forgotten_while_the_index_was_down_is_never_shown_and_leaves_it(
        self, stores, index
    ):
        await store(stores.memories, create("green tea", id="a"))
        await store(stores.memories, create("black tea", id="b"))
        await stores.deliver()
        index.down = True
        where = of(ANNA)
        await stores.memories.forget(where, "a", by="test")
        await stores.deliver()
        index.down = False
        assert len(await index.held()) == 2
        assert await ids(stores, words="tea") == {"b"}
        await stores.deliver()
        assert len(await index.held()) == 1
        index.down = True
        await stores.memories.forget(where, by="test")
        index.down = False
        assert await ids(stores, words="tea") == set()
        await stores.deliver()
        assert await index.held() == []

    async def test_a_crash_between_commit_and_delivery_loses_nothing(self, stores, index, another):
        await store(stores.memories, create("green tea", id="a"))
        index.writes_left = 0  # it dies with the first portion
        await stores.deliver()
        index.writes_left = 100
        second = await another(Indexed(index, exact_up_to=-1))
        await second.deliver()
        assert len(await index.held()) == 1
        assert await stores.outbox.waiting() == 0

    async def test_who_lost_the_lease_while_sending_sends_again(self, stores, index, another, monkeypatch):
        """A process is stopped while it sends an old state; another sends the forget before it continues."""
        second = await another(Indexed(index, exact_up_to=-1))
        await store(stores.memories, create("green tea", id="a"))
        upsert = index.upsert

        async def late(*args):
            monkeypatch.setattr(index, "upsert", upsert)
            await stores.memories.forget(of(ANNA), "a", by="test")
            monkeypatch.setattr(second.outbox, "_clock", lambda: stores.outbox._clock() + 1e6)
            await second.outbox.deliver(5)
            await upsert(*args)

        monkeypatch.setattr(index, "upsert", late)
        await stores.outbox.deliver(5)
        assert len(await index.held()) == 1, "the ghost"
        assert await ids(stores, words="tea") == set()
        await stores.outbox.deliver(5)
        assert await index.held() == []

    async def test_a_qdrant_that_lost_its_data_is_filled_again_from_where_it_was_broken_off(
        self, stores, index, monkeypatch
    ):
        monkeypatch.setattr("proxy.storage.sql.vectors._AT_ONCE", 2)
        for number in range(7):
            await store(stores.memories, create(f"tea {number}", id=f"m{number}"))
        await stores.deliver()
        await index.drop()
        assert len(await ids(stores, words="tea")) == 7, "searched exactly"
        index.writes_left = 2
        with pytest.raises(IndexUnavailable):
            await stores.outbox.rebuild(lambda done, total: None)
        assert len(await index.held()) == 4
        index.writes_left = 100
        assert await stores.outbox.rebuild(lambda done, total: None) == 3
        await store(stores.memories, create("tea again", id="new"))
        await stores.deliver()
        assert len(await index.held()) == 8

    async def test_many_memories_are_found_with_the_scores_of_exact_search(self, stores, another):
        """The nearest by cosine, and those with two of the words. Of the many with one word, which are
        equally good for the index, it proposes any."""
        chosen, memories = random.Random(7), stores.memories
        words = [f"word{number}" for number in range(20)]
        looked_for, with_two = {"word3", "word17", "word10"}, set()
        for number in range(120):
            said = chosen.sample(words, 4)
            if len(looked_for & {*said}) > 1:
                with_two.add(f"m{number}")
            direction = vector(*(chosen.gauss(0, 1) for _ in range(3)))
            text = " ".join([*said, f"no{number}"])
            await store(memories, create(text, id=f"m{number}", vec=direction))
        await stores.deliver()
        assert await stores.outbox.waiting() == 0
        exact = await another(None)
        asked = {"vec": vector(1, 0.5, 0.2), "words": " ".join(looked_for), "limit": 20}
        ours = {hit.memory.id: hit for hit in await find(memories, **asked)}
        truth = {hit.memory.id: hit for hit in await find(exact.memories, **asked)}
        nearest = sorted(truth, key=lambda id_: -truth[id_].cosine)[:20]
        assert set(nearest) <= set(ours)
        best = with_two & set(truth)
        assert len(best) > 2
        assert best <= set(ours)
        for id_ in best:
            assert ours[id_].cosine == pytest.approx(truth[id_].cosine)
        wanted = {"scope": APOLLO, "words": "no7", "types": frozenset({"semantic"})}
        (ours,), (truth,) = await find(memories, **wanted), await find(exact.memories, **wanted)
        assert ours == truth
