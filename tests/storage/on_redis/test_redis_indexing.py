"""The index beside the rows: late, away, hanging, or written by a replica that died."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.domain.core import Edit
from proxy.domain.errors import Conflict, Duplicate, NotFound, StoreUnavailable
from proxy.storage.qdrant.collection import Collection
from proxy.storage.qdrant.index import QdrantIndex
from proxy.storage.redis import indexing, search
from proxy.storage.redis.memories import RedisMemories
from proxy.storage.redis.unit import Units, uid
from proxy.storage.vector_index import Point
from tests.storage.making import (
    ANNA,
    APOLLO,
    contents,
    create,
    find,
    memory,
    of,
    store,
    supersede,
    vector,
)
from tests.storage.on_redis.memories_support import agreement, local_index, points_of, replica


@pytest.fixture
async def qdrant():
    """An embedded Qdrant, empty."""
    client = AsyncQdrantClient(":memory:")
    yield client
    await client.close()


@pytest.fixture
def here(redis, qdrant):
    return replica(redis, qdrant)


@pytest.fixture
def there(redis, qdrant):
    return replica(redis, qdrant)


def nowhere() -> QdrantIndex:
    """An index over a server that is not there."""
    client = AsyncQdrantClient(url="http://127.0.0.1:1", timeout=2, check_compatibility=False)
    return QdrantIndex(client, Collection(name="t"))


async def later(redis, qdrant, seconds: float) -> RedisMemories:
    """A replica some time from now."""
    other = replica(redis, qdrant)
    other.indexing = indexing.Indexing(Units(redis), local_index(qdrant), lambda: time.time() + seconds)
    return other


async def left(redis, scope=ANNA) -> dict[str, int]:
    """What of the user's waits for the index."""

    async def count(unit):
        tables = {name: await unit.table(name).all() for name in ("unindexed", "obsolete")}
        return {name: len(rows) for name, rows in tables.items()} | {
            "vectors": len(await unit.blobs("vectors").all())
        }

    return await Units(redis).read(scope, count)


class Dies(Exception):
    """The process ends here."""


class Mortal:
    """An index whose process dies at a given step of its work."""

    def __init__(self, index: QdrantIndex, at: str, *, after: bool) -> None:
        self._index, self._at, self._after = index, at, after

    def __getattr__(self, name: str):
        work = getattr(self._index, name)
        if name != self._at:
            return work

        async def last(*arguments):
            if self._after:
                await work(*arguments)
            raise Dies

        return last


async def test_what_is_stored_is_indexed_and_its_vector_leaves_redis(redis, here, qdrant):
    await store(here, create("tea", vec=vector(1)), create("rum"))
    assert await left(redis) == {"unindexed": 0, "obsolete": 0, "vectors": 0}
    assert len(await points_of(qdrant)) == 2
    assert await redis.call("ZCARD", redis.key("unindexed")) == 0


async def test_points_hold_neither_text_nor_names(here, qdrant):
    await store(here, create("secret tea", APOLLO, id="m1", vec=vector(1), tags=("t",)))
    (payload,) = (await points_of(qdrant)).values()
    assert payload == {
        "uid": uid(ANNA), "memory": "m1", "project": "apollo", "type": "semantic", "current": True,
        "written": 1, "vector_of": 1,
    }  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
async def test_a_replica_that_dies_before_the_index_has_it_loses_nothing(redis, qdrant, there, after):
    dying = RedisMemories(Units(redis), Mortal(local_index(qdrant), "upsert", after=after))
    with pytest.raises(Dies):
        await store(dying, create("green tea", id="a", vec=vector(1)))
    for terms in ("tea", ""):  # at once, by its words and by its vector
        (hit,) = await find(there, terms, vec=vector(1))
        assert (hit.memory.id, hit.cosine) == ("a", pytest.approx(1.0))
    assert await (await later(redis, qdrant, 60)).indexing.catch_up() == 1
    assert await left(redis) == {"unindexed": 0, "obsolete": 0, "vectors": 0}
    assert set(await points_of(qdrant)) == {"a"}
    assert [hit.cosine for hit in await find(there, vec=vector(1))] == [pytest.approx(1.0)]


async def test_the_work_of_a_living_replica_is_left_to_it(redis, qdrant, there):
    dying = RedisMemories(Units(redis), Mortal(local_index(qdrant), "upsert", after=False))
    with pytest.raises(Dies):
        await store(dying, create("green tea", vec=vector(1)))
    assert await there.indexing.catch_up() == 0


