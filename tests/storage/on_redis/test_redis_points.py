"""The VectorIndex in Redis itself, over two replicas."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proxy.storage.redis.connection import Redis
from proxy.storage.redis.points import RedisIndex
from proxy.storage.vector_index import IndexUnavailable, Near, Point, Query, Wanted
from tests.redis_server import Server
from tests.storage.making import vector

ANYTHING = Wanted(None, None, 1_000.0)


def point(memory: str, *components: float, terms: str = "", **fields: object) -> Point:
    made = Point(
        uid="u", memory=memory, project=None, type="semantic", current=True, expires_at=None, written=1,
        vector_of=1 if components else None, vector=vector(*components) if components else None, terms=terms,
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


def query(*components: float, words: str = "", wanted: Wanted = ANYTHING, limit: int = 10) -> Query:
    return Query(
        uid="u", wanted=wanted, vector=vector(*components) if components else None, generations=(0,),
        weights=dict.fromkeys(words.split(), 1.0), limit=limit,
    )  # fmt: skip


async def found(index: RedisIndex, asked: Query) -> set[str]:
    return {near.memory for near in await index.search(asked, (0,))}


@pytest.fixture
def index(redis: Redis) -> RedisIndex:
    return RedisIndex(redis)


async def test_points_are_found_by_vector_and_by_words_inside_one_user(index: RedisIndex) -> None:
    await index.upsert(0, [point("a", 1.0), point("b", 0.0, 1.0), point("c", terms="boat boat")])
    await index.upsert(0, [point("d", 1.0, uid="another")])
    by_vector = {near.memory: near.cosine for near in await index.search(query(1.0), (0,))}
    assert by_vector == {"a": pytest.approx(1.0), "b": pytest.approx(0.0)}
    (by_words,) = await index.search(query(words="boat"), (0,))
    assert (by_words.memory, by_words.cosine, by_words.vector_of) == ("c", None, None)
    assert await found(index, query(1.0, limit=1)) == {"a"}


async def test_only_what_is_wanted_is_found(index: RedisIndex) -> None:
    points = [
        point("apollo", 1.0, project="apollo"),
        point("gemini", 1.0, project="gemini"),
        point("nobodys", 1.0),
        point("episode", 1.0, type="episodic"),
        point("archived", 1.0, current=False),
        point("over", 1.0, expires_at=999.0),
    ]
    await index.upsert(0, points)
    assert await found(index, query(1.0)) == {"apollo", "gemini", "nobodys", "episode"}
    assert await found(index, query(1.0, wanted=Wanted("apollo", None, 1_000.0))) == {
        "apollo", "nobodys", "episode",
    }  # fmt: skip
    typed = Wanted(None, frozenset({"episodic"}), 1_000.0)
    assert await found(index, query(1.0, wanted=typed)) == {"episode"}


async def test_a_replica_sees_what_another_wrote_changed_and_deleted(redis: Redis) -> None:
    ours, theirs = RedisIndex(redis), RedisIndex(redis)
    await ours.upsert(0, [point("a", 1.0), point("b", 0.0, 1.0)])
    assert await found(theirs, query(1.0)) == {"a", "b"}
    await ours.upsert(0, [point("c", 1.0), point("b", 1.0, current=False, written=2)])
    assert await found(theirs, query(1.0)) == {"a", "c"}
    await ours.upsert(0, [point("b", 1.0, written=3)])
    await ours.delete("u", ["a"])
    assert await found(theirs, query(1.0)) == {"b", "c"}
    await ours.delete_all("u", 3)
    await ours.upsert(0, [point("d", 1.0, written=4)])
    assert await found(theirs, query(1.0)) == {"d"}


async def test_whoever_comes_late_changes_nothing(index: RedisIndex) -> None:
    await index.upsert(0, [point("a", 1.0, written=5)])
    await index.upsert(0, [point("a", 1.0, written=4, current=False)])
    assert await found(index, query(1.0)) == {"a"}
    await index.delete_all("u", 4)
    assert await found(index, query(1.0)) == {"a"}
    await index.delete_all("u", 5)
    assert await found(index, query(1.0)) == set()


async def test_a_point_of_a_new_generation_leaves_the_old_one(index: RedisIndex) -> None:
    await index.upsert(0, [point("a", 1.0, terms="boat"), point("b", 1.0)])
    await index.upsert(1, [point("a", 0.0, 0.0, 1.0, terms="boat", written=2, vector_of=2)])
    assert await found(index, query(1.0)) == {"b"}
    assert await index.vectors(1, "u", ["a", "b"]) == {"a": (2, vector(0, 0, 1))}
    # Vectors of a model that is not the asker's are never compared; words are.
    (near,) = await index.search(query(1.0, words="boat"), (1,))
    assert (near.memory, near.cosine) == ("a", None)


async def test_many_points_are_read_and_let_go_again(redis: Redis) -> None:
    index = RedisIndex(redis, cache_bytes=1)
    await index.upsert(0, [point(f"m{n}", 1.0, n / 3_000, terms="t") for n in range(3_000)])
    assert len(await found(index, query(1.0, limit=50))) == 50
    await index.upsert(0, [point("other", 1.0, uid="v")])
    assert len(await index.search(replace(query(1.0), uid="v"), (0,))) == 1
    assert list(index._snapshots) == [("v", 0)]


async def test_without_redis_it_is_unavailable(index: RedisIndex, server: Server) -> None:
    await index.upsert(0, [point("a", 1.0)])
    server.kill()
    try:
        with pytest.raises(IndexUnavailable):
            await index.search(query(1.0), (0,))
    finally:
        server.start()
    assert await found(index, query(1.0)) == {"a"}


class Held(RedisIndex):
    """An index in which a search waits, when it has read what changed, until the test lets it go on."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.may_go_on: dict[str, asyncio.Event] = {}  # by the task's name

    def searching(self, name: str, asked: Query) -> asyncio.Task[list[Near]]:
        self.may_go_on[name] = asyncio.Event()
        return asyncio.create_task(self.search(asked, (0,)), name=name)

    async def _points(self, uid: str, generation: int, names: Sequence[str]) -> list[bytes | None]:
        values = await super()._points(uid, generation, names)
        task = asyncio.current_task()
        if task is not None and (gate := self.may_go_on.get(task.get_name())) is not None:
            await gate.wait()
        return values


