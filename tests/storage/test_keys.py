"""KeyStore."""

from dataclasses import replace

from proxy.domain.ports import Key
from tests.storage.making import NOW

ENGINES = ("sqlite", "postgres")


def key(id_="k1", **fields):
    defaults = {"name": "laptop", "tenant": "acme", "user": "anna", "rights": frozenset({"chat", "memory"}),
                "upstream_key": b"sealed\x00\xff", "created_at": NOW}  # fmt: skip
    return Key(id=id_, **{**defaults, **fields})


class TestKey:
    async def test_a_key_is_found_by_its_digest_as_it_was_stored(self, keys):
        stored = key()
        await keys.add(stored, b"d1")
        assert await keys.find(b"d1") == stored
        assert await keys.find(b"d2") is None

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
