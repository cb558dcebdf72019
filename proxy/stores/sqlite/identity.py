"""Ids that come from outside: one that another user of the tenant has is replaced by one of the user's own.

A call by id that names no user would otherwise meet two memories. Which id it becomes depends on nothing but
the user and the id, so that links between memories hold, and the importer learns nothing about others.
"""

import sqlite3
from dataclasses import replace
from hashlib import blake2b

from proxy.domain import Memory, Scope
from proxy.stores.sqlite import rows

_ANOTHERS = """
    SELECT 1 FROM memories m JOIN scopes s ON s.id = m.owner
    WHERE m.id = :id AND s.tenant = :tenant AND m.owner <> :owner LIMIT 1
"""


def own(tx: sqlite3.Connection, owner: int, memory: Memory) -> Memory:
    """Return the memory with ids, its own and that of what superseded it, that are nobody else's."""
    successor = memory.superseded_by
    return replace(
        memory,
        id=_own(tx, owner, memory.scope, memory.id),
        superseded_by=successor and _own(tx, owner, memory.scope, successor),
    )


def _own(tx: sqlite3.Connection, owner: int, scope: Scope, id_: str) -> str:
    asked = {"id": rows.storable(id_), "tenant": scope.tenant, "owner": owner}
    return derived(scope, id_) if tx.execute(_ANOTHERS, asked).fetchone() else id_


def derived(scope: Scope, id_: str) -> str:
    """Return the id that the user has in place of another's."""
    digest = blake2b(f"{scope.tenant}\0{scope.user}\0{id_}".encode(errors="replace"), digest_size=12)
    return f"mem_{digest.hexdigest()}"
