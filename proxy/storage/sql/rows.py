"""Rows to values and back: memories, exchanges, users, and the models that vectors were made with.

A user is a row of `scopes`: its number in this database, and the stamp that identifies late writers. Each
embedding model is a generation of vectors; the last is the store's. While the memories are embedded again,
vectors of two generations lie side by side. A reader gets those of its own model and none of another's, so
that the rest is found by its words."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from proxy.domain.core import Evidence, Memory, MemoryFilter, Scope, Stamp, with_children
from proxy.domain.errors import NotFound, WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.domain.session import Exchange
from proxy.storage.sql.database import Connection, column, legible, value
from proxy.text.words import fold, normalise

T = TypeVar("T")

# `recalled` of an exchange: ids of the memories and documents that its answer was given with.
DOCUMENT = "doc_"  # documents' ids begin so: no memory's do
FORGOTTEN = "(forgotten)"
"""The mark in `recalled` of a memory that was forgotten: an answer still under way is then not stored."""

_MEMORY = """
    SELECT m.seq, m.id, s.tenant, s.user, m.project, m.type, m.content, m.source, m.created_at, m.updated_at,
           m.valid_from, m.valid_to, m.superseded_by, m.expires_at, m.archived, m.importance, m.weight,
           m.confidence, m.tags, m.access_count, m.last_accessed, m.pinned, m.uses, m.used_at, m.archived_by,
           m.core, m.sources,
           (SELECT n.id FROM contradictions c JOIN memories n ON n.seq = c.newer
            WHERE c.older = m.seq ORDER BY c.seq DESC LIMIT 1), m.changed
    FROM memories m JOIN scopes s ON s.id = m.owner"""
_AS_THEY_ARE = (
    "id", "type", "source", "created_at", "updated_at", "valid_from", "valid_to", "superseded_by",
    "expires_at", "archived", "importance", "weight", "confidence", "access_count", "last_accessed", "pinned",
    "uses", "used_at",
)  # fmt: skip
_EVIDENCE = """
    SELECT memory, session_id, exchange_id, span FROM evidence
    WHERE memory IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY id"""
# While something is being forgotten, an answer that was given with memories in view may repeat it.
_EXCHANGE = """
    SELECT e.seq, e.id, e.model, e.said,
           iif(e.recalled <> '[]' AND EXISTS (
               SELECT 1 FROM sessions x JOIN forgets f ON f.owner = x.owner WHERE x.id = e.session
           ), '', e.answer) AS answer, e.at, e.whole, e.timezone, e.dated
    FROM exchanges e"""
_IN_VIEW = """
    SELECT e.seq, e.recalled FROM exchanges e
    WHERE e.session = (SELECT session FROM exchanges WHERE seq = ?) AND e.seq <= ? AND e.recalled <> '[]'
    ORDER BY e.seq"""


def storable(text: str) -> str:
    """Return the text without lone surrogates and NUL: JSON can carry them, UTF-8 and PostgreSQL cannot."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_memory(recalled: str) -> bool:
    """True for the id of a memory in `recalled`."""
    return not recalled.startswith(DOCUMENT) and recalled != FORGOTTEN


def is_tainted(recalled: Iterable[str]) -> bool:
    """True where no memory is made of the answer, nor of a later one of its session: what is in a document
    must not become one by being quoted, and a client's history may hold what was forgotten."""
    return not all(map(is_memory, recalled))


# Of what is ASCII, `lower` makes what `fold` does.
_MAY_HOLD = "(length(m.content) <> length(CAST(m.content AS BLOB)) OR instr(lower(m.content), :text) > 0)"


def digest(content: str) -> bytes:
    """Return what two wordings of the same statement have in common: 16 bytes of its normal form."""
    return hashlib.blake2b(storable(normalise(content)).encode(), digest_size=16).digest()


def place_of(memory: Memory) -> tuple[str | None, str, bytes]:
    """Return what no two current memories of a user share: project, type and digest."""
    return memory.scope.project, memory.type, digest(memory.content)