async def test_a_search_that_was_overtaken_spoils_no_other(redis: Redis) -> None:
    """A snapshot grows in the room behind the last one. Were two made of one at once, whoever is late would
    write over what the other holds."""

    async def the_others_go_on() -> None:
        for _ in range(50):  # as many round trips as they need, and more
            await redis.call("PING")

    index = Held(redis)
    await index.upsert(0, [point("first", 1.0)])
    await found(index, query(1.0))
    await index.upsert(0, [point("second", 1.0)])
    await found(index, query(1.0))  # now there is room behind
    await index.upsert(0, [point("a", 0.0, 0.0, 1.0)])
    late = index.searching("late", query(0.0, 1.0))
    await the_others_go_on()
    await index.upsert(0, [point("b", 0.0, 1.0)])
    await index.upsert(0, [point("a", 1.0, 0.0, 1.0, written=2)])
    overtaking = asyncio.create_task(index.search(query(0.0, 1.0), (0,)))
    await the_others_go_on()
    await index.upsert(0, [point("c", 0.0, 1.0, 1.0)])
    following = index.searching("following", query(0.0, 1.0))
    await the_others_go_on()
    index.may_go_on["late"].set()
    await late
    index.may_go_on["following"].set()
    for search in (overtaking, following):
        cosines = {near.memory: near.cosine for near in await search}
        assert (cosines["b"], cosines["a"]) == (pytest.approx(1.0), pytest.approx(0.0))


async def test_what_is_written_anew_while_all_is_deleted_stays(
    index: RedisIndex, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come between the look at what there is and its deletion."""
    await index.upsert(0, [point("a", 1.0), point("b", 1.0)])
    script = redis.script
    newer = [point("a", 1.0, written=6)]

    async def late(source: str, keys: Sequence[str], *arguments: object) -> object:
        if newer:
            await index.upsert(0, [newer.pop()])
        return await script(source, keys, *arguments)

    monkeypatch.setattr(redis, "script", late)
    await index.delete_all("u", 5)
    assert await found(index, query(1.0)) == {"a"}
