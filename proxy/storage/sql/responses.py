"""The ChainStore and the ConversationStore over SQL: see ports.py for what every method guarantees.

A response that its owner deleted leaves a row without content: a background response still under way
cannot store itself again, and a chain passes over the gap. A response that has expired is hidden from `get`
at once, but its row stays while a living one continues it: a chain in use does not lose its beginning."""

from collections.abc import Sequence
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.responses import Chain, Conversation, ItemPage, StoredResponse
from proxy.storage.sql import rows, sessions
from proxy.storage.sql.database import (
    BEYOND_ALL,
    Connection,
    Store,
    column,
    purges,
    reads,
    value,
    writes,
)
from proxy.storage.sql.rows import FORGOTTEN

Items = Sequence[tuple[str, bytes]]
"""Ids, and the items as JSON."""

# ---------------------------------------------------------------- conversations
_CONVERSATION = """
    conversations c JOIN scopes s ON s.id = c.owner
    WHERE s.tenant = :tenant AND s.user = :user AND c.id = :id"""
_ITEM = f"conversation = (SELECT c.seq FROM {_CONVERSATION}) AND id = :item"
_THESE = rows.seqs_in(":seqs")
_CONVERSATIONS_AT_ONCE = 20  # conversations of a transaction, with all of their items: other writers wait
_USED = "UPDATE conversations SET used_at = max(used_at, :at) WHERE seq = :seq AND used_at IS NOT NULL"
_GET = f"""
    SELECT c.id, s.tenant, s.user, c.project, c.metadata, c.created_at, c.used_at, coalesce(
               (SELECT sum(length(i.item)) FROM conversation_items i WHERE i.conversation = c.seq), 0) AS size
    FROM {_CONVERSATION}"""


class SqlConversations(Store):
    """Conversations of all processes that share the file."""

    @writes
    def create(self, tx: Connection, conversation: Conversation, items: Items) -> None:
        c, owner = conversation, rows.ensure_owner(tx, conversation.scope).id
        seq = rows.insert(
            tx, "conversations", "RETURNING seq", id=c.id, owner=owner, project=c.scope.project,
            metadata=c.metadata, created_at=c.created_at, used_at=c.used_at,
        )  # fmt: skip
        _append(tx, seq, items, project=c.scope.project, session=None)

    @reads
    def get(self, tx: Connection, scope: Scope, conversation_id: str) -> Conversation | None:
        found = rows.records(tx, _GET, rows.named(scope, id=rows.storable(conversation_id)))
        return next((Conversation(scope=rows.scope_in(row), **row) for row in found), None)

    @writes
    def update(
        self, tx: Connection, scope: Scope, conversation_id: str, metadata: bytes, *, at: float | None = None
    ) -> bool:
        rows.lock_owner(tx, scope)
        change = f"""
            UPDATE conversations SET metadata = :metadata,
            used_at = CASE WHEN used_at IS NULL THEN NULL ELSE max(used_at, coalesce(:at, used_at)) END
            WHERE seq = (SELECT c.seq FROM {_CONVERSATION})"""
        asked = rows.named(scope, id=rows.storable(conversation_id), metadata=metadata, at=at)
        return tx.execute(change, asked).rowcount > 0

    @purges
    def delete(self, tx: Connection, scope: Scope, conversation_id: str) -> bool:
        rows.lock_owner(tx, scope)
        these = f"DELETE FROM conversations WHERE seq = (SELECT c.seq FROM {_CONVERSATION})"
        return tx.execute(these, rows.named(scope, id=rows.storable(conversation_id))).rowcount > 0

    @writes
    def add(
        self, tx: Connection, scope: Scope, conversation_id: str, items: Items, *,
        generation: int, session_id: str | None = None, only_new: bool = False, at: float | None = None,
    ) -> bool:  # fmt: skip
        """As the port says; an id that the conversation holds already is not added again. `session_id`:
        where the items were said, so that a forget of what was said there finds them."""
        owner, seq = rows.lock_owner(tx, scope), _seq(tx, scope, conversation_id)
        if owner is None or owner.stamp.generation != generation or seq is None:
            return False
        ids = rows.as_json(rows.storable(id_) for id_, _ in items)
        held = "conversation = ? AND id IN (SELECT value FROM json_each(?))"
        if only_new and value(tx, f"SELECT 1 FROM conversation_items WHERE {held} LIMIT 1", (seq, ids)):
            return False
        _append(tx, seq, items, project=scope.project, session=session_id)
        if at is not None:
            tx.execute(_USED, {"seq": seq, "at": at})
        return True

    @reads
    def items(
        self, tx: Connection, scope: Scope, conversation_id: str, *,
        limit: int, after: str | None, ascending: bool,
    ) -> ItemPage | None:  # fmt: skip
        conversation = _seq(tx, scope, conversation_id)
        if conversation is None:
            return None
        start = 0 if ascending else BEYOND_ALL
        if after is not None:
            query = "SELECT seq FROM conversation_items WHERE conversation = ? AND id = ?"
            if (start := value(tx, query, (conversation, rows.storable(after)))) is None:
                return None
        rest = "seq > :start ORDER BY seq ASC" if ascending else "seq < :start ORDER BY seq DESC"
        found = column(
            tx,
            f"SELECT item FROM conversation_items WHERE conversation = :conversation AND {rest} LIMIT :limit",
            {"conversation": conversation, "start": start, "limit": limit + 1},
        )
        return ItemPage(found[:limit], has_more=len(found) > limit)

    @reads
    def item(self, tx: Connection, scope: Scope, conversation_id: str, item_id: str) -> bytes | None:
        asked = rows.named(scope, id=rows.storable(conversation_id), item=rows.storable(item_id))
        found: bytes | None = value(tx, f"SELECT item FROM conversation_items WHERE {_ITEM}", asked)
        return found

    @purges
    def remove(self, tx: Connection, scope: Scope, conversation_id: str, item_id: str) -> bool:
        rows.lock_owner(tx, scope)
        asked = rows.named(scope, id=rows.storable(conversation_id), item=rows.storable(item_id))
        return tx.execute(f"DELETE FROM conversation_items WHERE {_ITEM}", asked).rowcount > 0


