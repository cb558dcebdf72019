"""The ConversationStore over Redis: see ports.ConversationStore for what every method guarantees."""

from collections.abc import Collection, Sequence

from proxy.domain.core import Scope
from proxy.domain.errors import StoreUnavailable
from proxy.domain.stored_responses import Conversation, ItemPage, StoredResponse
from proxy.storage.redis.layout import ConversationRow, ItemRow, storable
from proxy.storage.redis.table import Table
from proxy.storage.redis.unit import Unit, Units

Items = Sequence[tuple[str, bytes]]
USED = "used-conversations"


class RedisConversations:
    """Conversations of all replicas."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def create(self, conversation: Conversation, items: Items) -> None:
        """As the port says. Raises StoreUnavailable for one that exists."""
        id_, project = storable(conversation.id), _project(conversation.scope)

        async def work(unit: Unit) -> None:
            if await unit.table("conversations").get(id_) is not None:
                raise StoreUnavailable("there is a conversation of this id")
            row: ConversationRow = {
                "project": project,
                "metadata": conversation.metadata.decode(),
                "created_at": conversation.created_at,
                "items": [],
                "used_at": conversation.used_at,
                "size": 0,
            }
            _append(unit, id_, row, items, project=project, session=None, at=conversation.used_at)

        await self._units.write(conversation.scope, work)

    async def get(self, scope: Scope, conversation_id: str) -> Conversation | None:
        id_ = storable(conversation_id)

        async def work(unit: Unit) -> Conversation | None:
            row: ConversationRow | None = await unit.table("conversations").get(id_)
            if row is None:
                return None
            owned = Scope(scope.tenant, scope.user, row["project"])
            return Conversation(
                id=id_,
                scope=owned,
                metadata=row["metadata"].encode(),
                created_at=row["created_at"],
                used_at=row.get("used_at"),
                size=row.get("size", 0),
            )

        return await self._units.glance(scope, work)

    async def update(
        self, scope: Scope, conversation_id: str, metadata: bytes, *, at: float | None = None
    ) -> bool:
        id_ = storable(conversation_id)

        async def work(unit: Unit) -> bool:
            row: ConversationRow | None = await unit.table("conversations").get(id_)
            if row is None:
                return False
            _put(unit, id_, {**row, "metadata": metadata.decode()}, at)
            return True

        return await self._units.write(scope, work)

    async def delete(self, scope: Scope, conversation_id: str) -> bool:
        id_ = storable(conversation_id)

        async def work(unit: Unit) -> bool:
            found = await unit.table("conversations").get(id_) is not None
            if found:
                drop(unit, id_)
            return found

        return await self._units.write(scope, work)

    async def add(
        self,
        scope: Scope,
        conversation_id: str,
        items: Items,
        *,
        generation: int,
        session_id: str | None = None,
        only_new: bool = False,
        at: float | None = None,
    ) -> bool:
        """As the port says; an id that the conversation holds already is not added again. `session_id`:
        where the items were said, so that a forget of what was said there finds them."""
        id_ = storable(conversation_id)

        async def work(unit: Unit) -> bool:
            row: ConversationRow | None = await unit.table("conversations").get(id_)
            if row is None or unit.stamp.generation != generation:
                return False
            if only_new and not {storable(name) for name, _ in items}.isdisjoint(row["items"]):
                return False
            session = None if session_id is None else storable(session_id)
            _append(unit, id_, row, items, project=_project(scope), session=session, at=at)
            return True

        return await self._units.write(scope, work)

    async def items(
        self, scope: Scope, conversation_id: str, *, limit: int, after: str | None, ascending: bool
    ) -> ItemPage | None:
        id_ = storable(conversation_id)

        async def work(unit: Unit) -> ItemPage | None:
            row: ConversationRow | None = await unit.table("conversations").get(id_)
            if row is None:
                return None
            ids = row["items"] if ascending else row["items"][::-1]
            if after is not None:
                if storable(after) not in ids:
                    return None
                ids = ids[ids.index(storable(after)) + 1 :]
            rows: dict[str, ItemRow] = await _items(unit, id_).many(ids[:limit])
            found = tuple(each["item"].encode() for each in rows.values())
            return ItemPage(found, has_more=len(ids) > limit)

        return await self._units.read(scope, work)

    async def item(self, scope: Scope, conversation_id: str, item_id: str) -> bytes | None:
        async def work(unit: Unit) -> bytes | None:
            row: ItemRow | None = await _items(unit, storable(conversation_id)).get(storable(item_id))
            return row["item"].encode() if row else None

        return await self._units.glance(scope, work)

    async def remove(self, scope: Scope, conversation_id: str, item_id: str) -> bool:
        id_, item = storable(conversation_id), storable(item_id)

        async def work(unit: Unit) -> bool:
            row: ConversationRow | None = await unit.table("conversations").get(id_)
            if row is None or item not in row["items"]:
                return False
            await drop_items(unit, id_, (item,))
            return True

        return await self._units.write(scope, work)


async def append_said(unit: Unit, response: StoredResponse, items: Items) -> None:
    """Append the items to the conversation that the response was made in, if it is there."""
    if response.conversation_id is None:
        return
    id_ = storable(response.conversation_id)
    row: ConversationRow | None = await unit.table("conversations").get(id_)
    if row is not None:
        session = storable(response.session_id) if response.session_id else None
        project, at = _project(response.scope), response.created_at
        _append(unit, id_, row, items, project=project, session=session, at=at)


async def expire(unit: Unit, ids: Sequence[str], unused_since: float) -> int:
    """Erase those of the conversations that were last used before then; returns how many."""
    rows: dict[str, ConversationRow] = await unit.table("conversations").many(ids)
    gone = [id_ for id_ in ids if id_ not in rows or (rows[id_].get("used_at") or 0.0) <= unused_since]
    for id_ in gone:
        drop(unit, id_)
    return sum(id_ in rows for id_ in gone)


def drop(unit: Unit, conversation_id: str) -> None:
    """Erase a conversation with its items."""
    unit.table("conversations").drop(conversation_id)
    unit.share("ZREM", unit.redis.key(USED), f"{unit.uid} {conversation_id}")
    _items(unit, conversation_id).clear()


async def drop_items(unit: Unit, conversation_id: str, item_ids: Collection[str]) -> None:
    """Erase items of a conversation that there is."""
    row: ConversationRow = await unit.table("conversations").get(conversation_id)
    left = [each for each in row["items"] if each not in item_ids]
    dropped: dict[str, ItemRow] = await _items(unit, conversation_id).many(item_ids)
    size = row.get("size", 0) - sum(_size(each) for each in dropped.values())
    unit.table("conversations").put(conversation_id, {**row, "items": left, "size": max(size, 0)})
    for each in item_ids:
        _items(unit, conversation_id).drop(each)


def _append(
    unit: Unit,
    id_: str,
    row: ConversationRow,
    items: Items,
    *,
    project: str | None,
    session: str | None,
    at: float | None,
) -> None:
    known, size = dict.fromkeys(row["items"]), row.get("size", 0)
    for name, item in items:
        if (item_id := storable(name)) in known:
            continue
        known[item_id] = None
        new: ItemRow = {"project": project, "session": session, "item": item.decode()}
        _items(unit, id_).put(item_id, new)
        size += _size(new)
    _put(unit, id_, {**row, "items": list(known), "size": size}, at)


def _put(unit: Unit, id_: str, row: ConversationRow, at: float | None) -> None:
    """Write the row; `at`: it was used then, unless it is one that does not expire."""
    before = row.get("used_at", 0.0)  # absent: of an earlier version
    if at is not None and before is not None:
        row["used_at"] = used_at = max(before, at)
        unit.share("ZADD", unit.redis.key(USED), used_at, f"{unit.uid} {id_}")
    unit.table("conversations").put(id_, row)


def _size(row: ItemRow) -> int:
    return len(row["item"].encode())


def _items(unit: Unit, conversation_id: str) -> Table:
    return unit.table(f"items:{conversation_id}")


def _project(scope: Scope) -> str | None:
    return None if scope.project is None else storable(scope.project)