def twin_of(tx: Connection, owner: int, place: Sequence[Any]) -> str | None:
    """Return the id of the user's current memory at this place."""
    twin = """
        SELECT id FROM memories WHERE owner = ? AND coalesce(project, '') = ? AND type = ? AND digest = ?
        AND superseded_by IS NULL AND archived = 0"""
    found: str | None = value(tx, twin, (owner, place[0] or "", *place[1:]))
    return found


def named(scope: Scope, **others: Any) -> dict[str, Any]:
    """Return the parameters :tenant, :user and :project, and the others."""
    return {"tenant": scope.tenant, "user": scope.user, "project": scope.project, **others}


def records(tx: Connection, sql: str, parameters: Any = ()) -> list[dict[str, Any]]:
    cursor = tx.execute(sql, parameters)
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def insert(tx: Connection, table: str, ending: str = "", /, **columns: Any) -> Any:
    """Insert one row; return the number that an `ending` such as RETURNING seq asks for, else None."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    cursor = tx.execute(f"INSERT INTO {table} ({names}) VALUES ({marks}) {ending}", tuple(columns.values()))
    row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def place_after(tx: Connection, sql: str, parameters: Any, message: str) -> Any:
    """Return the first column of the row that a page begins after. Raises NotFound."""
    if (place := value(tx, sql, parameters)) is None:
        raise NotFound(message, param="after")
    return place


def scope_in(record: dict[str, Any]) -> Scope:
    """Take tenant, user and project out of the record."""
    return Scope(record.pop("tenant"), record.pop("user"), record.pop("project"))


def seqs_in(parameter: str) -> str:
    """Return SQL for the numbers in a parameter that `as_json` made, for `IN`."""
    return f"(SELECT CAST(value AS INTEGER) FROM json_each({parameter}))"


def in_portions(found: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the rows a few at a time: other writers wait for each transaction."""
    yield from (found[start : start + size] for start in range(0, len(found), size))


def as_json(values: Iterable[Any]) -> str:
    """Return a JSON array, for `IN (SELECT value FROM json_each(?))`."""
    return json.dumps(list(values))


# ---------------------------------------------------------------- memories
def insert_memory(tx: Connection, owner: int, memory: Memory, statement: bytes, changed: int) -> int | None:
    """Store the memory's own row and evidence, `statement` being its digest; return its seq, or None if the
    same one is already there."""
    m = memory
    seq: int | None = insert(
        tx, "memories", "ON CONFLICT DO NOTHING RETURNING seq", owner=owner, project=m.scope.project,
        content=storable(m.content), digest=statement, tags=json.dumps(m.tags), sources=json.dumps(m.sources),
        archived_by=_archived_by(m), core=m.core or m.pinned, changed=changed, written=changed,
        **{name: getattr(m, name) for name in _AS_THEY_ARE},
    )  # fmt: skip
    if seq is not None:
        insert_evidence(tx, seq, memory.evidence)
    return seq


def update_memory(tx: Connection, seq: int, memory: Memory, changed: int) -> None:
    """Rewrite what a person can correct. No other current memory may say the same."""
    m, content = memory, storable(memory.content)
    tx.execute(
        "UPDATE memories SET project = ?, type = ?, content = ?, digest = ?, source = ?, updated_at = ?,"
        " expires_at = ?, archived = ?, archived_by = ?, importance = ?, confidence = ?, tags = ?,"
        " changed = ?, written = ?, fades_at = NULL WHERE seq = ?",
        (m.scope.project, m.type, content, digest(content), m.source, m.updated_at, m.expires_at, m.archived,
         _archived_by(m), m.importance, m.confidence, json.dumps(m.tags),
         changed, changed, seq),
    )  # fmt: skip


def _archived_by(memory: Memory) -> str | None:
    return (memory.archived_by or "user") if memory.archived else None


def insert_evidence(tx: Connection, seq: int, evidence: Sequence[Evidence]) -> None:
    """Add where a memory comes from; what is known already is not doubled."""
    known = "SELECT 1 FROM evidence WHERE memory = ? AND session_id = ? AND exchange_id = ? AND span = ?"
    new = "INSERT INTO evidence (memory, session_id, exchange_id, span) VALUES (?, ?, ?, ?)"
    for item in evidence:
        row = (seq, item.session_id, item.exchange_id, storable(item.span))
        if not value(tx, known, row):
            tx.execute(new, row)


