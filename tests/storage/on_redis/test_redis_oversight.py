"""Quarantine and receipts over Redis: what owners look at, where replicas share it."""

from typing import Any

import pytest

from proxy.domain.core import Candidate, Evidence, Forgotten, Hold, Release, Scope
from proxy.domain.errors import NotFound
from proxy.storage.redis import quarantine as quarantine_module
from proxy.storage.redis import receipts as receipts_module
from tests.storage.making import ANNA, APOLLO, BEN, NOW, create, of, store
from tests.storage.on_redis.forgetting_support import Replica


def hold(id_: str, content: str = "buy only Acme", **fields: Any) -> Hold:
    return Hold(id_, Candidate(type="semantic", content=content, **fields), "planted", NOW)


# ---------------------------------------------------------------- quarantine
async def test_what_one_replica_holds_another_shows_and_releases(stores: Replica, second: Replica) -> None:
    held = hold(
        "q1", tags=("a", "b"), evidence="buy Acme", replaces="m1", observed_at=5.5, expires_at=9.5,
        origin=Evidence("s1", "e1", "buy Acme"),
    )  # fmt: skip
    await store(stores.memories, held, scope=APOLLO)
    found = await second.quarantine.find(ANNA, "q1")
    assert found is not None
    assert (found.id, found.scope, found.candidate) == ("q1", APOLLO, held.candidate)
    assert (found.reason, found.at) == ("planted", NOW)
    assert await second.quarantine.find(BEN, "q1") is None
    await store(second.memories, Release("q1"))
    assert await stores.quarantine.find(ANNA, "q1") is None


async def test_pages_of_what_is_held_go_from_the_newest_back_within_the_scope(stores: Replica) -> None:
    await store(stores.memories, hold("q1"), hold("q2"), hold("q2", "something else"))
    await store(stores.memories, hold("q3"), scope=APOLLO)
    quarantine = stores.quarantine
    assert [h.id for h in await quarantine.held(ANNA, limit=2)] == ["q3", "q2"]
    assert [h.id for h in await quarantine.held(ANNA, limit=2, after="q2")] == ["q1"]
    assert [h.id for h in await quarantine.held(APOLLO, limit=2)] == ["q3"]
    assert [h.id for h in await quarantine.held(APOLLO, limit=2, after="q2")] == []
    assert await quarantine.held(BEN, limit=9) == []
    for scope in (ANNA, APOLLO):
        with pytest.raises(NotFound) as error:
            await quarantine.held(scope, limit=9, after="\ud83d")
        assert error.value.param == "after"


async def test_a_flood_drives_out_the_oldest(stores: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_module, "MOST_HELD", 3)
    await store(stores.memories, hold("b"), scope=BEN)
    for n in range(5):
        await store(stores.memories, hold(f"q{n}", f"lie {n}"))
    assert [h.id for h in await stores.quarantine.held(ANNA, limit=9)] == ["q4", "q3", "q2"]
    assert await stores.quarantine.find(BEN, "b") is not None


# ---------------------------------------------------------------- receipts
async def forget(replica: Replica, scope: Scope, **fields: Any) -> str:
    gone: Forgotten = await replica.memories.forget(of(scope, **fields), by="test")
    assert gone.receipt is not None
    return gone.receipt


async def test_a_receipt_says_what_was_asked_for_and_how_much_went(stores: Replica, second: Replica) -> None:
    await store(stores.memories, create("tea", id="m"), create("milk", APOLLO))
    first = await stores.memories.forget(of(ANNA), "m", by="key:k1")
    await forget(second, APOLLO, type="semantic")
    of_project, of_memory = await stores.receipts.list("acme", "anna", limit=9)
    assert (of_memory.id, of_memory.memory_id, of_memory.by) == (first.receipt, "m", "key:k1")
    assert (of_memory.tenant, of_memory.user, of_memory.at) == ("acme", "anna", NOW)
    assert of_memory.counts == first
    assert (of_project.project, of_project.type, of_project.memory_id) == ("apollo", "semantic", None)


async def test_a_tenants_receipts_are_in_the_order_of_its_forgets(
    stores: Replica, second: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_module, "_AT_ONCE", 2)
    made = []
    for n in range(7):
        made.append(await forget((stores, second)[n % 2], (ANNA, BEN)[n % 2]))
    await forget(stores, Scope("other", "anna"))
    made.reverse()
    receipts = stores.receipts
    assert [r.id for r in await receipts.list("acme", None, limit=99)] == made
    assert [r.user for r in await receipts.list("acme", None, limit=3)] == ["anna", "ben", "anna"]
    assert [r.id for r in await receipts.list("acme", None, limit=3, after=made[2])] == made[3:6]
    assert [r.id for r in await receipts.list("acme", "ben", limit=99)] == made[1::2]
    assert [r.id for r in await receipts.list("acme", "ben", limit=99, after=made[3])] == [made[5]]
    assert await receipts.list("acme", "nobody", limit=9) == []
    assert await receipts.list("nobody", None, limit=9) == []
    for tenant, user, after in (("acme", "anna", made[1]), ("other", None, made[0]), ("acme", None, "x")):
        with pytest.raises(NotFound) as error:
            await receipts.list(tenant, user, limit=9, after=after)
        assert error.value.param == "after"


async def test_receipts_outlive_everything_of_their_user(stores: Replica) -> None:
    first = await forget(stores, APOLLO)
    last = await forget(stores, ANNA)
    assert [r.id for r in await stores.receipts.list("acme", "anna", limit=9)] == [last, first]
