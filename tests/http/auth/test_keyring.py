"""Keys that were looked up a moment ago."""

import asyncio
from collections.abc import Sequence

import pytest

from proxy.domain.errors import StoreError, StoreUnavailable
from proxy.domain.ports import Key
from proxy.http.auth import keys
from proxy.http.auth.keys import ASKING_S, FRESH_S, GRACE_S, KeyRing, new_key
from proxy.storage.sqlite.stores import SqliteStores
from proxy.telemetry import REMIND_S
from tests.http.auth.minting import mint
from tests.storage.recording import recorded

LATER_S = FRESH_S + 0.01


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """The real store, that counts questions and can be out of reach, or slow."""

    def __init__(self, stores: SqliteStores) -> None:
        self._keys = stores.keys
        self.asked = 0
        self.down = False
        self.held: asyncio.Event | None = None

    async def find(self, digest: bytes) -> Key | None:
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise StoreUnavailable("down")
        return await self._keys.find(digest)

    async def add(self, key: Key, digest: bytes) -> None:
        await self._keys.add(key, digest)

    async def list(self) -> Sequence[Key]:
        return await self._keys.list()

    async def revoke(self, key_id: str, at: float) -> bool:
        return await self._keys.revoke(key_id, at)


class Ring:
    """A ring over a watched store and a clock that the test moves."""

    def __init__(self, stores: SqliteStores, limit: int = 100) -> None:
        self.store, self.clock = Watched(stores), Clock()
        self.ring = KeyRing(self.store, clock=self.clock, limit=limit)

    async def lets_in(self, key: str) -> bool:
        return await self.ring.find(key) is not None


@pytest.fixture
def it(stores: SqliteStores) -> Ring:
    return Ring(stores)


async def test_a_key_is_looked_up_once_in_a_while(it: Ring) -> None:
    key, id_ = await mint(it.store, user="zoe", upstream_key="sk-up")
    for _ in range(5):
        found = await it.ring.find(key)
        assert found is not None
        assert (found.key.id, found.key.user, found.upstream_key) == (id_, "zoe", "sk-up")
    assert it.store.asked == 1
    it.clock.now += LATER_S
    assert await it.lets_in(key)
    assert it.store.asked == 2


async def test_a_revoked_key_is_refused_within_a_second_and_a_new_one_works_within_a_second(it: Ring) -> None:
    assert FRESH_S + ASKING_S < 1
    key, id_ = await mint(it.store)
    assert await it.lets_in(key)
    assert await it.store.revoke(id_, 2.0)
    it.clock.now += LATER_S
    assert not await it.lets_in(key)
    it.clock.now += LATER_S
    assert not await it.lets_in(key), "for good"


async def test_an_unknown_key_is_not_looked_up_again_and_again(it: Ring) -> None:
    unknown = new_key()
    for _ in range(5):
        assert not await it.lets_in(unknown)
    assert it.store.asked == 1


async def test_made_up_keys_take_a_bounded_place_and_never_that_of_valid_ones(stores: SqliteStores) -> None:
    it = Ring(stores, limit=10)
    key, _ = await mint(it.store)
    assert await it.lets_in(key)
    for _ in range(50):
        assert not await it.lets_in(new_key())
    assert len(it.ring._refused) == 10
    it.store.down = True
    it.clock.now += LATER_S
    assert await it.lets_in(key)


async def test_with_the_store_out_of_reach_only_keys_that_were_valid_lately_work(it: Ring) -> None:
    key, _ = await mint(it.store)
    other, _ = await mint(it.store)
    unknown = new_key()
    assert await it.lets_in(key)
    assert not await it.lets_in(unknown)
    it.store.down = True
    it.clock.now += GRACE_S - 1
    assert await it.lets_in(key)
    for nobody in (other, unknown):
        with pytest.raises(StoreError):
            await it.lets_in(nobody)
    it.clock.now += 2
    with pytest.raises(StoreError):
        await it.lets_in(key)
    it.store.down = False
    assert await it.lets_in(key)


async def test_keys_that_go_on_without_the_store_are_logged_once_a_minute(
    it: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [(await mint(it.store))[0] for _ in range(2)]
    for key in keys:
        assert await it.lets_in(key)
    lines = recorded(monkeypatch, lambda facts: facts)
    it.store.down, began = True, it.clock.now
    for second in range(2, round(REMIND_S) + 3, 2):
        it.clock.now = began + second
        for key in keys:
            assert await it.lets_in(key)
    down = {"error": "StoreUnavailable"}
    assert lines == [
        ("identity.store_unavailable", down),
        ("identity.store_unavailable", {**down, "left_out": 59}),
    ]


async def test_a_revoked_key_does_not_come_back_when_the_store_goes(it: Ring) -> None:
    key, id_ = await mint(it.store)
    assert await it.lets_in(key)
    await it.store.revoke(id_, 2.0)
    it.clock.now += LATER_S
    assert not await it.lets_in(key)
    it.store.down = True
    it.clock.now += LATER_S
    with pytest.raises(StoreError):
        await it.lets_in(key)


async def test_a_store_that_hangs_is_a_store_out_of_reach(it: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = await mint(it.store)
    assert await it.lets_in(key)
    monkeypatch.setattr(keys, "PATIENCE_S", 0.01)  # from here on: on a busy machine a look takes longer
    monkeypatch.setattr(keys, "FIRST_PATIENCE_S", 0.01)
    it.store.held = asyncio.Event()
    it.clock.now += LATER_S
    assert await it.lets_in(key)
    with pytest.raises(StoreError):
        await it.lets_in(new_key())


async def test_while_one_request_asks_the_others_do_not_wait(it: Ring) -> None:
    key, _ = await mint(it.store)
    assert await it.lets_in(key)
    it.clock.now += LATER_S
    it.store.held = asyncio.Event()
    asking = asyncio.create_task(it.lets_in(key))
    await asyncio.sleep(0)
    assert await it.lets_in(key)
    assert it.store.asked == 2
    it.store.held.set()
    assert await asking


async def test_a_key_whose_upstream_key_cannot_be_opened_does_not_borrow_the_servers(it: Ring) -> None:
    from dataclasses import replace

    from proxy.http.auth.keys import digest_of, seal

    key, _ = await mint(it.store)
    (made,) = await it.store.list()
    swapped = new_key()
    await it.store.add(replace(made, id="x", upstream_key=seal(key, "sk-up")), digest_of(swapped))
    assert not await it.lets_in(swapped)
