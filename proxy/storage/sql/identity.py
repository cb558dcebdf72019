"""Store imported memory ids, or ids of the user's own in their place: see own_ids."""

from dataclasses import replace

from proxy.domain.core import Memory, Scope
from proxy.domain.own_ids import own_id
from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection

_ANOTHERS = """
    SELECT 1 FROM memories m JOIN scopes s ON s.id = m.owner
    WHERE m.id = :id AND s.tenant = :tenant AND m.owner <> :owner LIMIT 1
"""


def own(tx: Connection, owner: int, memory: Memory) -> Memory:
    """Return the memory with ids, its own and that of what superseded it, that are nobody else's."""
    successor = memory.superseded_by
    return replace(
        memory,
        id=_own(tx, owner, memory.scope, memory.id),
        superseded_by=successor and _own(tx, owner, memory.scope, successor),
    )


def _own(tx: Connection, owner: int, scope: Scope, id_: str) -> str:
    asked = {"id": rows.storable(id_), "tenant": scope.tenant, "owner": owner}
    return own_id(scope, id_) if tx.execute(_ANOTHERS, asked).fetchone() else id_
