"""The ChainStore over SQL: see ports.ChainStore for what every method guarantees.

A response that its owner deleted leaves a row without content: a background response still under way
cannot store itself again, and a chain passes over the gap. A response that has expired is kept from `get`
at once, but its row stays while a living one continues it: a chain in use does not lose its beginning.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from proxy.domain.core import Scope
from proxy.domain.stored_responses import Chain, StoredResponse
from proxy.storage.sql import conversations, exchanges, owners, rows
from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.rows import FORGOTTEN

_COLUMNS = """
    r.id, r.project, r.session, r.previous_id, r.conversation_id, r.response, r.input_items, r.created_at,
    r.expires_at
"""
_THE_ONE = """
    stored_responses r JOIN scopes s ON s.id = r.owner
    WHERE s.tenant = :tenant AND s.user = :user AND r.id = :id AND r.response IS NOT NULL
"""
_ALIVE = f"{_THE_ONE} AND (r.expires_at IS NULL OR r.expires_at > :now)"
_CHAIN = f"""
    WITH RECURSIVE chain (depth, seq, owner, previous_id) AS (
        SELECT 1, r.seq, r.owner, r.previous_id FROM {_ALIVE}
        UNION ALL
        SELECT chain.depth + 1, r.seq, r.owner, r.previous_id
        FROM chain JOIN stored_responses r ON r.owner = chain.owner AND r.id = chain.previous_id
        WHERE chain.depth < :limit
    )
"""
# Without the bodies: how large they are is known from their rows.
_SIZE_OF_CHAIN = f"""
    {_CHAIN}
    SELECT count(*), sum(length(r.response) + length(r.input_items)),
           (SELECT previous_id FROM chain ORDER BY depth DESC LIMIT 1)
    FROM chain JOIN stored_responses r ON r.seq = chain.seq
"""
_WHOLE_CHAIN = f"""
    {_CHAIN}
    SELECT {_COLUMNS} FROM chain JOIN stored_responses r ON r.seq = chain.seq
    WHERE r.response IS NOT NULL ORDER BY chain.depth DESC
"""
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
    WHERE stored_responses.response IS NOT NULL
"""
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
    SELECT seq FROM stored_responses WHERE expires_at <= :now AND seq NOT IN (SELECT seq FROM needed)
"""
# It may have been saved again since, or continued by a request that was under way.
_EXPIRE = """
    DELETE FROM stored_responses AS old
    WHERE seq IN (SELECT CAST(value AS INTEGER) FROM json_each(:seqs)) AND expires_at <= :now AND NOT EXISTS (
        SELECT 1 FROM stored_responses r WHERE r.owner = old.owner AND r.previous_id = old.id
        AND (r.expires_at IS NULL OR r.expires_at > :now))
"""
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
    ) summed WHERE total > :most AND place > 1
"""
_DROP = {
    "response": "DELETE FROM stored_responses WHERE seq = ?",
    "conversation": "DELETE FROM conversations WHERE seq = ?",
}
# A response whose chain or session was reached by a forget is not kept: see forgetting/kept.py.
_LEFT = """
    SELECT EXISTS (SELECT 1 FROM exchanges x JOIN sessions n ON n.id = x.session
                   WHERE n.owner = :owner AND x.id = :exchange AND x.generation = :generation AND NOT EXISTS (
                       SELECT 1 FROM json_each(x.recalled) shown WHERE shown.value = :forgotten))
       AND (:previous IS NULL OR EXISTS (
                SELECT 1 FROM stored_responses r WHERE r.owner = :owner AND r.id = :previous))
"""
_OWNERS = """
    SELECT owner FROM stored_responses WHERE seq IN (SELECT CAST(value AS INTEGER) FROM json_each(:seqs))
"""
_EXPIRE_AT_ONCE = 200  # rows of a transaction: other writers wait meanwhile


