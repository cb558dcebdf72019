"""Imported memory ids: one that another user of the tenant already has is replaced by one of the user's own.

A call by id that names no user would otherwise meet two memories. Which id it becomes depends on nothing but
the user and the id, so that links between memories hold, and the importer learns nothing about others.
"""

from hashlib import blake2b

from proxy.domain.core import Scope


def own_id(scope: Scope, id_: str) -> str:
    """Return the id that the user has in place of another's; ever the same: what was imported once is known
    again when it is imported from the file, or moved into another store."""
    digest = blake2b(f"{scope.tenant}\0{scope.user}\0{id_}".encode(errors="replace"), digest_size=12)
    return f"mem_{digest.hexdigest()}"
