"""The quota: its counters are exact, also among processes."""

import asyncio
import random

import pytest

from proxy.domain.core import Edit, Quota
from proxy.domain.errors import Conflict
from tests.storage.making import ANNA, BEN, contents, create, find, memory, of, store, supersede

ENGINES = ("sqlite", "postgres")


async def counters_equal_a_recount(stores):
    def read(tx):
        said = tx.execute("SELECT user, memories, content_bytes FROM scopes").fetchall()
        counted = tx.execute(
            "SELECT max(s.user), count(m.seq), coalesce(sum(length(CAST(m.content AS BLOB))), 0)"
            " FROM scopes s LEFT JOIN memories m ON m.owner = s.id GROUP BY s.id"
        ).fetchall()
        return sorted(said, key=str), sorted(counted, key=str)

    said, counted = await stores.database.read(read)
    assert said == counted


class TestQuota:
    async def test_the_counters_equal_a_recount(self, opened):
        stores = await opened(Quota(memories=8, content_bytes=120))
        dice = random.Random(7)
        for n in range(150):
            scope = dice.choice((ANNA, BEN))
            id_, text = (
                f"{scope.user}{dice.randrange(12)}",
                "日é x"[: dice.randrange(5)] * dice.randrange(9) + str(n),
            )
            change = dice.choice(
                [
                    create(text, scope, id=id_),
                    supersede(id_, text, scope),
                    Edit(memory(text, scope, id=id_), None),
                ]
            )
            match dice.randrange(8):
                case 0:
                    await stores.memories.forget(of(scope), id_, by="test")
                case 1 if n % 20 == 0:
                    await stores.memories.forget(of(scope), by="test")
                case _:
                    if await stores.memories.get(of(scope), id_) or not isinstance(change, Edit):
                        await store(stores.memories, change, scope=scope)
            await counters_equal_a_recount(stores)
            for each in (ANNA, BEN):
                stored = (await stores.memories.list(of(each, include_inactive=True), limit=99)).items
                assert len(stored) <= 8
                assert sum(len(m.content.encode()) for m in stored) <= 120

    @pytest.mark.parametrize("evict", [True, False])
    async def test_two_processes_together_never_pass_the_quota(self, opened, evict):
        limit = Quota(memories=6, content_bytes=200, evict=evict)
        both = [await opened(limit), await opened(limit)]

        async def write(stores, n):
            for attempt in range(100):
                try:
                    return await store(stores.memories, create(f"fact {n}", importance=n / 20))
                except Conflict:
                    await asyncio.sleep(0.001 * attempt)
            raise AssertionError("never got through")

        applied = await asyncio.gather(*(write(both[n % 2], n) for n in range(20)))
        assert (await both[0].memories.list(of(ANNA), limit=99)).total == 6
        assert sum(a.evicted + len(a.refused) for a in applied) == 14

    async def test_another_process_sees_that_a_memory_was_evicted(self, opened):
        limit = Quota(memories=2)
        here, there = await opened(limit), await opened(limit)
        await store(here.memories, create("tea a", importance=0.1), create("tea b"))
        assert len(await find(there.memories, "tea")) == 2  # its index is in use now
        await store(here.memories, create("tea c"))
        assert await contents(there.memories, "tea") == {"tea b", "tea c"}
        (hit,) = await find(there.memories, "tea", limit=1)
        assert hit.memory.content == "tea c"

    async def test_a_quota_that_was_lowered_refuses_growth_only(self, opened):
        stores = await opened(Quota())
        await store(stores.memories, *(create(f"fact {n}", id=f"f{n}") for n in range(5)))
        stores = await opened(Quota(memories=2, evict=False))
        assert (await store(stores.memories, create("new", id="n"))).refused == ("n",)
        assert (await store(stores.memories, supersede("f0", "new", id="n"))).refused == ()
        assert (await store(stores.memories, Edit(memory("edited", id="f1"), None))).refused == ()
        assert (await stores.memories.list(of(ANNA, include_inactive=True), limit=9)).total == 5

    async def test_what_an_eviction_and_a_refusal_did_is_logged_without_content(self, opened, monkeypatch):
        said = []
        monkeypatch.setattr(
            "proxy.telemetry.log.info", lambda event, **facts: said.append((event, facts)), raising=False
        )
        stores = await opened(Quota(memories=1, content_bytes=9))
        await store(stores.memories, create("one", id="a"))
        await store(stores.memories, create("two"), create("much too long"))
        assert ("memory.evicted", {"count": 1}) in said
        assert ("memory.refused", {"count": 1}) in said
