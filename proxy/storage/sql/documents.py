"""The DocumentStore and the PassageIndex over SQL: see domain/documents.py for what every method guarantees.

Passages are searched in arrays: sections first, then the passages of those that were chosen. Both levels are
the arrays that serve memories. A section's vector is the mean of its passages' vectors, its words are all of
theirs. To the second level a section is what a type is to memories: a filter.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from proxy.domain.core import Forgotten, Scope, Search, Stamp
from proxy.domain.documents import (
    INDEXING,
    READY,
    Change,
    Document,
    Limits,
    Look,
    NewDocument,
    Passage,
    PassageHit,
    Pending,
    Scores,
    searched_text,
)
from proxy.domain.errors import NotFound, QuotaExceeded
from proxy.domain.limits import TTLCache
from proxy.domain.ports import EmbeddingModel
from proxy.storage.exact_index import Found, Row, UserIndex, build, pack
from proxy.storage.sql import embeddings, rows, users
from proxy.storage.sql.database import Connection, Database, legible
from proxy.storage.sql.embeddings import NO_MODEL
from proxy.storage.sql.forget import Forgetting
from proxy.text import terms

# ---------------------------------------------------------------- documents
COLUMNS = """
    d.seq, d.id, s.tenant, s.user, d.project, d.name, d.version, d.digest, d.characters, d.sections,
    d.passages, d.created_at, d.updated_at,
    EXISTS (SELECT 1 FROM passages p WHERE p.document = d.seq AND p.generation < (
                SELECT max(generation) FROM embeddings))
"""
_DOCUMENTS = f"SELECT {COLUMNS} FROM documents d JOIN scopes s ON s.id = d.owner WHERE d.doomed = 0"
_NAMED = f"""
    {_DOCUMENTS} AND s.tenant = :tenant AND s.user = :user AND coalesce(d.project, '') = :in_project
    AND d.name = :name
"""
_DOCUMENT_BY_ID = f"{_DOCUMENTS} AND d.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"
_LIST = f"""
    {_DOCUMENTS} AND s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR d.project = :project)
    AND (:before IS NULL OR d.seq < :before) ORDER BY d.seq DESC LIMIT :limit
