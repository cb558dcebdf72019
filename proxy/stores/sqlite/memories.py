"""The MemoryStore over SQLite: see ports.MemoryStore for what every method guarantees."""

import sqlite3
from collections.abc import Sequence

from proxy.domain import Change, Event, Forgotten, Hit, Job, Memory, MemoryFilter, Page, Scope, Search, Stamp
from proxy.errors import Conflict, NotFound
from proxy.ports import EmbeddingModel
from proxy.stores.sqlite import model, owners, queue, rows
from proxy.stores.sqlite.changes import Writer
from proxy.stores.sqlite.database import Database
from proxy.stores.sqlite.forget import Erased, forget
from proxy.stores.sqlite.index_cache import IndexCache
from proxy.stores.sqlite.row_cache import RowCache


class SqliteMemories:
    """Memories in the rows of one file, searched exactly in arrays of the user's own."""

    def __init__(self, database: Database, *, index_bytes: int, row_bytes: int) -> None:
        self._database = database
        self._indexes = IndexCache(index_bytes)
        self._rows = RowCache(row_bytes)

    async def stamp_model(self, embedding: EmbeddingModel) -> None:
        """Bind the store to the model whose vectors it holds. Raises WrongModel where it is another's."""
        await self._database.write(lambda tx: model.stamp(tx, embedding))

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        return await self._database.read(lambda tx: self._search(tx, scope, search))

    async def stamp(self, scope: Scope) -> Stamp:
        def work(tx: sqlite3.Connection) -> Stamp:
            owner = owners.find(tx, scope)
            return owner.stamp if owner else owners.NEVER_SEEN

        return await self._database.read(work)

    async def apply(
        self, scope: Scope, changes: Sequence[Change], *, expect: Stamp, done: Job | None = None
    ) -> None:
        def work(tx: sqlite3.Connection) -> None:
            owner = owners.ensure(tx, scope)
            if owner.stamp != expect:
                raise Conflict("the user's memories have changed meanwhile")
            if done is not None:
                queue.finish(tx, done)
            version = expect.version + 1
            writer = Writer(tx, owner.id, scope, version, model.dimension(tx))
            if sum(map(writer.apply, changes)):
                owners.set_version(tx, owner.id, version)

        await self._database.write(work)

    async def touch(self, scope: Scope, ids: Sequence[str], at: float) -> None:
        def work(tx: sqlite3.Connection) -> None:
            if owner := owners.find(tx, scope):
                rows.touch(tx, owner.id, ids, at)

        await self._database.write(work)

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        return await self._database.read(lambda tx: _get(tx, where, memory_id))

    async def list(self, where: MemoryFilter, *, limit: int, after: str | None = None) -> Page:
        return await self._database.read(lambda tx: _page(tx, where, limit, after))

    async def history(self, where: MemoryFilter, memory_id: str) -> Sequence[Event]:
        def work(tx: sqlite3.Connection) -> Sequence[Event]:
            condition, parameters = rows.conditions(where, inactive=True)
            found = tx.execute(
                "SELECT e.at, e.action, e.by, e.content FROM events e JOIN memories m ON m.seq = e.memory"
                f" JOIN scopes s ON s.id = m.owner WHERE {condition} AND m.id = :id ORDER BY e.id",
                {**parameters, "id": memory_id},
            )
            return [Event(*row) for row in found]

        return await self._database.read(work)

    async def forget(self, where: MemoryFilter, memory_id: str | None = None) -> Forgotten:
        def work(tx: sqlite3.Connection) -> Erased:
            return forget(tx, where, memory_id)

        erased = await self._database.write(work, purge=True)
        for owner in erased.owners:
            self._indexes.drop(owner)
            self._rows.drop(owner)
        return erased.counts

    def _search(self, tx: sqlite3.Connection, scope: Scope, search: Search) -> Sequence[Hit]:
        owner = owners.find(tx, scope)
        if owner is None:
            return []
        epoch = self._database.epoch
        found = self._indexes.current(tx, owner, epoch).search(scope.project, search)
        memories = self._rows.memories(tx, owner, epoch, [item.seq for item in found])
        # An index ahead of this transaction may name what the transaction cannot see yet.
        return [Hit(memories[item.seq], item.cosine, item.bm25) for item in found if item.seq in memories]


def _get(tx: sqlite3.Connection, where: MemoryFilter, memory_id: str) -> Memory | None:
    condition, parameters = rows.conditions(where, inactive=True)
    found = rows.memories_where(tx, f"{condition} AND m.id = :id LIMIT 1", {**parameters, "id": memory_id})
    return found[0][1] if found else None


def _page(tx: sqlite3.Connection, where: MemoryFilter, limit: int, after: str | None) -> Page:
    condition, parameters = rows.conditions(where, inactive=where.include_inactive)
    (total,) = tx.execute(
        f"SELECT count(*) FROM memories m JOIN scopes s ON s.id = m.owner WHERE {condition}", parameters
    ).fetchone()
    parameters |= {"limit": limit + 1, "before": _cursor(tx, where, after)}
    found = rows.memories_where(
        tx,
        f"{condition} AND (:before IS NULL OR m.seq < :before) ORDER BY m.seq DESC LIMIT :limit",
        parameters,
    )
    return Page(tuple(memory for _, memory in found[:limit]), total, has_more=len(found) > limit)


def _cursor(tx: sqlite3.Connection, where: MemoryFilter, after: str | None) -> int | None:
    """Return the seq of the memory `after`, also if it has left the list since the last page."""
    if after is None:
        return None
    row = tx.execute(
        "SELECT m.seq FROM memories m JOIN scopes s ON s.id = m.owner"
        " WHERE m.id = ? AND s.tenant = ? AND s.user = coalesce(?, s.user)",
        (after, where.tenant, where.user),
    ).fetchone()
    if row is None:
        raise NotFound("no memory has this id", param="after")
    return int(row[0])
