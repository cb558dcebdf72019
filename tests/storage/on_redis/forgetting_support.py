"""Stores of replicas over one Redis that also holds the vectors, and all that is written in it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from redis.asyncio import Redis as Client

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis import clearing, forgetting
from proxy.storage.redis.chains import RedisChains
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.conversations import RedisConversations
from proxy.storage.redis.documents import RedisDocuments
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.jobs import RedisJobs
from proxy.storage.redis.memories import RedisMemories
from proxy.storage.redis.notes import RedisNotes
from proxy.storage.redis.passages import RedisPassages
from proxy.storage.redis.points import RedisIndex
from proxy.storage.redis.quarantine import RedisQuarantine
from proxy.storage.redis.receipts import RedisReceipts
from proxy.storage.redis.sessions import RedisSessions
from proxy.storage.redis.unit import Units, key_of

PREFIX = "t:"
_READ = {
    b"hash": ("HGETALL",),
    b"string": ("GET",),
    b"set": ("SMEMBERS",),
    b"list": ("LRANGE", 0, -1),
    b"zset": ("ZRANGE", 0, -1),
}


@dataclass
class Replica:
    """One process's stores."""

    redis: Redis
    units: Units
    instance: Instance
    memories: Any
    sessions: RedisSessions
    jobs: RedisJobs
    notes: RedisNotes
    chains: RedisChains
    conversations: RedisConversations
    quarantine: RedisQuarantine
    receipts: RedisReceipts
    documents: RedisDocuments
    passages: RedisPassages

    @property
    def vectors(self) -> Any:
        return self.memories.vectors

    async def close(self) -> None:
        with suppress(StoreUnavailable):
            await self.instance.close()
        await self.passages.close()
        await self.redis.close()


async def opened(url: str, index: Any = None) -> Replica:
    """Open a replica with connections of its own."""
    made = over(Redis(Client.from_url(url), prefix=PREFIX), index)
    await made.instance.start()
    return made


def over(redis: Redis, index: Any = None) -> Replica:
    """Return a replica's stores, not started yet."""
    units, instance = Units(redis), Instance(redis)
    memories = RedisMemories(units, index or RedisIndex(redis))
    passages = RedisPassages(units, lambda: memories.embedding, index_bytes=2**20)
    memories.forgetting.also_let_go(passages.let_go)
    return Replica(
        redis=redis,
        units=units,
        instance=instance,
        memories=memories,
        sessions=RedisSessions(units, instance),
        jobs=RedisJobs(units, instance),
        notes=RedisNotes(units),
        chains=RedisChains(units),
        conversations=RedisConversations(units),
        quarantine=RedisQuarantine(units),
        receipts=RedisReceipts(units),
        documents=RedisDocuments(units, memories.forgetting, lambda: memories.embedding),
        passages=passages,
    )


async def emptied(url: str) -> None:
    """Leave nothing in the database."""
    async with Client.from_url(url) as client:
        await client.flushdb()


async def written(redis: Redis) -> bytes:
    """Return everything that is in Redis now, names of keys and all."""
    keys = await redis.call("KEYS", "*")
    types = await redis.pipeline([("TYPE", key) for key in keys])
    asked = [_READ[type_] for type_ in types]
    answers = await redis.pipeline(
        [(verb, key, *rest) for key, (verb, *rest) in zip(keys, asked, strict=True)]
    )
    return b"\n".join([*keys, *(part for answer in answers for part in _flat(answer))])


def _flat(answer: Any) -> list[bytes]:
    if isinstance(answer, bytes):
        return [answer]
    items = [*answer.keys(), *answer.values()] if isinstance(answer, dict) else list(answer or ())
    return [item if isinstance(item, bytes) else str(item).encode() for item in items]


# ---------------------------------------------------------------- forgets that stop or break off
class Gate:
    """Stops a forget before each of its portions until it may go on."""

    def __init__(self, stores: Replica) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        before_portions(stores, self.wait)

    async def wait(self) -> None:
        self.reached.set()
        await self.go_on.wait()


def break_off(stores: Replica, portions: int = 0) -> None:
    """Let the next forget of this replica end after its first commit and so many portions."""
    left = iter(range(portions))

    async def die() -> None:
        if next(left, None) is None:
            raise RuntimeError("the process dies here")

    before_portions(stores, die)


def before_portions(stores: Replica, check: Callable[[], Awaitable[None]]) -> None:
    units = Units(stores.redis)
    write = units.write

    async def checked(scope: Scope, work: Any) -> Any:
        if work.func in (forgetting._erase_portion, clearing._portion, forgetting._finish):
            await check()
        return await write(scope, work)

    units.write = checked
    stores.memories.forgetting._units = units


async def standing(redis: Redis) -> int:
    """Return how many forgets are under way."""
    return int(await redis.call("ZCARD", redis.key("forgets")))


async def lapse(redis: Redis) -> None:
    """To the others, whoever is at a forget was last seen long ago."""
    for member in await redis.call("ZRANGE", redis.key("forgets"), 0, -1):
        user, _, token = member.decode().partition(" ")
        table = key_of(redis, user, "forgets")
        row = orjson.loads(await redis.call("HGET", table, token))
        await redis.call("HSET", table, token, orjson.dumps({**row, "until": 0.0}))
        await redis.call("ZADD", redis.key("forgets"), 0, member)
