"""The KeyStore over SQL: see ports.KeyStore for what every method guarantees."""

import json
from collections.abc import Sequence
from typing import Any

from proxy.domain.oversight import Key
from proxy.storage.damage import legible
from proxy.storage.sql.connection import Connection, Database

_KEY = "SELECT id, name, tenant, user, rights, upstream_key, created_at, revoked_at FROM keys"


class SqlKeys:
    """The keys of all processes that share the file: one revoked anywhere is revoked everywhere at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: Key, digest: bytes) -> None:
        def work(tx: Connection) -> None:
            tx.execute(
                "INSERT INTO keys"
                " (id, digest, name, tenant, user, rights, upstream_key, created_at, revoked_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (key.id, digest, key.name, key.tenant, key.user, json.dumps(sorted(key.rights)),
                 key.upstream_key, key.created_at, key.revoked_at),
            )  # fmt: skip

        await self._database.write(work)

    async def find(self, digest: bytes) -> Key | None:
        def work(tx: Connection) -> Key | None:
            row = tx.execute(f"{_KEY} WHERE digest = ?", (digest,)).fetchone()
            return _read(row) if row else None

        return await self._database.read(work)

    async def list(self) -> Sequence[Key]:
        def work(tx: Connection) -> Sequence[Key]:
            return [_read(row) for row in tx.execute(f"{_KEY} ORDER BY seq DESC")]

        return await self._database.read(work)

    async def revoke(self, key_id: str, at: float) -> bool:
        def work(tx: Connection) -> bool:
            # Its digest stays, so that the key is known as revoked; the upstream's is of no more use.
            done = tx.execute(
                "UPDATE keys SET revoked_at = ?, upstream_key = NULL WHERE id = ? AND revoked_at IS NULL",
                (at, key_id),
            )
            return done.rowcount > 0

        return await self._database.write(work)


def _read(row: tuple[Any, ...]) -> Key:
    id_, name, tenant, user, rights, upstream_key, created_at, revoked_at = row
    with legible():
        allowed = frozenset(json.loads(rights))
    return Key(
        id=id_, name=name, tenant=tenant, user=user, rights=allowed,
        upstream_key=upstream_key, created_at=created_at, revoked_at=revoked_at,
    )  # fmt: skip
