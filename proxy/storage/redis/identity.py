"""Store imported memory ids, or ids of the user's own in their place: see own_ids."""

from dataclasses import replace

from proxy.domain.core import Memory, Scope
from proxy.domain.own_ids import own_id
from proxy.storage.redis.layout import storable
from proxy.storage.redis.rows import Rows


async def own(rows: Rows, memory: Memory) -> Memory:
    """Return the memory with ids, its own and that of what superseded it, that are nobody else's."""
    successor = memory.superseded_by
    return replace(
        memory,
        id=await _own(rows, memory.scope, memory.id),
        superseded_by=successor and await _own(rows, memory.scope, successor),
    )


async def _own(rows: Rows, scope: Scope, id_: str) -> str:
    return id_ if await rows.claim(storable(id_)) else own_id(scope, id_)
