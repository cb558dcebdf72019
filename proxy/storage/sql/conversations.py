"""The ConversationStore over SQL: see ports.ConversationStore for what every method guarantees."""

from collections.abc import Sequence
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.stored_responses import Conversation, ItemPage, StoredResponse
from proxy.storage.sql import owners, rows
from proxy.storage.sql.connection import Connection, Database

_THE_ONE = """
    conversations c JOIN scopes s ON s.id = c.owner
    WHERE s.tenant = :tenant AND s.user = :user AND c.id = :id
"""
_ITEM = f"conversation = (SELECT c.seq FROM {_THE_ONE}) AND id = :item"
_BEYOND_ALL = 2**63 - 1
_EXPIRE_AT_ONCE = 20  # conversations of a transaction, with all of their items: other writers wait
_USED = "UPDATE conversations SET used_at = max(used_at, :at) WHERE seq = :seq AND used_at IS NOT NULL"
_GET = f"""
    SELECT c.id, c.project, c.metadata, c.created_at, c.used_at,
           (SELECT sum(length(i.item)) FROM conversation_items i WHERE i.conversation = c.seq)
    FROM {_THE_ONE}
"""


class SqlConversations:
    """Conversations of all processes that share the file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, conversation: Conversation, items: Sequence[tuple[str, bytes]]) -> None:
        def work(tx: Connection) -> None:
            c = conversation
            (seq,) = tx.execute(
                "INSERT INTO conversations (id, owner, project, metadata, created_at, used_at)"
                " VALUES (?, ?, ?, ?, ?, ?) RETURNING seq",
                (c.id, owners.ensure(tx, c.scope).id, c.scope.project, c.metadata, c.created_at, c.used_at),
            ).fetchone()
            _append(tx, seq, items, project=c.scope.project, session=None)

        await self._database.write(work)

    async def get(self, scope: Scope, conversation_id: str) -> Conversation | None:
        parameters = _named(scope, conversation_id)
        row = await self._database.read(lambda tx: tx.execute(_GET, parameters).fetchone())
        if row is None:
            return None
        id_, project, metadata, created_at, used_at, size = row
        return Conversation(
            id=id_,
            scope=Scope(scope.tenant, scope.user, project),
            metadata=metadata,
            created_at=created_at,
            used_at=used_at,
            size=size or 0,
        )

    async def update(
        self, scope: Scope, conversation_id: str, metadata: bytes, *, at: float | None = None
    ) -> bool:
        change = (
            "UPDATE conversations SET metadata = :metadata, "
            "used_at = CASE WHEN used_at IS NULL THEN NULL ELSE max(used_at, coalesce(:at, used_at)) END"
            f" WHERE seq = (SELECT c.seq FROM {_THE_ONE})"
        )
        return await self._change(
            scope, change, _named(scope, conversation_id) | {"metadata": metadata, "at": at}
        )

    async def delete(self, scope: Scope, conversation_id: str) -> bool:
        change = f"DELETE FROM conversations WHERE seq = (SELECT c.seq FROM {_THE_ONE})"
        return await self._change(scope, change, _named(scope, conversation_id), purge=True)

    async def add(
        self,
        scope: Scope,
        conversation_id: str,
        items: Sequence[tuple[str, bytes]],
        *,
        generation: int,
        session_id: str | None = None,
        only_new: bool = False,
        at: float | None = None,
    ) -> bool:
        """As the port says; an id that the conversation holds already is not added again. `session_id`:
        where the items were said, so that a forget of what was said there finds them."""

        def work(tx: Connection) -> bool:
            owner, seq = owners.lock(tx, scope), _seq(tx, _named(scope, conversation_id))
            if owner is None or owner.stamp.generation != generation or seq is None:
                return False
            if only_new and _holds_any(tx, seq, items):
                return False
            _append(tx, seq, items, project=scope.project, session=session_id)
            if at is not None:
                tx.execute(_USED, {"seq": seq, "at": at})
            return True

        return await self._database.write(work)

    async def items(
        self, scope: Scope, conversation_id: str, *, limit: int, after: str | None, ascending: bool
    ) -> ItemPage | None:
        return await self._database.read(
            lambda tx: _items(tx, _named(scope, conversation_id), limit, after, ascending)
        )

    async def item(self, scope: Scope, conversation_id: str, item_id: str) -> bytes | None:
        query = f"SELECT item FROM conversation_items WHERE {_ITEM}"
        parameters = _named(scope, conversation_id) | {"item": rows.storable(item_id)}
        row = await self._database.read(lambda tx: tx.execute(query, parameters).fetchone())
        return row[0] if row else None

    async def remove(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        parameters = _named(scope, conversation_id) | {"item": rows.storable(item_id)}
        return await self._change(
            scope, f"DELETE FROM conversation_items WHERE {_ITEM}", parameters, purge=True
        )

    async def _change(
        self, scope: Scope, statement: str, parameters: dict[str, Any], *, purge: bool = False
    ) -> bool:
        """Run one statement; return whether it found its row."""

        def work(tx: Connection) -> bool:
            owners.lock(tx, scope)
            return tx.execute(statement, parameters).rowcount > 0

        return await self._database.write(work, purge=purge)


def append_said(tx: Connection, response: StoredResponse, items: Sequence[tuple[str, bytes]]) -> None:
    """Append the items to the conversation that the response was made in, if it is there."""
    scope = response.scope
    if response.conversation_id is None:
        return
    if (seq := _seq(tx, _named(scope, response.conversation_id))) is not None:
        _append(tx, seq, items, project=scope.project, session=response.session_id or None)
        tx.execute(_USED, {"seq": seq, "at": response.created_at})


async def expire(database: Database, unused_since: float) -> int:
    """Delete the conversations that were last used before then, with their items; returns how many."""
    old = "FROM conversations WHERE used_at <= ? ORDER BY used_at LIMIT ?"
    these = (unused_since, _EXPIRE_AT_ONCE)

    def work(tx: Connection) -> int:
        owners.lock_all(tx, f"SELECT owner {old}", these)
        return tx.execute(f"DELETE FROM conversations WHERE seq IN (SELECT seq {old})", these).rowcount

    total = 0
    while True:
        some = await database.write(work, purge=True)
        total += some
        if some < _EXPIRE_AT_ONCE:
            return total


def _named(scope: Scope, conversation_id: str) -> dict[str, Any]:
    return {"tenant": scope.tenant, "user": scope.user, "id": rows.storable(conversation_id)}


def _seq(tx: Connection, named: dict[str, Any]) -> int | None:
    row = tx.execute(f"SELECT c.seq FROM {_THE_ONE}", named).fetchone()
    return int(row[0]) if row else None


def _holds_any(tx: Connection, conversation: int, items: Sequence[tuple[str, bytes]]) -> bool:
    ids = rows.as_json([rows.storable(id_) for id_, _ in items])
    (held,) = tx.execute(
        "SELECT EXISTS (SELECT 1 FROM conversation_items WHERE conversation = ?"
        " AND id IN (SELECT value FROM json_each(?)))",
        (conversation, ids),
    ).fetchone()
    return bool(held)


def _append(
    tx: Connection,
    conversation: int,
    items: Sequence[tuple[str, bytes]],
    *,
    project: str | None,
    session: str | None,
) -> None:
    tx.executemany(
        "INSERT INTO conversation_items (conversation, id, project, session, item) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (conversation, id) DO NOTHING",
        [(conversation, rows.storable(id_), project, session, item) for id_, item in items],
    )


def _items(
    tx: Connection, named: dict[str, Any], limit: int, after: str | None, ascending: bool
) -> ItemPage | None:
    conversation = _seq(tx, named)
    if conversation is None:
        return None
    start = 0 if ascending else _BEYOND_ALL
    if after is not None:
        row = tx.execute(
            "SELECT seq FROM conversation_items WHERE conversation = ? AND id = ?",
            (conversation, rows.storable(after)),
        ).fetchone()
        if row is None:
            return None
        (start,) = row
    rest = "seq > :start ORDER BY seq ASC" if ascending else "seq < :start ORDER BY seq DESC"
    found = tx.execute(
        f"SELECT item FROM conversation_items WHERE conversation = :conversation AND {rest} LIMIT :limit",
        {"conversation": conversation, "start": start, "limit": limit + 1},
    ).fetchall()
    return ItemPage(tuple(item for (item,) in found[:limit]), has_more=len(found) > limit)
