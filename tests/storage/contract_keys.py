"""What every KeyStore does. Subclass it where the fixture `keys` gives a backend."""

from dataclasses import replace

from proxy.domain.ports import Key
from tests.storage.making import NOW


def key(id_="k1", **fields):
    defaults = {"name": "laptop", "tenant": "acme", "user": "anna", "rights": frozenset({"chat", "memory"}),
                "upstream_key": b"sealed\x00\xff", "created_at": NOW}  # fmt: skip
    return Key(id=id_, **{**defaults, **fields})


class KeyContract:
    async def test_a_key_is_found_by_its_digest_as_it_was_stored(self, keys):
        stored = key()
        await keys.add(stored, b"d1")
        assert await keys.find(b"d1") == stored
        assert await keys.find(b"d2") is None

    async def test_a_key_of_a_whole_tenant_has_no_user(self, keys):
        stored = key(user=None, upstream_key=None, rights=frozenset())
        await keys.add(stored, b"d1")
        assert await keys.find(b"d1") == stored

    async def test_all_keys_are_listed_the_newest_first(self, keys):
        assert list(await keys.list()) == []
        for n in range(3):
            await keys.add(key(f"k{n}"), b"d%d" % n)
        assert [k.id for k in await keys.list()] == ["k2", "k1", "k0"]

    async def test_a_revoked_key_is_known_as_such(self, keys):
        await keys.add(key("k1"), b"d1")
        await keys.add(key("k2"), b"d2")
        assert await keys.revoke("k1", NOW + 5)
        found = await keys.find(b"d1")
        assert found == replace(key("k1"), revoked_at=NOW + 5, upstream_key=None)
        assert (await keys.find(b"d2")).revoked_at is None

    async def test_a_key_is_revoked_once(self, keys):
        await keys.add(key("k1"), b"d1")
        await keys.revoke("k1", NOW + 5)
        assert not await keys.revoke("k1", NOW + 9)
        assert not await keys.revoke("absent", NOW)
        assert (await keys.find(b"d1")).revoked_at == NOW + 5
