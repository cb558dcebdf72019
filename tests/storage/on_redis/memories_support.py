"""The memories of one replica or more over one Redis and one embedded Qdrant."""

from collections import Counter
from typing import Any

from qdrant_client import AsyncQdrantClient

from proxy.domain.oversight import Quota
from proxy.storage.qdrant.collection import Collection
from proxy.storage.qdrant.index import QdrantIndex
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.memories import UNLIMITED, RedisMemories
from proxy.storage.redis.rows import key_of
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.redis.weakest import member
from proxy.storage.redis.words import is_counted


def local_index(client: AsyncQdrantClient) -> QdrantIndex:
    """An index in this process: it scans every point, so that its time says nothing."""
    return QdrantIndex(client, Collection(name="t"), search_timeout_s=10.0)


def replica(redis: Redis, client: AsyncQdrantClient, quota: Quota = UNLIMITED) -> RedisMemories:
    """One replica's memories."""
    return RedisMemories(Units(redis), local_index(client), quota=quota)


async def agreement(redis: Redis, unit: Unit) -> None:
    """Hold everything that follows from the user's memories to what the memories themselves say."""
    memories = await unit.table("memories").all()
    current = {id_: row for id_, row in memories.items() if is_counted(row)}
    groups = await unit.table("groups").all()
    words: dict[str, dict[str, int]] = {}
    counted: dict[str, tuple[int, int]] = {}
    for row in current.values():
        name = f"{row['type']}\0" + ("" if row["project"] is None else "1" + row["project"])
        number, terms = groups[name][0], row["terms"].split()
        memories_of, length = counted.get(name, (0, 0))
        counted[name] = (memories_of + 1, length + len(terms))
        for term in set(terms):
            of_term = words.setdefault(term, {})
            of_term[number] = of_term.get(number, 0) + 1
    assert {name: tuple(group[1:]) for name, group in groups.items()} == counted
    assert await unit.table("words").all() == words
    assert await unit.table("said").all() == {key_of(row): id_ for id_, row in current.items()}
    order = [
        (int(seq), id_) for rows in (await unit.table("order").all()).values() for seq, id_ in rows.items()
    ]
    assert sorted(order) == sorted((row["seq"], id_) for id_, row in memories.items())
    successions = {(s, id_) for s, ids in (await unit.table("successions").all()).items() for id_ in ids}
    assert successions == {(r["superseded_by"], id_) for id_, r in memories.items() if r["superseded_by"]}
    lapsing = {
        id_ for name, day in (await unit.table("lapsing").all()).items() if name != "days" for id_ in day
    }
    assert lapsing == {id_ for id_, row in current.items() if row["expires_at"] is not None}
    assert set(await unit.table("events").all()) == set(memories)
    weakest = [each.decode() for each in await redis.call("ZRANGE", unit.key("weakest"), 0, -1)]
    assert weakest == sorted(member(id_, row) for id_, row in memories.items())
    assert (unit.number("memories"), unit.number("content_bytes")) == (
        len(memories),
        sum(len(row["content"].encode()) for row in memories.values()),
    )
    for kind, rows in (
        ("of", memories),
        ("in", {i: r for i, r in memories.items() if not r["superseded_by"]}),
    ):
        held = {name: n for name, n in unit.numbers(f"{kind}:").items() if n}
        assert held == Counter(f"{kind}:{row['generation']}" for row in rows.values())


async def points_of(client: AsyncQdrantClient) -> dict[str, dict[str, Any]]:
    """The payloads of all points, by memory id."""
    found = {}
    for each in (await client.get_collections()).collections:
        points, _ = await client.scroll(each.name, limit=10_000)
        found |= {point.payload["memory"]: point.payload for point in points if point.payload}
    return found
