"""The way out of the Redis layout of earlier versions. `old_redis.jsonl` is a database that the last of them
wrote: `migrate_support.fill` and `fill_more` (below), with every key that they left behind."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage import Refused
from proxy.storage.postgres import PostgresStores
from proxy.storage.redis_migration import Moved, OldRedis, move
from proxy.storage.sql.stores import SqlStores
from proxy.storage.sqlite import SqliteStores
from tests import redis_server
from tests.migrate_support import QUESTIONS, alike, fill, opened
from tests.storage.making import NOW, create, find, of, store, vector
from tests.storage.talking import quote, talk

CARA = Scope("acme", "cara")
RECORDED = Path(__file__).parent / "old_redis.jsonl"


async def fill_more(stores: Any) -> None:
    """A user who forgot everything once, and came back; with a time zone and a message from before."""
    await store(stores.memories, create("erased with everything", CARA, id="wiped"), scope=CARA)
    await talk(stores.sessions, "erased as well", scope=CARA, session="s1")
    await stores.memories.forget(of(CARA), by="open")
    later = {"scope": CARA, "session": "s1", "timezone": "Asia/Tokyo", "said_at": NOW - 500.0}
    begun = await talk(stores.sessions, "back again", "welcome", **later)
    back = create("came back", CARA, id="back", vec=vector(1, 1), evidence=quote(begun, "back"))
    await store(stores.memories, back, scope=CARA)


@pytest.fixture
def client(redis):
    """The recorded database, in a real Redis."""
    with Redis.from_url(redis.url) as client:
        client.flushdb()
        load(client)
        yield client


def load(client: Any) -> None:
    """Write the recorded database."""
    for line in RECORDED.read_text("utf-8").splitlines():
        client.execute_command(*map(_argument, json.loads(line)))


def _argument(value: Any) -> Any:
    return b64decode(value["base64"]) if isinstance(value, dict) else value


@pytest.fixture
async def target(request, tmp_path):
    """An empty store: SQLite's, unless a test names another engine."""
    stores: SqliteStores | PostgresStores = SqliteStores(tmp_path / "new")
    if getattr(request, "param", "sqlite") == "postgres":
        stores = PostgresStores(request.getfixturevalue("server").new_database("ours"), connections=4)
    await stores.open()
    yield stores
    await stores.close()


@pytest.fixture
async def expected(tmp_path):
    """A store in which the same things happened."""
    stores = await opened(tmp_path / "same")
    await fill(stores)
    await stores.close()
    stores = await opened(tmp_path / "same")
    await fill_more(stores)
    yield stores
    await stores.close()


async def moved(redis: redis_server.Server, target: SqlStores) -> Moved:
    old = OldRedis(redis.url)
    try:
        return await target.database.write(lambda tx: move(tx, old, lambda *_: None))
    finally:
        old.close()


@pytest.mark.parametrize("target", ["sqlite", "postgres"], indirect=True)
async def test_the_store_answers_and_forgets_as_one_in_which_the_same_happened(
    client, redis, target, expected
):
    await moved(redis, target)
    for question in QUESTIONS:
        assert alike(await question(target)) == alike(await question(expected)), question


async def test_what_a_user_had_before_forgetting_everything_does_not_come_back(
    client, redis, target, expected
):
    uid = next(uid for uid, names in client.hgetall("memory-proxy:users").items() if b"cara" in names)
    before = f"memory-proxy:u:{uid.decode()}:memories"  # a crash may have left the old tables behind
    client.hset(before, "wiped", client.hget(before.replace(":memories", ".1:memories"), "back"))
    await moved(redis, target)
    for stores in (target, expected):
        page = await stores.memories.list(of(CARA, include_inactive=True), limit=9)
        (receipt,) = await stores.receipts.list("acme", "cara", limit=9)
        (again,) = await stores.sessions.recent(CARA, "s1", 9)
        (hit,) = await find(stores.memories, "", CARA, vec=vector(1, 1))
        assert [m.id for m in page.items] == ["back"]
        assert (receipt.counts.memories, receipt.counts.exchanges) == (1, 1)
        assert (again.said, again.timezone, again.dated) == ("back again", "Asia/Tokyo", NOW - 500.0)
        assert (hit.memory.id, hit.cosine) == ("back", pytest.approx(1.0))
        assert await stores.sessions.timezone(CARA) == "Asia/Tokyo"


async def test_nothing_is_copied_while_replicas_run_or_a_forget_or_a_row_is_incomplete(client, redis, target):
    seconds, _ = client.time()
    client.zadd("memory-proxy:instances", {"a": seconds - 1, "b": seconds - 100})
    with pytest.raises(Refused, match="1 replicas work"):
        await moved(redis, target)
    client.delete("memory-proxy:instances")
    (uid, *_) = client.hkeys("memory-proxy:users")
    client.hset(b"memory-proxy:u:" + uid + b":forgets", "rcpt_1", "{}")
    with pytest.raises(Refused, match="still being forgotten"):
        await moved(redis, target)
    client.hdel(b"memory-proxy:u:" + uid + b":forgets", "rcpt_1")
    (passages, *_) = client.keys("memory-proxy:u:*:passages:*")
    client.delete(passages)
    with pytest.raises(StoreUnavailable, match="incomplete"):
        await moved(redis, target)
    assert await target.keys.list() == []
    assert (await target.memories.list(of(Scope("acme", "anna")), limit=9)).items == ()