def _seq(tx: Connection, scope: Scope, conversation_id: str) -> int | None:
    named = rows.named(scope, id=rows.storable(conversation_id))
    seq: int | None = value(tx, f"SELECT c.seq FROM {_CONVERSATION}", named)
    return seq


def _append(
    tx: Connection, conversation: int, items: Items, *, project: str | None, session: str | None
) -> None:
    tx.executemany(
        "INSERT INTO conversation_items (conversation, id, project, session, item) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (conversation, id) DO NOTHING",
        [(conversation, rows.storable(id_), project, session, item) for id_, item in items],
    )


# ---------------------------------------------------------------- stored responses
_COLUMNS = """
    r.id, r.project, r.session AS session_id, r.previous_id, r.conversation_id, r.response, r.input_items,
    r.created_at, r.expires_at"""
_RESPONSE = """
    stored_responses r JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id AND r.response IS NOT NULL"""
_ALIVE = f"{_RESPONSE} AND (r.expires_at IS NULL OR r.expires_at > :now)"
_CHAIN = f"""
    WITH RECURSIVE chain (depth, seq, owner, previous_id) AS (
        SELECT 1, r.seq, r.owner, r.previous_id FROM {_ALIVE}
        UNION ALL
        SELECT chain.depth + 1, r.seq, r.owner, r.previous_id
        FROM chain JOIN stored_responses r ON r.owner = chain.owner AND r.id = chain.previous_id
        WHERE chain.depth < :limit
    )"""
# Without the bodies: how large they are is known from their rows.
_SIZE_OF_CHAIN = f"""
    {_CHAIN}
    SELECT count(*), sum(length(r.response) + length(r.input_items)),
           (SELECT previous_id FROM chain ORDER BY depth DESC LIMIT 1)
    FROM chain JOIN stored_responses r ON r.seq = chain.seq"""
_WHOLE_CHAIN = f"""
    {_CHAIN}
    SELECT {_COLUMNS} FROM chain JOIN stored_responses r ON r.seq = chain.seq
    WHERE r.response IS NOT NULL ORDER BY chain.depth DESC"""
_SAVE = """
    INSERT INTO stored_responses (id, owner, project, session, previous_id, conversation_id, created_at,
                                  expires_at, recalled, response, input_items)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, id) DO UPDATE SET
        project = excluded.project, session = excluded.session, previous_id = excluded.previous_id,
        conversation_id = excluded.conversation_id, created_at = excluded.created_at,
        expires_at = excluded.expires_at, response = excluded.response, input_items = excluded.input_items,
        -- What the model was shown once, it was shown: a later save may not know of it.
        recalled = iif(excluded.recalled = '[]', stored_responses.recalled, excluded.recalled)
    WHERE stored_responses.response IS NOT NULL"""
