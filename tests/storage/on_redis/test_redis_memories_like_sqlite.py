"""The same changes, searches and lists over Redis and over SQLite: nobody can tell them apart."""

import random
from functools import partial

import pytest
from qdrant_client import AsyncQdrantClient

from proxy.domain.core import Confirm, Create, Edit, Event, Evidence, Search, Supersede
from proxy.domain.errors import Duplicate, NotFound
from proxy.domain.oversight import Quota
from proxy.storage.redis.unit import Units
from proxy.storage.sqlite import SqliteStores
from tests.storage.making import ANNA, NOW, memory, of, vector
from tests.storage.on_redis.memories_support import agreement, points_of, replica

WORDS = "tea cocoa Rome Oslo jazz Zürich 東京 boat-47 budget".split()
PROJECTS = (None, None, "apollo", "zeus")
TYPES = ("semantic", "preference", "episodic")


def some_text(dice):
    return " ".join(dice.choices(WORDS, k=dice.randint(1, 4)))


def some_memory(dice, at, **fields):
    """A memory like others, so that ids and statements meet again."""
    scope = type(ANNA)(ANNA.tenant, ANNA.user, dice.choice(PROJECTS))
    past = dice.random() < 0.15
    return memory(
        some_text(dice), scope, type=dice.choice(TYPES), created_at=at, updated_at=at,
        valid_from=at + dice.randint(-30, 5), importance=dice.choice((0.2, 0.5, 0.9)),
        expires_at=at + dice.choice((-5, 20, 100_000)) if dice.random() < 0.3 else None,
        archived=dice.random() < 0.1, superseded_by=f"i{dice.randrange(9)}" if past else None,
        valid_to=at + dice.randint(-20, 20) if past else None, tags=("a",),
        evidence=(Evidence("s", f"e{dice.randrange(3)}", "so"),), **fields,
    )  # fmt: skip


def some_change(dice, at):
    id_ = f"i{dice.randrange(14)}"
    vec = vector(*(dice.choice((-1, 0, 1, 2)) for _ in range(2)), 0.5) if dice.random() < 0.7 else None
    new = some_memory(dice, at, id=id_)
    match dice.randrange(10):
        case 0 | 1 | 2:
            return Create(new, vec)
        case 3:
            return Create(new, vec, (Event(at, "imported", "api", "x"),))
        case 4 | 5 | 6:
            return Supersede(f"i{dice.randrange(14)}", new, vec)
        case 7:
            return Confirm(id_, at, dice.random(), (Evidence("s", "e1", "so"),))
        case _:
            return Edit(new, vec)


async def outcome(memories, changes):
    """What became of the changes, or which error."""
    try:
        return await memories.apply(ANNA, changes, expect=await memories.stamp(ANNA))
    except (NotFound, Duplicate) as error:
        return type(error).__name__, error.message, error.param, error.code


def told(hits):
    """Memories, cosines and scores by words, by id: hits come in no order."""
    cosines = {h.memory.id: h.cosine for h in hits if h.cosine is not None}
    return {h.memory.id: h.memory for h in hits}, cosines, {h.memory.id: h.bm25 for h in hits}


async def everything(memories, dice, at):
    """All that a client could see."""
    where = of(ANNA, include_inactive=True)
    page = await memories.list(where, limit=99)
    past = await memories.history(of(ANNA), [m.id for m in page.items])
    current = [
        await memories.list(of(ANNA, type=t, text=text), limit=3, oldest_first=first)
        for t in (None, "semantic") for text in (None, "TEA") for first in (True, False)
    ]  # fmt: skip
    searches = [
        Search(
            vector=vector(1, dice.random()) if dice.random() < 0.6 else None,
            terms=tuple(some_text(dice).casefold().split()), limit=99, now=at + dice.choice((0, 50)),
            types=frozenset({"semantic", "episodic"}) if dice.random() < 0.3 else None,
        ) for _ in range(4)
    ]  # fmt: skip
    found = [
        told(await memories.search(type(ANNA)(ANNA.tenant, ANNA.user, project), search))
        for search in searches for project in (None, "apollo")
    ]  # fmt: skip
    events = {name: list(of_one) for name, of_one in past.items()}
    return (page, events, *current, await memories.stamp(ANNA)), found


@pytest.mark.parametrize(
    "quota",
    [Quota(), Quota(memories=7, content_bytes=150), Quota(memories=7, content_bytes=150, evict=False)],
    ids=["no quota", "evict", "refuse"],
)
@pytest.mark.parametrize("seed", range(3))
async def test_the_same_changes_lead_to_the_same(tmp_path, redis, quota, seed):
    dice = random.Random(f"{quota} {seed}")
    sqlite = SqliteStores(tmp_path, quota=quota)
    await sqlite.open()
    client = AsyncQdrantClient(":memory:")
    ours, theirs = replica(redis, client, quota), sqlite.memories
    for step in range(30):
        at = NOW + step
        changes = [some_change(dice, at) for _ in range(dice.choice((1, 1, 2, 4)))]
        assert await outcome(ours, changes) == await outcome(theirs, changes)
        if dice.random() < 0.3:
            for memories in (ours, theirs):
                await memories.touch(ANNA, ["i1", "i2", "nobody"], at)
        look = dice.random()
        kept, found = await everything(ours, random.Random(look), at)
        expected, sought = await everything(theirs, random.Random(look), at)
        assert kept == expected
        for ours_found, theirs_found in zip(found, sought, strict=True):
            assert ours_found[0] == theirs_found[0]
            for seen, exact in zip(ours_found[1:], theirs_found[1:], strict=True):
                assert seen == pytest.approx(exact, abs=1e-4)  # 32 bits on either side
    await Units(redis).read(ANNA, partial(agreement, redis))
    current = (await ours.list(of(ANNA), limit=99)).items
    assert {m.id for m in current} <= set(await points_of(client))
    await sqlite.close()
    await client.close()