"""
_USED = "SELECT count(*), coalesce(sum(passages), 0) FROM documents WHERE owner = ? AND doomed = 0"
_INSERT = """
    INSERT INTO documents (id, owner, project, name, version, digest, characters, sections, passages,
           created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq
"""
_INSERT_PASSAGE = """
    INSERT INTO passages (document, section, headings, start, lead, tile, terms, generation, embedding)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# By the id too: what has it may be a later version by now.
_PASSAGES = """
    SELECT p.headings, p.section, p.tile, p.start, p.lead
    FROM documents d JOIN passages p ON p.document = d.seq JOIN scopes s ON s.id = d.owner
    WHERE d.id = ? AND d.version = ? AND s.tenant = ? AND s.user = ? AND d.doomed = 0 ORDER BY p.seq
"""


class SqlDocuments:
    """Documents of all processes that share the file. `embedding`: whose vectors this process makes."""

    def __init__(
        self, database: Database, forgetting: Forgetting, embedding: Callable[[], EmbeddingModel | None]
    ) -> None:
        self._database = database
        self._forgetting = forgetting
        self._embedding = embedding

    async def put(self, new: NewDocument, limits: Limits) -> tuple[Document, Change]:
        # Neither in the event loop nor in the transaction: others wait for both.
        packed = await asyncio.to_thread(_packed, new.passages)

        def work(tx: Connection) -> tuple[Document, Change]:
            owner = users.ensure(tx, new.scope).id
            old = _named(tx, new.scope, new.name)
            if old is not None and old.digest == new.digest:
                return old, "unchanged"
            if old is not None:
                tx.execute("DELETE FROM documents WHERE owner = ? AND id = ? AND doomed = 0", (owner, old.id))
            others, passages = tx.execute(_USED, (owner,)).fetchone()
            _check_room(others, passages, new, limits)
            generation = embeddings.generations_of(tx, self._embedding()).generation
            _insert(tx, owner, new, old, packed, generation)
            stored = _named(tx, new.scope, new.name)
            assert stored is not None
            return stored, "updated" if old else "created"

        return await self._database.write(work)

    async def named(self, scope: Scope, name: str) -> Document | None:
        return await self._database.read(lambda tx: _named(tx, scope, name))

    async def find(self, tenant: str, user: str | None, document_id: str) -> Document | None:
        asked = {"tenant": tenant, "user": user, "id": rows.storable(document_id)}

        def work(tx: Connection) -> Document | None:
            row = tx.execute(_DOCUMENT_BY_ID, asked).fetchone()
            return document_of(row) if row else None

        return await self._database.read(work)

    async def passages(self, document: Document) -> Sequence[Passage]:
        scope = document.scope
        asked = (document.id, document.version, scope.tenant, scope.user)

        def work(tx: Connection) -> Sequence[Passage]:
            found = tx.execute(_PASSAGES, asked).fetchall()
            with legible():
                return [passage_of(row) for row in found]

        return await self._database.read(work)

    async def list(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Document]:
        asked = {"tenant": scope.tenant, "user": scope.user, "project": scope.project, "limit": limit}

        def work(tx: Connection) -> Sequence[Document]:
            before = None
            if after is not None:
                row = tx.execute(_DOCUMENT_BY_ID, {**asked, "id": rows.storable(after)}).fetchone()
                if row is None:
                    raise NotFound("No document has this id.", param="after")
                before = row[0]
            return [document_of(row) for row in tx.execute(_LIST, {**asked, "before": before})]

        return await self._database.read(work)

    async def delete(self, document: Document, *, by: str, now: float) -> Forgotten:
        return await self._forgetting.forget_document(document.scope, document.id, by, now)


def _packed(passages: Sequence[Passage]) -> list[bytes]:
    return [pack(terms.terms(searched_text(p.headings, p.text))) for p in passages]


def document_of(row: Sequence[Any]) -> Document:
    """Return the document of a row of COLUMNS."""
    _, id_, tenant, user, project, name, version, digest, characters, sections, passages, *more = row
    created_at, updated_at, waiting = more
    return Document(
        id=id_, scope=Scope(tenant, user, project), name=name, version=version,
        status=INDEXING if waiting else READY, digest=digest, characters=characters, sections=sections,
        passages=passages, created_at=created_at, updated_at=updated_at,
    )  # fmt: skip


def _headings(passage: Passage) -> str:
    return rows.storable(json.dumps(passage.headings, ensure_ascii=False))


def passage_of(row: Sequence[Any]) -> Passage:
    """Return the passage of a row: headings, section, tile, start, lead."""
    headings, section, tile, start, lead = row
    return Passage(headings=tuple(json.loads(headings)), section=section, tile=tile, start=start, lead=lead)


def _named(tx: Connection, scope: Scope, name: str) -> Document | None:
    asked = {
        "tenant": scope.tenant, "user": scope.user, "in_project": scope.project or "",
        "name": rows.storable(name),
    }  # fmt: skip
    row = tx.execute(_NAMED, asked).fetchone()
    return document_of(row) if row else None


def _insert(
    tx: Connection,
    owner: int,
    new: NewDocument,
    old: Document | None,
    packed: Sequence[bytes],
    generation: int,
) -> None:
    last = new.passages[-1]
    of_document = (
        old.id if old else f"doc_{uuid4().hex}", owner, new.scope.project, rows.storable(new.name),
        old.version + 1 if old else 1, new.digest, last.start + len(last.tile),
        len({p.section for p in new.passages}), len(new.passages), old.created_at if old else new.at, new.at,
    )  # fmt: skip
    (document,) = tx.execute(_INSERT, of_document).fetchone()
    made = new.vectors if new.vectors is not None else (None,) * len(new.passages)
    generation = NO_MODEL if new.vectors is None else generation
    tx.executemany(
        _INSERT_PASSAGE,
        [
            (document, p.section, _headings(p), p.start, p.lead, rows.storable(p.tile), words,
             generation, vector)
            for p, words, vector in zip(new.passages, packed, made, strict=True)
        ],
    )  # fmt: skip


def _check_room(others: int, passages: int, new: NewDocument, limits: Limits) -> None:
    """Raise QuotaExceeded if this document exceeds the user's quota of documents or passages."""
    if others + 1 > limits.documents:
        raise QuotaExceeded(f"This user has {limits.documents} documents already, and may have no more.")
    if passages + len(new.passages) > limits.passages_of_user:
        raise QuotaExceeded(f"This user's documents may hold {limits.passages_of_user} passages together.")


# ---------------------------------------------------------------- the search index
_NO_STAMP = Stamp(0, 0)


@dataclass(frozen=True, slots=True)
class PassageRow:
    """A passage as the index reads it."""

    seq: int
    document: int
    section: int
    project: str | None
    vector: bytes | None
    terms: bytes


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage's number and scores, and its section's."""

    seq: int
    own: Scores
    section: Scores


@dataclass(frozen=True, slots=True)
class LibraryKey:
    """What an index was made of: a file, a state of the user's documents, the vectors that were compared."""

    epoch: int
    version: int
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LibraryIndex:
    """All documents of one user."""

    key: LibraryKey
    sections: UserIndex
    passages: UserIndex
    section_of: dict[int, int]  # by the passage's seq

    @property
    def nbytes(self) -> int:
        """Memory held, nearly."""
        return self.sections.nbytes + self.passages.nbytes + 100 * len(self.section_of)

    def search(self, project: str | None, look: Look) -> list[FoundPassage]:
        """Return the passages found, with both pairs of scores."""
        chosen: dict[int, Found] = {}
        types = None
        if look.sections:
            wanted = Search(look.vector, look.terms, limit=look.sections)
            chosen = {one.seq: one for one in self.sections.search(project, wanted)}
            types = frozenset(map(str, chosen))
        found = self.passages.search(project, Search(look.vector, look.terms, limit=look.limit, types=types))
        return [
            FoundPassage(one.seq, Scores(one.cosine, one.bm25), _scores(chosen.get(self.section_of[one.seq])))
            for one in found
        ]


def build_library(key: LibraryKey, rows: Sequence[PassageRow]) -> LibraryIndex:
    """Index the passages, which come in order. Raises DamagedRow for vectors of different
    lengths, and for terms that are no numbers."""
    numbers: dict[tuple[int, int], int] = {}
    members: dict[int, list[PassageRow]] = {}
    for row in rows:
        number = numbers.setdefault((row.document, row.section), len(numbers))
        members.setdefault(number, []).append(row)
    passages = [
        Row(row.seq, str(number), row.project, None, current=True, vector=row.vector, terms=row.terms)
        for number, of_section in members.items()
        for row in of_section
    ]
    with legible():
        sections = [_section(number, of_section) for number, of_section in members.items()]
    return LibraryIndex(
        key,
        sections=build(sections, _NO_STAMP),
        passages=build(passages, _NO_STAMP),
        section_of={row.seq: number for number, of_section in members.items() for row in of_section},
    )


def _section(number: int, rows: Sequence[PassageRow]) -> Row:
    words = b"".join(row.terms for row in rows)
    return Row(number, "", rows[0].project, None, current=True, vector=_centroid(rows), terms=words)


def _centroid(rows: Sequence[PassageRow]) -> bytes | None:
    """Return the unit vector in the middle of the passages' vectors."""
    vectors = [np.frombuffer(row.vector, np.float32) for row in rows if row.vector is not None]
    if not vectors:
        return None
    middle = np.sum(vectors, axis=0)
    length = float(np.linalg.norm(middle))
    return (middle / length).astype(np.float32).tobytes() if length else None


def _scores(found: Found | None) -> Scores:
    return Scores(found.cosine, found.bm25) if found else Scores()


# ---------------------------------------------------------------- passages
_HOLDS = """
    SELECT EXISTS (SELECT 1 FROM scopes s JOIN documents d ON d.owner = s.id
                   WHERE s.tenant = ? AND s.user = ? AND d.doomed = 0)
"""
_VERSION = "SELECT documents FROM scopes WHERE tenant = ? AND user = ?"
_ALL = """
    SELECT p.seq, p.document, p.section, d.project,
           iif(p.generation IN (SELECT CAST(value AS INTEGER) FROM json_each(:generations)),
               p.embedding, NULL), p.terms
    FROM documents d JOIN passages p ON p.document = d.seq
    WHERE d.owner = :owner AND d.doomed = 0 ORDER BY p.seq
"""
_FOUND_PASSAGES = f"""
    SELECT p.seq, p.headings, p.section, p.tile, p.start, p.lead, {COLUMNS}
    FROM passages p JOIN documents d ON d.seq = p.document JOIN scopes s ON s.id = d.owner
    WHERE p.seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) AND d.doomed = 0
"""
# Those without any vector, then those of an older model, each the oldest document first; of a user whose
# everything is being forgotten, none. Mostly there is nothing to do, which the index of the generations tells
# at once: hence CROSS JOIN, and the order.
_PENDING = """
    SELECT p.seq, p.headings, p.tile, p.lead FROM passages p CROSS JOIN documents d ON d.seq = p.document
    CROSS JOIN scopes s ON s.id = d.owner
    WHERE p.generation < ? AND d.doomed = 0 AND s.user IS NOT NULL ORDER BY p.generation, p.seq LIMIT ?
"""
_FILL = """
    UPDATE passages SET embedding = :vector, generation = :generation
    WHERE seq = :seq AND generation < :generation
"""
_OWNERS = """
    SELECT d.owner FROM passages p JOIN documents d ON d.seq = p.document
    WHERE p.seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?))
"""
_CHANGED = f"UPDATE scopes SET documents = documents + 1 WHERE id IN ({_OWNERS})"


class SqlPassages:
    """Passages in the rows of one file, searched in arrays of the user's own."""

    def __init__(
        self, database: Database, embedding: Callable[[], EmbeddingModel | None], *, index_bytes: int
    ) -> None:
        self._database = database
        self._embedding = embedding
        # One that is larger than all of it is cached alone, and not built for every search.
        self._indexes = TTLCache[int, LibraryIndex](
            index_bytes, size_of=lambda index: min(index.nbytes, index_bytes)
        )

    async def holds(self, scope: Scope) -> bool:
        def work(tx: Connection) -> bool:
            (holds,) = tx.execute(_HOLDS, (scope.tenant, scope.user)).fetchone()
            return bool(holds)

        return await self._database.begin_read(work)

    async def search(self, scope: Scope, look: Look) -> Sequence[PassageHit]:
        def work(tx: Connection) -> Sequence[PassageHit]:
            version, owner = _version(tx, scope), users.find(tx, scope)
            if not version or owner is None:
                return ()
            found = self._index(tx, owner.id, version).search(scope.project, look)
            return _hits(tx, found)

        return await self._database.read(work)

    async def pending(self, limit: int) -> Sequence[Pending]:
        def work(tx: Connection) -> Sequence[Pending]:
            last, ours = embeddings.newest_model(tx), embeddings.generations_of(tx, self._embedding())
            if last is None or last[0] != ours.generation:
                return ()  # another process is about to give them vectors of another model
            found = tx.execute(_PENDING, (last[0], limit)).fetchall()
            with legible():
                return [
                    Pending(seq, tuple(json.loads(headings)), tile[lead:].strip())
                    for seq, headings, tile, lead in found
                ]

        return await self._database.read(work)

    async def fill(self, made: Sequence[tuple[Pending, bytes | None]]) -> int:
        def work(tx: Connection) -> int:
            generation = embeddings.generations_of(tx, self._embedding()).generation
            seqs = (rows.as_json(one.seq for one, _ in made),)
            users.lock_all(tx, _OWNERS, seqs)
            count = 0
            for one, vector in made:
                changed = {"vector": vector, "generation": generation, "seq": one.seq}
                count += tx.execute(_FILL, changed).rowcount
            tx.execute(_CHANGED, seqs)
            return count

        return await self._database.write(work)

    def let_go(self, owner: int) -> None:
        """Drop what is held in memory of a user."""
        self._indexes.pop(owner)

    def _index(self, tx: Connection, owner: int, version: int) -> LibraryIndex:
        generations = embeddings.generations_of(tx, self._embedding()).generations
        key = LibraryKey(self._database.epoch, version, generations)
        index = self._indexes.get(owner)
        if index is None or index.key != key:
            asked = {"owner": owner, "generations": rows.as_json(generations)}
            found = tx.execute(_ALL, asked).fetchall()
            index = build_library(key, [PassageRow(*row) for row in found])
            self._indexes.put(owner, index)
        return index


def _version(tx: Connection, scope: Scope) -> int:
    row = tx.execute(_VERSION, (scope.tenant, scope.user)).fetchone()
    return int(row[0]) if row else 0


def _hits(tx: Connection, found: Sequence[FoundPassage]) -> Sequence[PassageHit]:
    read = {row[0]: row[1:] for row in tx.execute(_FOUND_PASSAGES, (rows.as_json(one.seq for one in found),))}
    with legible():
        return [
            PassageHit(document_of(read[one.seq][5:]), passage_of(read[one.seq][:5]), one.own, one.section)
            for one in found
            if one.seq in read
        ]