# `needed`: expired ones that a living one continues, directly or through others.
_EXPIRED = """
    WITH RECURSIVE needed (seq, owner, previous_id) AS (
        SELECT old.seq, old.owner, old.previous_id
        FROM stored_responses old JOIN stored_responses r ON r.owner = old.owner AND r.previous_id = old.id
        WHERE old.expires_at <= :now AND (r.expires_at IS NULL OR r.expires_at > :now)
        UNION
        SELECT r.seq, r.owner, r.previous_id
        FROM needed JOIN stored_responses r ON r.owner = needed.owner AND r.id = needed.previous_id
    )
    SELECT seq FROM stored_responses WHERE expires_at <= :now AND seq NOT IN (SELECT seq FROM needed)"""
# It may have been saved again since, or continued by a request that was under way.
_EXPIRE = f"""
    DELETE FROM stored_responses AS old
    WHERE seq IN {_THESE} AND expires_at <= :now AND NOT EXISTS (
        SELECT 1 FROM stored_responses r WHERE r.owner = old.owner AND r.previous_id = old.id
        AND (r.expires_at IS NULL OR r.expires_at > :now))"""
# Responses and conversations of a user that are beyond the bytes, counted from the newest.
_BEYOND = """
    SELECT kind, seq FROM (
        SELECT kind, seq, sum(bytes) OVER newest AS total, row_number() OVER newest AS place
        FROM (
            SELECT 'response' AS kind, r.seq, r.created_at AS at,
                   length(r.response) + length(r.input_items) AS bytes
            FROM stored_responses r JOIN scopes s ON s.id = r.owner
            WHERE s.tenant = :tenant AND s.user = :user AND r.response IS NOT NULL
            UNION ALL
            SELECT 'conversation', c.seq, c.used_at,
                   (SELECT sum(length(i.item)) FROM conversation_items i WHERE i.conversation = c.seq)
            FROM conversations c JOIN scopes s ON s.id = c.owner
            WHERE s.tenant = :tenant AND s.user = :user AND c.used_at IS NOT NULL
        ) each_one
        WINDOW newest AS (ORDER BY at DESC, kind, seq DESC)
    ) summed WHERE total > :most AND place > 1"""
# A response is not stored if a forget reached its chain or session: see forget_plan.py.
_LEFT = """
    SELECT EXISTS (SELECT 1 FROM exchanges x JOIN sessions n ON n.id = x.session
                   WHERE n.owner = :owner AND x.id = :exchange AND x.generation = :generation AND NOT EXISTS (
                       SELECT 1 FROM json_each(x.recalled) shown WHERE shown.value = :forgotten))
       AND (:previous IS NULL OR EXISTS (
                SELECT 1 FROM stored_responses r WHERE r.owner = :owner AND r.id = :previous))"""
# True for a continuation of what may have been forgotten. A forget in portions continues while others write:
# who read the chain after it began, and before its portion was erased, has the new generation.
_LOST_ITS_BEGINNING = """
    SELECT generation = portioned AND NOT EXISTS (
        SELECT 1 FROM stored_responses r WHERE r.owner = s.id AND r.id IN (?, ?))
    FROM scopes s WHERE id = ?"""
_OWNERS = f"SELECT owner FROM stored_responses WHERE seq IN {_THESE}"
_RESPONSES_AT_ONCE = 200  # rows of a transaction: other writers wait for it