class SqlChains:
    """Stored responses of all processes that share the file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self,
        response: StoredResponse,
        *,
        generation: int,
        recalled: Sequence[str] = (),
        over: bytes | None = None,
        exchange: str | None = None,
        said: Sequence[tuple[str, bytes]] = (),
    ) -> bool:
        """As the port says; False also if the owner has deleted this response. `recalled`: the memories
        that the model was shown, since the answer may repeat them; none: those of the last save."""

        def work(tx: Connection) -> bool:
            owner = owners.ensure(tx, response.scope)
            is_late = owner.stamp.generation != generation
            of = (exchange, generation)
            if is_late and not _is_left(tx, owner.id, response, recalled, of=of, over=over):
                return False
            saved = _save(tx, owner.id, response, recalled, over)
            if saved and said:
                conversations.append_said(tx, response, said)
            return saved

        return await self._database.write(work)

    async def get(self, scope: Scope, response_id: str, now: float) -> StoredResponse | None:
        query, parameters = f"SELECT {_COLUMNS} FROM {_ALIVE}", _named(scope, response_id) | {"now": now}
        row = await self._database.read(lambda tx: tx.execute(query, parameters).fetchone())
        return _response(scope, row) if row else None

    async def chain(
        self, scope: Scope, response_id: str, now: float, *, limit: int, most_bytes: int
    ) -> Chain:
        parameters = _named(scope, response_id) | {"now": now, "limit": limit}

        def work(tx: Connection) -> Chain:
            count, size, before = tx.execute(_SIZE_OF_CHAIN, parameters).fetchone()
            if not count or size > most_bytes:
                return Chain(size=size or 0)
            found = tx.execute(_WHOLE_CHAIN, parameters).fetchall()
            return Chain(tuple(_response(scope, row) for row in found), before, size)

        return await self._database.read(work)

    async def delete(self, scope: Scope, response_id: str) -> bool:
        emptied = (
            "UPDATE stored_responses SET response = NULL, input_items = NULL, recalled = '[]'"
            f" WHERE seq = (SELECT r.seq FROM {_THE_ONE})"
        )
        parameters = _named(scope, response_id)

        def work(tx: Connection) -> bool:
            owners.lock(tx, scope)
            return tx.execute(emptied, parameters).rowcount > 0

        return await self._database.write(work, purge=True)

    async def trim(self, scope: Scope, most_bytes: int) -> int:
        parameters = {"tenant": scope.tenant, "user": scope.user, "most": most_bytes}

        def work(tx: Connection) -> int:
            owners.lock(tx, scope)
            beyond = tx.execute(_BEYOND, parameters).fetchall()
            for kind, seq in beyond:
                tx.execute(_DROP[kind], (seq,))
            return len(beyond)

        return await self._database.write(work)

    async def expire(self, now: float, *, unused_since: float | None = None) -> int:
        found = await self._database.read(lambda tx: tx.execute(_EXPIRED, {"now": now}).fetchall())
        seqs, total = [seq for (seq,) in found], 0
        for start in range(0, len(seqs), _EXPIRE_AT_ONCE):
            portion = {"now": now, "seqs": rows.as_json(seqs[start : start + _EXPIRE_AT_ONCE])}
            total += await self._database.write(partial(_expire, portion=portion))
        if unused_since is not None:
            total += await conversations.expire(self._database, unused_since)
        return total


def _expire(tx: Connection, portion: dict[str, Any]) -> int:
    owners.lock_all(tx, _OWNERS, portion)
    return tx.execute(_EXPIRE, portion).rowcount


def _named(scope: Scope, id_: str) -> dict[str, Any]:
    return {"tenant": scope.tenant, "user": scope.user, "id": rows.storable(id_)}


def _save(
    tx: Connection,
    owner: int,
    response: StoredResponse,
    recalled: Sequence[str],
    over: bytes | None,
) -> bool:
    if _has_lost_its_beginning(tx, owner, response):
        return False
    if over is not None:
        now = tx.execute(f"SELECT r.response FROM {_THE_ONE}", _named(response.scope, response.id)).fetchone()
        if now is None or now[0] != over:
            return False
    r = response
    saved = tx.execute(
        _SAVE,
        (r.id, owner, r.scope.project, r.session_id, r.previous_id, r.conversation_id, r.created_at,
         r.expires_at, rows.as_json(recalled), r.response, r.input_items),
    )  # fmt: skip
    return saved.rowcount > 0


def _is_left(
    tx: Connection,
    owner: int,
    response: StoredResponse,
    recalled: Sequence[str],
    *,
    of: tuple[str | None, int],
    over: bytes | None,
) -> bool:
    """True where a forget that came meanwhile has looked at the response, which is stored already, or at
    the exchange that it is of, and has taken nothing that the model was shown.

    While a forget of much is under way, that is not known yet; of a conversation it takes what it finds
    there, and not what is said later on."""
    exchange, generation = of
    if over is not None and response.conversation_id is None:
        return True
    if tx.execute("SELECT 1 FROM forgets WHERE owner = ?", (owner,)).fetchone():
        return False
    if over is not None:
        return True
    if exchange is None or response.conversation_id is not None:
        return False
    asked = {
        "owner": owner, "exchange": exchange, "generation": generation, "forgotten": FORGOTTEN,
        "previous": response.previous_id,
    }  # fmt: skip
    (left,) = tx.execute(_LEFT, asked).fetchone()
    return bool(left) and not exchanges.any_forgotten(tx, owner, recalled)


def _has_lost_its_beginning(tx: Connection, owner: int, response: StoredResponse) -> bool:
    """True for a continuation of what may have been forgotten. A forget in portions goes on while others
    write: who read the chain after it began, and before its portion was erased, has the new generation."""
    if response.previous_id is None:
        return False
    (lost,) = tx.execute(
        "SELECT generation = portioned AND NOT EXISTS ("
        " SELECT 1 FROM stored_responses r WHERE r.owner = s.id AND r.id IN (?, ?))"
        " FROM scopes s WHERE id = ?",
        (response.previous_id, response.id, owner),
    ).fetchone()
    return bool(lost)


def _response(scope: Scope, row: tuple[Any, ...]) -> StoredResponse:
    id_, project, session, previous_id, conversation_id, response, input_items, created_at, expires_at = row
    return StoredResponse(
        id=id_,
        scope=Scope(scope.tenant, scope.user, project),
        session_id=session,
        previous_id=previous_id,
        conversation_id=conversation_id,
        response=response,
        input_items=input_items,
        created_at=created_at,
        expires_at=expires_at,
    )