@pytest.mark.parametrize("after", [False, True])
async def test_what_a_dying_replica_superseded_is_superseded_for_all(redis, qdrant, here, there, after):
    await store(here, create("tea at 4", id="a", vec=vector(1)))
    dying = RedisMemories(Units(redis), Mortal(local_index(qdrant), "delete", after=after))
    with pytest.raises(Dies):
        await store(dying, supersede("a", "tea at 5", id="b"))
    assert await contents(there, "tea", vec=vector(1)) == {"tea at 5"}
    await (await later(redis, qdrant, 60)).indexing.catch_up()
    await (await later(redis, qdrant, 600)).indexing.catch_up()
    assert set(await points_of(qdrant)) == {"b"}
    assert await left(redis) == {"unindexed": 0, "obsolete": 0, "vectors": 0}


async def test_an_older_point_that_comes_late_replaces_no_newer_one(here, there, qdrant):
    await store(here, create("tea", id="a", vec=vector(1)))
    before = (await points_of(qdrant))["a"]
    await store(here, Edit(memory("cocoa", id="a"), vector(0, 1)))
    late = point("a", written=before["written"], vector_of=before["vector_of"], vec=vector(1))
    await local_index(qdrant).upsert(0, [late])
    assert (await points_of(qdrant))["a"]["written"] == 2
    (hit,) = await find(there, vec=vector(0, 1))
    assert hit.cosine == pytest.approx(1.0)


def point(id_: str, *, written: int, vector_of: int | None, vec: bytes | None, terms: str = "tea") -> Point:
    """What a replica of Anna's would write."""
    return Point(
        uid=uid(ANNA), memory=id_, project=None, type="semantic", current=True, expires_at=None,
        written=written, vector_of=vector_of, vector=vec, terms=terms,
    )  # fmt: skip


class Interrupted:
    """An index before whose first write something else happens."""

    def __init__(self, index: QdrantIndex, happens: Callable[[], Awaitable[object]]) -> None:
        self._index, self._happens = index, [happens]

    def __getattr__(self, name: str):
        return getattr(self._index, name)

    async def upsert(self, generation: int, points: Sequence[Point]) -> None:
        if self._happens:
            await self._happens.pop()()
        await self._index.upsert(generation, points)


@pytest.mark.parametrize("how", ["edited", "superseded", "forgotten"])
async def test_what_changes_while_its_point_is_written_is_seen_to_by_who_wrote_it(redis, qdrant, there, how):
    """Even where the one who changed it dies at once."""
    index = local_index(qdrant)
    dying = RedisMemories(Units(redis), Mortal(index, "delete" if how != "edited" else "upsert", after=False))

    async def change():
        changes = {
            "edited": lambda: store(dying, Edit(memory("rum", id="a"), vector(0, 1))),
            "superseded": lambda: store(dying, supersede("a", "rum", id="b")),
            "forgotten": lambda: dying.forget(of(ANNA), "a", by="test"),
        }
        with pytest.raises(Dies):
            await changes[how]()

    slow = RedisMemories(Units(redis), Interrupted(index, change))
    await store(slow, create("tea", id="a", vec=vector(1)))
    points = await points_of(qdrant)
    match how:
        case "edited":
            assert (points["a"]["written"], points["a"]["vector_of"]) == (2, 2)
        case _:
            assert "a" not in points
    assert (await left(redis))["unindexed"] == (await left(redis))["vectors"] == 0


async def test_points_that_say_other_than_the_rows_show_nothing(here, there, qdrant):
    """As an old server leaves them, which knows no condition for an upsert, or a process that came late."""
    await store(here, create("tea", id="a", vec=vector(1)), create("rum", id="b", vec=vector(0, 1)))
    await store(here, supersede("b", "gin", id="c"))
    index = local_index(qdrant)
    await index.delete(uid(ANNA), ["a", "b"])
    await index.upsert(
        0,
        [
            point("a", written=1, vector_of=77, vec=vector(0, 0, 1)),
            point("b", written=1, vector_of=1, vec=vector(0, 1), terms="rum"),
            point("never", written=9, vector_of=9, vec=vector(1)),
        ],
    )
    assert await find(there, "rum never", vec=vector(0, 1)) == []
    (hit,) = await find(there, "tea", vec=vector(0, 0, 1))
    assert (hit.memory.id, hit.cosine) == ("a", None)


