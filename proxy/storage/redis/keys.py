"""The KeyStore over Redis: see ports.KeyStore for what every method guarantees."""

from base64 import b64decode, b64encode
from collections.abc import Sequence

from proxy.domain.errors import StoreUnavailable
from proxy.domain.oversight import Key
from proxy.storage.redis.layout import NOBODY, KeyRow, storable
from proxy.storage.redis.unit import Unit, Units

_TABLE = "api-keys"


class RedisKeys:
    """The keys of all replicas: one revoked anywhere is revoked everywhere at once."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def add(self, key: Key, digest: bytes) -> None:
        """As the port says. Raises StoreUnavailable where its id or its digest is another's."""

        async def work(unit: Unit) -> None:
            rows: dict[str, KeyRow] = await unit.table(_TABLE).all()
            if digest.hex() in rows or any(row["id"] == key.id for row in rows.values()):
                raise StoreUnavailable("there is a key of this id or digest")
            unit.table(_TABLE).put(digest.hex(), _row(key, unit.next()))

        await self._units.write(NOBODY, work)

    async def find(self, digest: bytes) -> Key | None:
        async def work(unit: Unit) -> Key | None:
            row: KeyRow | None = await unit.table(_TABLE).get(digest.hex())
            return _key(row) if row else None

        return await self._units.glance(NOBODY, work)

    async def list(self) -> Sequence[Key]:
        async def work(unit: Unit) -> Sequence[Key]:
            rows: dict[str, KeyRow] = await unit.table(_TABLE).all()
            return [_key(row) for row in sorted(rows.values(), key=lambda row: row["seq"], reverse=True)]

        return await self._units.glance(NOBODY, work)

    async def revoke(self, key_id: str, at: float) -> bool:
        async def work(unit: Unit) -> bool:
            unit.frees = True  # a key that got into wrong hands cannot wait
            rows: dict[str, KeyRow] = await unit.table(_TABLE).all()
            for digest, row in rows.items():
                if row["id"] == key_id and row["revoked_at"] is None:
                    # Its digest stays, so that the key is known as revoked; the upstream's is of no more use.
                    unit.table(_TABLE).put(digest, {**row, "revoked_at": at, "upstream_key": None})
                    return True
            return False

        return await self._units.write(NOBODY, work)


def _row(key: Key, seq: int) -> KeyRow:
    sealed = key.upstream_key
    return {
        "seq": seq,
        "id": key.id,
        "name": storable(key.name),
        "tenant": storable(key.tenant),
        "user": None if key.user is None else storable(key.user),
        "rights": sorted(key.rights),
        "upstream_key": None if sealed is None else b64encode(sealed).decode(),
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    }


def _key(row: KeyRow) -> Key:
    sealed = row["upstream_key"]
    return Key(
        id=row["id"],
        name=row["name"],
        tenant=row["tenant"],
        user=row["user"],
        rights=frozenset(row["rights"]),
        upstream_key=None if sealed is None else b64decode(sealed),
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
    )
