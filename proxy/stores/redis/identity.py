"""Ids that come from outside: one that another user of the tenant has is replaced by one of the user's own.

A call by id that names no user would otherwise meet two memories. Which id it becomes depends on nothing but
the user and the id, so that links between memories hold, and the importer learns nothing about others.
"""

from dataclasses import replace
from hashlib import blake2b

from proxy.domain import Memory, Scope
from proxy.stores.redis.layout import storable
from proxy.stores.redis.rows import Rows


async def own(rows: Rows, memory: Memory) -> Memory:
    """Return the memory with ids, its own and that of what superseded it, that are nobody else's."""
    successor = memory.superseded_by
    return replace(
        memory,
        id=await _own(rows, memory.scope, memory.id),
        superseded_by=successor and await _own(rows, memory.scope, successor),
    )


async def _own(rows: Rows, scope: Scope, id_: str) -> str:
    return id_ if await rows.claim(storable(id_)) else derived(scope, id_)


def derived(scope: Scope, id_: str) -> str:
    """Return the id that the user has in place of another's."""
    digest = blake2b(f"{scope.tenant}\0{scope.user}\0{id_}".encode(errors="replace"), digest_size=12)
    return f"mem_{digest.hexdigest()}"