def memories_where(tx: Connection, condition: str, parameters: dict[str, Any]) -> list[tuple[int, Memory]]:
    """Return (seq, memory) for what the condition (constant SQL over `m` and `s`) selects, in its order.

    Raises DamagedRow, rather than leave one out: a change of memories must see all of them."""
    return [(seq, memory) for seq, _, memory in _memories(tx, condition, parameters)]


def memories_by_seq(tx: Connection, seqs: Sequence[int]) -> dict[int, tuple[int, Memory]]:
    """Return the memories that exist under these numbers, each with its row's `changed`."""
    found = _memories(tx, f"m.seq IN {seqs_in(':seqs')}", {"seqs": as_json(seqs)})
    return {seq: (changed, memory) for seq, changed, memory in found}


def _memories(tx: Connection, condition: str, parameters: dict[str, Any]) -> list[tuple[int, int, Memory]]:
    rows = tx.execute(f"{_MEMORY} WHERE {condition}", parameters).fetchall()
    evidence: dict[int, tuple[Evidence, ...]] = {}
    for seq, *item in tx.execute(_EVIDENCE, (as_json(row[0] for row in rows),)):
        evidence[seq] = (*evidence.get(seq, ()), Evidence(*item))
    scopes = {key: Scope(*key) for key in {row[2:5] for row in rows}}  # few: most rows have the same
    with legible():
        found = []
        for row in rows:  # _MEMORY names its columns in the order of Memory's fields
            scope, said_in = scopes[row[2:5]], evidence.get(row[0], ())
            archived, tags, pinned, core = bool(row[14]), _tags(row[18]), bool(row[21]), bool(row[25])
            memory = _Unsealed(
                row[1], scope, *row[5:14], archived, *row[15:18], tags, said_in, *row[19:21],
                pinned, *row[22:25], core, _tags(row[26]), row[27],
            )  # fmt: skip
            memory.__class__ = Memory
            found.append((row[0], row[28], memory))
        return found


