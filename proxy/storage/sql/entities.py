"""The people, places, projects and things that memories name. See ports.EntityStore.

A mention is a name in a memory, written in the transaction that stores the memory. Mentions of one name, and
of names that a memory says are of the same, share an entity. An entity has no text of its own: its names are
those of its mentions, so that a forget leaves nothing of a forgotten memory, and deletes the entity with its
last one.
"""

import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.domain.core import Entity, Memory, MemoryFilter, Page, Scope
from proxy.domain.errors import NotFound
from proxy.storage.sql import erasure, rows
from proxy.storage.sql.database import BEYOND_ALL, Connection, Store, column, legible, reads, value
from proxy.text.words import UNKNOWN_KIND, Name, key_of, names

_LOOKED_AT = 200  # of an entity's latest mentions, for its names and links
_MOST_LINKED = 20
_COMMON = 12  # memories; a name in more links too much to be followed
_AT_ONCE = 200
_INSERT = """
    INSERT INTO mentions (memory, key, owner, entity, name, kind, unsure) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
_KNOWN = """
    SELECT key, min(entity) FROM mentions
    WHERE owner = ? AND key IN (SELECT value FROM json_each(?)) GROUP BY key"""
_SEEN = """
    FROM mentions x CROSS JOIN memories m ON m.seq = x.memory CROSS JOIN scopes s ON s.id = m.owner
    WHERE x.entity = {} AND {}"""
# Of memories: what they name, and what else names that.
_LINKED = f"""
    SELECT DISTINCT y.memory FROM memories f CROSS JOIN mentions x ON x.memory = f.seq
    CROSS JOIN mentions y ON y.entity = x.entity AND y.memory <> x.memory
    WHERE f.owner = :owner AND f.id IN (SELECT value FROM json_each(:ids))
    AND (SELECT count(*) FROM (SELECT 1 FROM mentions z WHERE z.entity = x.entity LIMIT {_COMMON + 1}) few)
        <= {_COMMON}
    AND EXISTS (SELECT 1 FROM mentions z WHERE z.entity = x.entity AND z.unsure = 0)"""
_NAMED = """
    SELECT 1 FROM mentions x CROSS JOIN memories m ON m.seq = x.memory CROSS JOIN scopes s ON s.id = m.owner
    WHERE x.owner = :owner AND x.key IN (SELECT value FROM json_each(:keys)) AND x.unsure = 0
    AND (:project IS NULL OR m.project IS NULL OR m.project = :project)"""
_OTHERS = f"""
    SELECT e.id FROM mentions x JOIN entities e ON e.seq = x.entity
    WHERE x.memory IN {rows.seqs_in(":near")} AND x.entity <> :entity AND x.unsure = 0
    GROUP BY e.id, e.seq ORDER BY count(*) DESC, e.seq LIMIT :most"""
_UNNAMED = f"""
    SELECT m.seq, m.owner, m.content, m.tags FROM unnamed n JOIN memories m ON m.seq = n.memory
    ORDER BY n.memory LIMIT {_AT_ONCE}"""


# ---------------------------------------------------------------- writing
def record(tx: Connection, owner: int, seq: int, content: str, tags: Sequence[str]) -> None:
    """Write down what the memory names, in place of what it named before."""
    tx.execute("DELETE FROM mentions WHERE memory = ?", (seq,))
    if not (found := names(rows.storable(content), tags)):
        return
    keys = {key for one in found for key in _keys(one)}
    known: dict[str, int] = dict(tx.execute(_KNOWN, (owner, rows.as_json(sorted(keys)))).fetchall())
    for one in found:
        entity, *others = sorted({known[key] for key in _keys(one) if key in known}) or [0]
        if not entity:
            new = {"id": f"ent_{secrets.token_hex(8)}", "owner": owner}
            entity = int(rows.insert(tx, "entities", "RETURNING seq", **new))
        for other in others:  # merged into the first of those known under its names
            tx.execute("UPDATE mentions SET entity = ? WHERE entity = ?", (entity, other))
            tx.execute("DELETE FROM entities WHERE seq = ?", (other,))
        known |= dict.fromkeys(_keys(one), entity)
        for name, key in zip((one.name, *one.also), _keys(one), strict=True):
            tx.execute(_INSERT, (seq, key, owner, entity, name, one.kind, int(one.unsure)))


def _keys(name: Name) -> list[str]:
    return [key_of(one) for one in (name.name, *name.also)]


def _read_names(tx: Connection) -> int:
    found = tx.execute(_UNNAMED).fetchall()
    for owner in sorted({owner for _, owner, *_ in found}):
        rows.lock_owners(tx, "?", (owner,))
    for seq, owner, content, tags in found:
        with legible():
            tagged = json.loads(tags)
        if value(tx, "SELECT 1 FROM memories WHERE seq = ?", (seq,)):  # a forget may have been faster
            record(tx, owner, seq, content, tagged)
        tx.execute("DELETE FROM unnamed WHERE memory = ?", (seq,))
    return len(found)


# ---------------------------------------------------------------- reading
class SqlEntities(Store):
    """Entities of one user at a time."""

    @reads
    def list(
        self, tx: Connection, where: MemoryFilter, *, limit: int, after: str | None = None
    ) -> Sequence[Entity]:
        condition, parameters = _current(tx, where)
        edge = BEYOND_ALL if after is None else _seq(tx, parameters["owner"], after, "after")
        named = f"EXISTS (SELECT 1 {_SEEN.format('e.seq', condition)} AND x.unsure = 0)"
        query = f"""
            SELECT e.seq, e.id FROM entities e WHERE e.owner = :owner AND e.seq < :edge AND {named}
            ORDER BY e.seq DESC LIMIT :limit"""
        found = tx.execute(query, parameters | {"edge": edge, "limit": limit}).fetchall()
        return [_described(tx, seq, id_, condition, parameters) for seq, id_ in found]

    @reads
    def memories(
        self, tx: Connection, where: MemoryFilter, entity_id: str, *, limit: int, after: str | None = None
    ) -> Page:
        condition, parameters = _current(tx, where)
        entity = _seq(tx, parameters["owner"], entity_id, "entity_id")
        edge, of_owner = BEYOND_ALL, "SELECT seq FROM memories WHERE id = ? AND owner = ?"
        if after is not None:
            named = (rows.storable(after), parameters["owner"])
            edge = rows.place_after(tx, of_owner, named, "no memory has this id")
        seqs = f"SELECT DISTINCT m.seq {_SEEN.format(':entity', condition)} AND m.seq < :edge"
        asked = parameters | {"entity": entity, "edge": edge, "limit": limit + 1}
        these = f"m.seq IN ({seqs} ORDER BY m.seq DESC LIMIT :limit) ORDER BY m.seq DESC"
        items = [memory for _, memory in rows.memories_where(tx, these, asked)]
        return Page(tuple(items[:limit]), None, has_more=len(items) > limit)

    @reads
    def linked(
        self, tx: Connection, scope: Scope, ids: Sequence[str], *, now: float, limit: int
    ) -> Sequence[Memory]:
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now)
        condition, parameters = _current(tx, where)
        wanted = rows.as_json(map(rows.storable, ids))
        asked = parameters | {"ids": wanted, "project": scope.project, "limit": limit}
        mine = "(:project IS NULL OR m.project IS NULL OR m.project = :project)"
        query = f"m.seq IN ({_LINKED}) AND {mine} AND {condition} ORDER BY m.seq DESC LIMIT :limit"
        found = rows.memories_where(tx, query, asked)
        return [memory for _, memory in found if memory.id not in ids]

    @reads
    def knows(self, tx: Connection, scope: Scope, names: Sequence[str], *, now: float) -> bool:
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, now=now, include_archived=True)
        condition, parameters = _current(tx, where)
        asked = parameters | {"keys": rows.as_json(sorted(map(key_of, names))), "project": scope.project}
        return bool(value(tx, f"{_NAMED} AND {condition} LIMIT 1", asked))

    async def catch_up(self) -> None:
        """Read the names of some memories that were stored without. Called every few seconds."""
        if await self._database.read(lambda tx: value(tx, "SELECT 1 FROM unnamed LIMIT 1")):
            await self._database.write(_read_names)


def _current(tx: Connection, where: MemoryFilter) -> tuple[str, dict[str, Any]]:
    """Return the filter over current memories, with the owner among its parameters."""
    condition, parameters = rows.conditions(where, inactive=False)
    owner = rows.owner_number(tx, where)
    return f"{condition}{erasure.hidden(tx)}", {**parameters, "owner": owner}


def _seq(tx: Connection, owner: int, entity_id: str, param: str) -> int:
    query = "SELECT seq FROM entities WHERE id = ? AND owner = ?"
    if (seq := value(tx, query, (rows.storable(entity_id), owner))) is None:
        raise NotFound("no entity has this id", param=param)
    return int(seq)


def _described(tx: Connection, seq: int, id_: str, condition: str, parameters: Mapping[str, Any]) -> Entity:
    """Return the entity as its latest mentions show it."""
    asked = {**parameters, "entity": seq}
    seen = _SEEN.format(":entity", condition)
    latest = f"SELECT x.name, x.kind, x.memory {seen} ORDER BY x.memory DESC LIMIT {_LOOKED_AT}"
    mentions = tx.execute(latest, asked).fetchall()
    called = Counter(name for name, _, _ in mentions)
    kinds = Counter(kind for _, kind, _ in mentions if kind != UNKNOWN_KIND)
    spelled: dict[str, str] = {}
    for name, _ in called.most_common():
        spelled.setdefault(key_of(name), name)
    name, *aliases = spelled.values()
    near = rows.as_json(sorted({memory for _, _, memory in mentions}))
    memories = int(value(tx, f"SELECT count(DISTINCT x.memory) {seen}", asked))
    kind = kinds.most_common(1)[0][0] if kinds else UNKNOWN_KIND
    linked = column(tx, _OTHERS, {"near": near, "entity": seq, "most": _MOST_LINKED})
    return Entity(id=id_, kind=kind, name=name, aliases=tuple(aliases), memories=memories, linked=linked)