async def test_a_list_full_of_outdated_points_is_asked_for_again(here, qdrant):
    await store(here, create("tea pot", id="ours", vec=vector(1, 1)))
    many = [point(f"gone{n}", written=1, vector_of=1, vec=vector(1)) for n in range(60)]
    await local_index(qdrant).upsert(0, many)
    assert await contents(here, "", vec=vector(1), limit=5) == {"tea pot"}


async def test_a_point_that_came_back_after_its_memory_went_is_deleted_again(redis, here, qdrant):
    await store(here, create("tea", id="a", vec=vector(1)))
    await store(here, supersede("a", "rum", id="b"))
    await local_index(qdrant).upsert(0, [point("a", written=1, vector_of=1, vec=vector(1))])
    assert set(await points_of(qdrant)) == {"a", "b"}
    await (await later(redis, qdrant, indexing.AGAIN_S + 1)).indexing.catch_up()
    assert set(await points_of(qdrant)) == {"b"}
    assert await left(redis) == {"unindexed": 0, "obsolete": 0, "vectors": 0}


async def test_an_edit_without_a_vector_keeps_the_one_that_only_the_index_has(here, there, qdrant):
    await store(here, create("tea", id="a", vec=vector(1)))
    await store(here, Edit(memory("tea", id="a", archived=True), None))
    assert await find(there, "tea", vec=vector(1)) == []
    await store(here, Edit(memory("tea", id="a", type="episodic"), None))
    (hit,) = await find(there, vec=vector(1), types=frozenset({"episodic"}))
    assert hit.cosine == pytest.approx(1.0)


# ---------------------------------------------------------------- without Qdrant
async def test_without_the_index_memories_are_stored_and_found_by_their_words(redis, qdrant, there):
    await store(there, create("green tea", id="a", vec=vector(1)), create("black coffee", id="b"))
    alone = RedisMemories(Units(redis), nowhere())
    (hit,) = await find(alone, "tea", vec=vector(1))
    assert (hit.memory.id, hit.cosine) == ("a", None)
    assert hit.bm25 == (await find(there, "tea"))[0].bm25
    await store(alone, supersede("a", "white tea", id="c"))
    for memories in (alone, there):
        assert await contents(memories, "tea", vec=vector(1)) == {"white tea"}
        assert await contents(memories, "tea", APOLLO) == {"white tea"}
        assert await find(memories, "coffee", types=frozenset({"episodic"})) == []
    assert set(await points_of(qdrant)) == {"a", "b"}
    await (await later(redis, qdrant, 60)).indexing.catch_up()
    assert set(await points_of(qdrant)) == {"b", "c"}


async def test_what_no_index_has_yet_is_compared_all_the_same(redis):
    alone = RedisMemories(Units(redis), nowhere())
    await store(alone, create("green tea", id="a", vec=vector(1)), create("black coffee", id="b"))
    (hit,) = await find(alone, vec=vector(1))
    assert (hit.memory.id, hit.cosine) == ("a", pytest.approx(1.0))


async def test_of_what_no_index_has_yet_only_the_nearest_come_with_vectors(redis):
    alone = RedisMemories(Units(redis), nowhere())
    near = [create(f"green tea {n}", id=f"t{n}", vec=vector(1, n / 10)) for n in range(6)]
    await store(alone, *near)
    hits = await find(alone, "green tea", vec=vector(1), vectors=2)
    assert len(hits) == 6
    assert {hit.memory.id for hit in hits if hit.vector is not None} == {"t0", "t1"}


async def test_without_the_index_the_newest_are_searched(redis, there, monkeypatch):
    monkeypatch.setattr(search, "NEWEST", 100)
    monkeypatch.setattr("proxy.storage.redis.order._MOST", 64)
    await store(there, *(create(f"tea {n}", id=f"t{n}") for n in range(300)))
    found = {hit.memory.id for hit in await find(RedisMemories(Units(redis), nowhere()), "tea", limit=500)}
    assert {f"t{n}" for n in range(200, 300)} <= found
    assert len(found) < 300


async def test_a_lost_collection_leaves_the_words(here, there, qdrant):
    await store(here, create("green tea", vec=vector(1)))
    assert [hit.cosine for hit in await find(there, "tea", vec=vector(1))] == [pytest.approx(1.0)]
    await qdrant.delete_collection("t_0")
    for _ in range(2):
        (hit,) = await find(there, "tea", vec=vector(1))
        assert hit.cosine is None
    await store(there, create("tea pot", id="new", vec=vector(1)))
    assert set(await points_of(qdrant)) == {"new"}


