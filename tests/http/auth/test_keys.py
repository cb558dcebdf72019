"""Our own API keys: what is stored of them, and the cache in front of the store."""

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.errors import StoreError, StoreUnavailable
from proxy.domain.ports import Key
from proxy.http.auth import keys
from proxy.http.auth.keys import (
    ASKING_S,
    FRESH_S,
    GRACE_S,
    BrokenSeal,
    KeyRing,
    digest_of,
    is_key,
    new_id,
    new_key,
    seal,
    unseal,
)
from proxy.storage.sqlite import SqliteStores
from tests.http.auth.minting import mint


def test_keys_are_long_random_and_known_by_their_shape():
    made = {new_key() for _ in range(1_000)}
    assert len(made) == len({new_id() for _ in range(1_000)}) == 1_000
    assert all(is_key(key) and len(key) >= 43 and key.startswith("mp-") for key in made)
    shapes = ("", "mp-", "sk-" + "a" * 43, "mp-" + "a" * 39, "mp-" + "a" * 43 + "\n", "mp-" + "a" * 200)
    assert not any(map(is_key, (*shapes, "mp-" + "é" * 43, "MP-" + "a" * 43)))


def test_only_the_key_itself_opens_what_was_sealed_with_it():
    key, other = new_key(), new_key()
    sealed = seal(key, "sk-upstream")
    assert unseal(key, sealed) == "sk-upstream"
    assert sealed != seal(key, "sk-upstream"), "a nonce is used once"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for broken in (sealed[:-1], sealed[1:], b"", sealed[:5], b"\x02" + sealed[1:], changed):
        with pytest.raises(BrokenSeal):
            unseal(key, broken)
    for wrong in (other, digest_of(key).hex()):
        with pytest.raises(BrokenSeal):
            unseal(wrong, sealed)
    stored = digest_of(key) + sealed
    assert key[3:].encode() not in stored
    assert b"sk-upstream" not in stored


# ---------------------------------------------------------------- the cache
LATER_S = FRESH_S + 0.01


class Watched:
    """The real store, which counts questions and can be unreachable, or slow."""

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


class Ring:
    """A ring over a watched store, and a clock that the test moves."""

    def __init__(self, stores: SqliteStores) -> None:
        self.stored, self.store, self.now = stores.keys, Watched(stores), 1_000.0
        self.ring = KeyRing(self.store, clock=lambda: self.now, limit=10)

    async def accepts(self, key: str) -> bool:
        return await self.ring.find(key) is not None


@pytest.fixture
def it(stores):
    return Ring(stores)


async def test_a_key_is_looked_up_again_only_after_a_while(it):
    key, id_ = await mint(it.stored, user="zoe", upstream_key="sk-up")
    unknown = new_key()
    for _ in range(5):
        found = await it.ring.find(key)
        assert found is not None
        assert (found.key.id, found.key.user, found.upstream_key) == (id_, "zoe", "sk-up")
        assert not await it.accepts(unknown)
    assert it.store.asked == 2
    it.now += LATER_S
    assert await it.accepts(key)
    assert it.store.asked == 3


async def test_a_revoked_key_is_refused_within_a_second_for_good(it):
    assert FRESH_S + ASKING_S < 1
    key, id_ = await mint(it.stored)
    assert await it.accepts(key)
    assert await it.stored.revoke(id_, 2.0)
    for _ in range(2):
        it.now += LATER_S
        assert not await it.accepts(key)
    it.store.down = True
    it.now += LATER_S
    with pytest.raises(StoreError):
        await it.accepts(key)


async def test_made_up_keys_take_bounded_room_and_never_that_of_valid_ones(it):
    key, _ = await mint(it.stored)
    assert await it.accepts(key)
    assert not any([await it.accepts(new_key()) for _ in range(50)])
    assert len(it.ring._refused) == 10
    it.store.down = True
    it.now += LATER_S
    assert await it.accepts(key)


async def test_while_the_store_is_unreachable_only_keys_that_were_valid_lately_work(it):
    key, _ = await mint(it.stored)
    other, _ = await mint(it.stored)
    unknown = new_key()
    assert await it.accepts(key)
    assert not await it.accepts(unknown)
    it.store.down = True
    it.now += GRACE_S - 1
    assert await it.accepts(key)
    it.now += 2
    for refused in (key, other, unknown):
        with pytest.raises(StoreError):
            await it.accepts(refused)
    it.store.down = False
    assert await it.accepts(key)


async def test_a_store_that_hangs_counts_as_unreachable(it, monkeypatch):
    key, _ = await mint(it.stored)
    assert await it.accepts(key)
    monkeypatch.setattr(keys, "PATIENCE_S", 0.01)  # from here on: on a busy machine a look takes longer
    monkeypatch.setattr(keys, "FIRST_PATIENCE_S", 0.01)
    it.store.held = asyncio.Event()
    it.now += LATER_S
    assert await it.accepts(key)
    with pytest.raises(StoreError):
        await it.accepts(new_key())


async def test_a_key_whose_upstream_key_cannot_be_opened_does_not_borrow_the_server_s(it):
    key, _ = await mint(it.stored)
    (made,) = await it.stored.list()
    swapped = new_key()
    await it.stored.add(replace(made, id="x", upstream_key=seal(key, "sk-up")), digest_of(swapped))
    assert not await it.accepts(swapped)