class SqlChains(Store):
    """Stored responses of all processes that share the file."""

    @writes
    def save(
        self, tx: Connection, response: StoredResponse, *,
        generation: int, recalled: Sequence[str] = (), over: bytes | None = None,
        exchange: str | None = None, said: Items = (),
    ) -> bool:  # fmt: skip
        """As the port says; False also if the owner has deleted this response. `recalled`: the memories
        that the model was shown, since the answer may repeat them; none: those of the last save."""
        owner = rows.ensure_owner(tx, response.scope)
        r, named = response, rows.named(response.scope, id=rows.storable(response.id))
        # A forget came in between. It has looked at the response, if that was stored already, or at its
        # exchange, if that is left and nothing was taken that the model was shown. While a forget of much is
        # under way, that is not known yet; of a conversation it takes what it finds, not what is said later.
        was_stored = over is not None and r.conversation_id is None
        if owner.stamp.generation != generation and not was_stored:
            if tx.execute("SELECT 1 FROM forgets WHERE owner = ?", (owner.id,)).fetchone():
                return False
            asked = {
                "owner": owner.id, "exchange": exchange, "generation": generation, "forgotten": FORGOTTEN,
                "previous": r.previous_id,
            }  # fmt: skip
            is_left = exchange is not None and r.conversation_id is None and value(tx, _LEFT, asked)
            if over is None and (not is_left or sessions.any_forgotten(tx, owner.id, recalled)):
                return False
        if r.previous_id is not None and value(tx, _LOST_ITS_BEGINNING, (r.previous_id, r.id, owner.id)):
            return False
        if over is not None and value(tx, f"SELECT r.response FROM {_RESPONSE}", named) != over:
            return False
        saved = tx.execute(
            _SAVE,
            (r.id, owner.id, r.scope.project, r.session_id, r.previous_id, r.conversation_id, r.created_at,
             r.expires_at, rows.as_json(recalled), r.response, r.input_items),
        )  # fmt: skip
        if not saved.rowcount:
            return False
        in_conversation = said and r.conversation_id is not None
        if in_conversation and (seq := _seq(tx, r.scope, r.conversation_id or "")) is not None:
            _append(tx, seq, said, project=r.scope.project, session=r.session_id or None)
            tx.execute(_USED, {"seq": seq, "at": r.created_at})
        return True

    @reads
    def get(self, tx: Connection, scope: Scope, response_id: str, now: float) -> StoredResponse | None:
        asked = rows.named(scope, id=rows.storable(response_id), now=now)
        found = rows.records(tx, f"SELECT {_COLUMNS} FROM {_ALIVE}", asked)
        return _response(scope, found[0]) if found else None

    @reads
    def chain(
        self, tx: Connection, scope: Scope, response_id: str, now: float, *, limit: int, most_bytes: int
    ) -> Chain:
        parameters = rows.named(scope, id=rows.storable(response_id), now=now, limit=limit)
        count, size, before = tx.execute(_SIZE_OF_CHAIN, parameters).fetchone()
        if not count or size > most_bytes:
            return Chain(size=size or 0)
        found = rows.records(tx, _WHOLE_CHAIN, parameters)
        return Chain(tuple(_response(scope, row) for row in found), before, size)

    @purges
    def delete(self, tx: Connection, scope: Scope, response_id: str) -> bool:
        rows.lock_owner(tx, scope)
        emptied = f"""
            UPDATE stored_responses SET response = NULL, input_items = NULL, recalled = '[]'
            WHERE seq = (SELECT r.seq FROM {_RESPONSE})"""
        return tx.execute(emptied, rows.named(scope, id=rows.storable(response_id))).rowcount > 0

    @writes
    def trim(self, tx: Connection, scope: Scope, most_bytes: int) -> int:
        rows.lock_owner(tx, scope)
        beyond = tx.execute(_BEYOND, rows.named(scope, most=most_bytes)).fetchall()
        for kind, seq in beyond:
            table = "stored_responses" if kind == "response" else "conversations"
            tx.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))
        return len(beyond)

    async def expire(self, now: float, *, unused_since: float | None = None) -> int:
        seqs, total = await self._database.read(lambda tx: column(tx, _EXPIRED, {"now": now})), 0
        for some in rows.in_portions(seqs, _RESPONSES_AT_ONCE):
            portion = {"now": now, "seqs": rows.as_json(some)}
            total += await self._expire(portion)
        last = _CONVERSATIONS_AT_ONCE if unused_since is not None else 0
        while last == _CONVERSATIONS_AT_ONCE:
            last = await self._expire_conversations((unused_since, _CONVERSATIONS_AT_ONCE))
            total += last
        return total

    @writes
    def _expire(self, tx: Connection, portion: dict[str, Any]) -> int:
        rows.lock_owners(tx, _OWNERS, portion)
        return tx.execute(_EXPIRE, portion).rowcount

    @purges
    def _expire_conversations(self, tx: Connection, these: tuple[float | None, int]) -> int:
        """Delete conversations that were last used before then, with their items; return how many."""
        old = "FROM conversations WHERE used_at <= ? ORDER BY used_at LIMIT ?"
        rows.lock_owners(tx, f"SELECT owner {old}", these)
        return tx.execute(f"DELETE FROM conversations WHERE seq IN (SELECT seq {old})", these).rowcount


def _response(scope: Scope, row: dict[str, Any]) -> StoredResponse:
    return StoredResponse(scope=Scope(scope.tenant, scope.user, row.pop("project")), **row)