async def test_a_server_that_hangs_is_not_waited_for(redis, there):
    asked = 0

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = AsyncQdrantClient(url=f"http://127.0.0.1:{port}", timeout=1, check_compatibility=False)
    hanging = QdrantIndex(client, Collection(name="t"), search_timeout_s=0.05)
    hanging._there = {0, -1}
    memories = RedisMemories(Units(redis), hanging)
    await store(there, create("green tea", vec=vector(1)))
    for _ in range(20):
        assert await contents(memories, "tea", vec=vector(1)) == {"green tea"}
    assert asked == 3, "then nobody asks for a while"
    await client.close()
    server.close()
    await server.wait_closed()


async def test_an_index_that_is_away_is_said_once_and_so_is_its_return(redis, qdrant, there, monkeypatch):
    said = []
    for level in ("info", "warning"):
        monkeypatch.setattr(
            f"proxy.telemetry.log.{level}", lambda event, **_: said.append(event), raising=False
        )
    monkeypatch.setattr("proxy.storage.qdrant.index._PAUSE_S", 0.0)
    index = nowhere()
    memories = RedisMemories(Units(redis), index)
    await store(there, create("tea", vec=vector(1)))
    await store(memories, create("rum", vec=vector(0, 1)))
    for _ in range(9):
        await find(memories, "tea")
    index._client, index._search_timeout_s = qdrant, 10.0
    await memories.indexing.settle(ANNA)
    hits = await find(memories, vec=vector(1))
    assert [hit.cosine for hit in hits] == [pytest.approx(1.0), pytest.approx(0.0)]
    assert [event for event in said if event.startswith("index.")] == ["index.unavailable", "index.available"]


# ---------------------------------------------------------------- two replicas
@pytest.mark.parametrize("seed", range(4))
async def test_two_replicas_at_once_leave_the_index_as_the_rows_are(redis, qdrant, here, there, seed):
    dice = random.Random(seed)

    async def write(memories, n):
        id_ = f"m{dice.randrange(6)}"
        new = memory(f"tea number {n}", id=id_)
        change = dice.choice(
            [
                create(f"tea number {n}", id=f"n{n}", vec=vector(1, n)),
                supersede(id_, f"rum number {n}", id=f"m{dice.randrange(6)}"),
                Edit(new, vector(n, 1)),
            ]
        )
        for _ in range(50):
            try:
                return await store(memories, change)
            except NotFound:
                return None
            except (Conflict, Duplicate):
                await asyncio.sleep(dice.random() / 500)
        raise AssertionError("never got through")

    await asyncio.gather(*(write(dice.choice((here, there)), n) for n in range(25)))
    await (await later(redis, qdrant, 1000)).indexing.catch_up()
    rows = await Units(redis).read(ANNA, lambda unit: unit.table("memories").all())
    current = {name: row for name, row in rows.items() if row["superseded_by"] is None}
    points = await points_of(qdrant)
    assert {name: (p["written"], p["vector_of"]) for name, p in points.items()} == {
        name: (row["written"], row["vector"]) for name, row in current.items()
    }
    assert await left(redis) == {"unindexed": 0, "obsolete": 0, "vectors": 0}


async def test_nothing_acknowledged_is_lost_when_redis_ends_in_the_midst(server, redis, qdrant, here, there):
    acknowledged: set[str] = set()
    done, stored = asyncio.Event(), asyncio.Queue[str]()

    async def write(memories, name):
        for n in range(10_000):
            if done.is_set():
                return
            with suppress(StoreUnavailable, Conflict):
                id_ = f"{name}{n}"
                await store(memories, create(f"tea {id_}", id=id_, vec=vector(1, n)))
                acknowledged.add(id_)
                stored.put_nowait(id_)
            await asyncio.sleep(0)

    async def end_and_start():
        for enough in (8, 16, 24):
            while len(acknowledged) < enough:
                await stored.get()
            server.kill()
            server.start()
        done.set()

    await asyncio.gather(write(here, "h"), write(there, "t"), end_and_start())
    await redis._client.connection_pool.disconnect()  # each of its connections would say it once
    rows = await Units(redis).read(ANNA, lambda unit: unit.table("memories").all())
    assert acknowledged <= set(rows)
    await Units(redis).read(ANNA, partial(agreement, redis))
    await (await later(redis, qdrant, 1000)).indexing.catch_up()
    assert set(await points_of(qdrant)) == set(rows)
    found = await find(there, "tea", vec=vector(1), limit=len(rows))
    assert {hit.memory.id for hit in found} == set(rows)
