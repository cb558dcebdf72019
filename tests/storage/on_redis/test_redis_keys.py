"""Keys over Redis, and that replicas share them."""

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.keys import RedisKeys
from proxy.storage.redis.unit import Units
from tests.storage.contract_keys import KeyContract, key
from tests.storage.making import NOW


@pytest.fixture
def keys(units: Units) -> RedisKeys:
    return RedisKeys(units)


class TestRedisKeys(KeyContract):
    """KeyStore over Redis."""


async def test_a_key_revoked_on_one_replica_is_revoked_on_all_at_once(redis: Redis, keys: RedisKeys) -> None:
    other = RedisKeys(Units(redis))
    await keys.add(key("k1"), b"d1")
    assert await other.revoke("k1", NOW)
    found = await keys.find(b"d1")
    assert found is not None
    assert (found.revoked_at, found.upstream_key) == (NOW, None)
    assert not await keys.revoke("k1", NOW + 1)


@pytest.mark.parametrize(("id_", "digest"), [("k1", b"d2"), ("k2", b"d1")])
async def test_no_key_takes_anothers_place(keys: RedisKeys, id_: str, digest: bytes) -> None:
    await keys.add(key("k1", name="first"), b"d1")
    with pytest.raises(StoreUnavailable):
        await keys.add(key(id_, name="second"), digest)
    assert [each.name for each in await keys.list()] == ["first"]