@lru_cache(maxsize=4096)
def _tags(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


# A frozen dataclass sets its fields by a call each: 8 µs for a memory, a fifth of what it takes to bring in a
# user. An object of a class with the same slots is filled in 1 µs, and becomes a Memory.
_Unsealed: Any = make_dataclass("_Unsealed", [field.name for field in fields(Memory)], slots=True)


# ---------------------------------------------------------------- filters
RANGE = {
    "since": "m.valid_from >= :since",
    "until": "m.valid_from < :until",
    "as_of": "m.valid_from <= :as_of",
}
_HELD_THEN = (
    "(m.superseded_by IS NULL OR coalesce(m.valid_to, m.updated_at) > :as_of)"
    " AND (m.expires_at IS NULL OR m.expires_at > :as_of)"
)
# The next such event says what was the case before it.
_NOT_ARCHIVED_THEN = """
    coalesce((SELECT iif(e.action = 'archived', 0, 1) FROM events e WHERE e.memory = m.seq AND e.at > :as_of
              AND e.action IN ('archived', 'restored') ORDER BY e.id LIMIT 1), m.archived) = 0"""
CONTENT_THEN = """
    coalesce((SELECT e.content FROM events e WHERE e.memory = m.seq AND e.at > :as_of ORDER BY e.id LIMIT 1),
             m.content)"""


def conditions(where: MemoryFilter, *, inactive: bool) -> tuple[str, dict[str, Any]]:
    """Return the filter as SQL over `m` and `s` with its parameters; `inactive` admits the past
    too. Of a text it lets through all that may hold it: see `holding`."""
    clauses, parameters = ["s.tenant = :tenant"], {"tenant": where.tenant, "now": where.now}
    if where.user is not None:
        clauses.append("s.user = :user")
        parameters["user"] = where.user
    if where.project is not None:
        clauses.append("m.project = :project")
        parameters["project"] = where.project
    if where.type is not None:
        clauses.append("m.type IN (SELECT value FROM json_each(:types))")
        parameters["types"] = as_json(sorted(with_children((where.type,)) | {where.type}))
    if where.text is not None and where.as_of is None:
        clauses.append(_MAY_HOLD)
        parameters["text"] = fold(storable(where.text))
    for name, clause in RANGE.items():
        if (moment := getattr(where, name)) is not None:
            clauses.append(clause)
            parameters[name] = moment
    if where.as_of is not None:
        clauses.append(_HELD_THEN + ("" if where.include_archived else f" AND {_NOT_ARCHIVED_THEN}"))
    elif not inactive:
        clauses.append("m.superseded_by IS NULL")
        if where.only_archived or not where.include_archived:
            clauses.append("m.archived = 1" if where.only_archived else "m.archived = 0")
        clauses.append("(m.expires_at IS NULL OR m.expires_at > :now)")
    return " AND ".join(clauses), parameters


def as_then(tx: Connection, found: list[tuple[int, Memory]], as_of: float | None) -> list[Memory]:
    """Return the memories in their wording at the moment; None: in today's."""
    if as_of is None or not found:
        return [memory for _, memory in found]
    seqs = {"as_of": as_of, "seqs": as_json(seq for seq, _ in found)}
    query = f"SELECT m.seq, {CONTENT_THEN} FROM memories m WHERE m.seq IN {seqs_in(':seqs')}"
    then = dict(tx.execute(query, seqs).fetchall())
    return [m if m.content == then[seq] else replace(m, content=then[seq]) for seq, m in found]


def holding(text: str, found: Iterable[tuple[int, str]]) -> list[int]:
    """Return which of the rows (seq, content) hold the text, whatever its case and accents.

    Here and not in SQL: no database folds all scripts as our searches do."""
    wanted = fold(storable(text))
    # Of what is ASCII, `lower` makes what `fold` does, in half the time.
    folded = ((seq, c.lower() if c.isascii() else fold(c)) for seq, c in found)
    return [seq for seq, content in folded if wanted in content]


# ---------------------------------------------------------------- exchanges
def exchanges_where(
    tx: Connection, scope: Scope, session_id: str, condition: str, parameters: dict[str, Any]
) -> list[Exchange]:
    """Return exchanges of one session, selected and ordered by constant SQL over `e`."""
    found = records(tx, f"{_EXCHANGE} WHERE {condition}", parameters)
    same: dict[str, Any] = {"scope": scope, "session_id": session_id}
    return [Exchange(whole=bool(row.pop("whole")), **same, **row) for row in found]


def without_tainted(tx: Connection, exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """Return the exchanges, of one session, without the answers that no memory is to be made of: see
    in_view. From the first of them on: what was read out once is in view of what follows."""
    if not exchanges:
        return ()
    last = exchanges[-1].seq
    with legible():
        shown = tx.execute(_IN_VIEW, (last, last))
        first = next((seq for seq, recalled in shown if is_tainted(json.loads(recalled))), last + 1)
    return tuple(replace(e, answer="") if e.seq >= first else e for e in exchanges)


def touch(tx: Connection, owner: int, ids: Sequence[str], at: float) -> None:
    """Count an access of the user's memories that still exist, as often as each id is given."""
    tx.executemany(
        "UPDATE memories SET access_count = access_count + ?, last_accessed = ? WHERE owner = ? AND id = ?",
        [(times, at, owner, storable(memory_id)) for memory_id, times in Counter(ids).items()],
    )


# ---------------------------------------------------------------- users
_NAMED = "SELECT id, generation, version FROM scopes WHERE tenant = ? AND user = ?"
_NUMBER = "SELECT id FROM scopes WHERE tenant = ? AND user = ?"
NEVER_SEEN = Stamp(generation=0, version=0)


@dataclass(frozen=True, slots=True)
class Owner:
    """A user (of a tenant) as the other tables name it."""

    id: int
    stamp: Stamp


def find_owner(tx: Connection, scope: Scope) -> Owner | None:
    return _owner(tx, scope, "")


def _owner(tx: Connection, scope: Scope, ending: str) -> Owner | None:
    row = tx.execute(_NAMED + ending, (scope.tenant, scope.user)).fetchone()
    return Owner(row[0], Stamp(row[1], row[2])) if row else None


def owner_number(tx: Connection, of: Scope | MemoryFilter) -> int:
    """Return the user's number, one that no row has for a user never seen."""
    return -1 if (owner := value(tx, _NUMBER, (of.tenant, of.user))) is None else int(owner)


def lock_owner(tx: Connection, scope: Scope) -> Owner | None:
    """Return the user's row once no other transaction writes about the user, None for a user never seen.

    The rules are written for one writer at a time. Whatever writes about a user therefore begins with this,
    with `ensure_owner` or with `lock_owners`, before it reads what it decides by."""
    owner = _owner(tx, scope, tx.for_update)
    if owner is None and tx.for_update:
        # Who waited for a transaction that gave the user a new row (a forget of everything) sees it now.
        owner = _owner(tx, scope, tx.for_update)
    return owner


def ensure_owner(tx: Connection, scope: Scope) -> Owner:
    """Return the user's row, made if need be, and locked as by `lock_owner`."""
    new = "INSERT INTO scopes (tenant, user) VALUES (?, ?) ON CONFLICT (tenant, user) DO NOTHING RETURNING id"
    while (owner := lock_owner(tx, scope)) is None:
        if (made := value(tx, new, (scope.tenant, scope.user))) is not None:
            return Owner(made, NEVER_SEEN)
    return owner


def lock_owners(tx: Connection, query: str, parameters: Any) -> None:
    """Wait until no other transaction writes about the users that the query (constant SQL) finds by their
    numbers. In their order, so that two that wait for each other are rare."""
    if tx.for_update:
        locked = f"SELECT id FROM scopes WHERE id IN ({query}) ORDER BY id {tx.for_update}"
        tx.execute(locked, parameters).fetchall()


def set_version(tx: Connection, owner: int, version: int) -> None:
    tx.execute("UPDATE scopes SET version = ? WHERE id = ?", (version, owner))


def raise_version(tx: Connection, owner: int) -> int:
    """Say that what a search could return has changed; return the new version."""
    raised = "UPDATE scopes SET version = version + 1 WHERE id = ? RETURNING version"
    return int(value(tx, raised, (owner,)))


def raise_generation(tx: Connection, owner: int) -> None:
    """Raise the generation after a forget: writers that began before must not commit."""
    tx.execute("UPDATE scopes SET generation = generation + 1, version = version + 1 WHERE id = ?", (owner,))


# ---------------------------------------------------------------- the models of the vectors
FIRST = 0
NO_MODEL = -1  # the generation of memories that were stored without a model at hand


@dataclass(frozen=True, slots=True)
class Generations:
    """What one process may do with vectors: make those of `generation`, compare those of `generations`."""

    generation: int
    dimension: int | None  # None: no model was ever named
    generations: tuple[int, ...]


def generations_of(tx: Connection, model: EmbeddingModel | None) -> Generations:
    """Return what a process with this model may do. One that named none is taken to use the store's.

    Raises WrongModel if the store does not know the model: it was replaced under the process."""
    last = newest_model(tx)
    if last is None:
        return Generations(FIRST, None, (FIRST,))
    name, dimension = (model.name, model.dimension) if model else last[1:]
    query = "SELECT generation FROM embeddings WHERE name = ? AND dimension = ? ORDER BY generation"
    if not (generations := column(tx, query, (name, dimension))):
        raise WrongModel(f"the store holds vectors of {last[1]}, not of {name}")
    return Generations(generations[-1], dimension, generations)


def newest_model(tx: Connection) -> tuple[int, str, int] | None:
    """Return generation, name and dimension of the store's model, None before any was named."""
    query = "SELECT generation, name, dimension FROM embeddings ORDER BY generation DESC LIMIT 1"
    row: tuple[int, str, int] | None = tx.execute(query).fetchone()
    return row
