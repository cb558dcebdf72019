"""The DocumentStore and the PassageIndex over SQL: see domain/documents.py for what every method guarantees.

Passages are searched in the arrays that serve memories: sections first, then the passages of those that were
chosen. A section's vector is the mean of its passages' vectors, its words are all of theirs."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from proxy.domain.core import ForgetCounts, Scope, Search, Stamp
from proxy.domain.documents import (
    INDEXING,
    READY,
    Document,
    DocumentChange,
    DocumentLimits,
    NewDocument,
    Passage,
    PassageHit,
    PassageScores,
    PassageSearch,
    PassageToEmbed,
    searched_text,
)
from proxy.domain.errors import QuotaExceeded
from proxy.domain.limits import TTLCache
from proxy.domain.ports import EmbeddingModel
from proxy.storage.exact_index import Row, UserIndex, build, pack
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, Database, Store, legible, reads, value, writes
from proxy.storage.sql.forget import Forgetting
from proxy.storage.sql.rows import NO_MODEL
from proxy.text.words import terms

# ---------------------------------------------------------------- documents
COLUMNS = """
    d.id, s.tenant, s.user, d.project, d.name, d.version, d.digest, d.characters, d.sections,
    d.passages, d.created_at, d.updated_at,
    EXISTS (SELECT 1 FROM passages p WHERE p.document = d.seq AND p.generation < (
                SELECT max(generation) FROM embeddings)) AS waiting"""
_SAME = (
    "id", "name", "version", "digest", "characters", "sections", "passages", "created_at", "updated_at",
)  # fmt: skip
_FROM = "FROM documents d JOIN scopes s ON s.id = d.owner WHERE d.doomed = 0"
_DOCUMENTS = f"SELECT {COLUMNS} {_FROM}"
_NAMED = f"""
    {_DOCUMENTS} AND s.tenant = :tenant AND s.user = :user AND coalesce(d.project, '') = :in_project
    AND d.name = :name"""
_BY_ID = f"{_FROM} AND d.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"
_LIST = f"""
    {_DOCUMENTS} AND s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR d.project = :project)
    AND (:before IS NULL OR d.seq < :before) ORDER BY d.seq DESC LIMIT :limit"""
_USED = "SELECT count(*), coalesce(sum(passages), 0) FROM documents WHERE owner = ? AND doomed = 0"
_INSERT_PASSAGE = """
    INSERT INTO passages (document, section, headings, start, lead, tile, terms, generation, embedding)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# By the id too: its document may have a later version already.
_PASSAGES = """
    SELECT p.headings, p.section, p.tile, p.start, p.lead
    FROM documents d JOIN passages p ON p.document = d.seq JOIN scopes s ON s.id = d.owner
    WHERE d.id = ? AND d.version = ? AND s.tenant = ? AND s.user = ? AND d.doomed = 0 ORDER BY p.seq"""


class SqlDocuments(Store):
    """Documents of all processes that share the file. `embedding`: the model of this process's vectors."""

    def __init__(
        self, database: Database, forgetting: Forgetting, embedding: Callable[[], EmbeddingModel | None]
    ) -> None:
        super().__init__(database)
        self._forgetting = forgetting
        self._embedding = embedding

    async def put(self, new: NewDocument, limits: DocumentLimits) -> tuple[Document, DocumentChange]:
        # Neither in the event loop nor in the transaction: others wait for both.
        texts = [searched_text(p.headings, p.text) for p in new.passages]
        packed = await asyncio.to_thread(lambda: [pack(terms(text)) for text in texts])

        def work(tx: Connection) -> tuple[Document, DocumentChange]:
            owner = rows.ensure_owner(tx, new.scope).id
            old = _named(tx, new.scope, new.name)
            if old is not None and old.digest == new.digest:
                return old, "unchanged"
            if old is not None:
                tx.execute("DELETE FROM documents WHERE owner = ? AND id = ? AND doomed = 0", (owner, old.id))
            documents, passages = tx.execute(_USED, (owner,)).fetchone()
            if documents + 1 > limits.documents:
                most = limits.documents
                raise QuotaExceeded(f"This user has {most} documents already, and may have no more.")
            if passages + len(new.passages) > limits.passages_of_user:
                most = limits.passages_of_user
                raise QuotaExceeded(f"This user's documents may hold {most} passages together.")
            generation = rows.generations_of(tx, self._embedding()).generation
            last = new.passages[-1]
            document = rows.insert(
                tx, "documents", "RETURNING seq", id=old.id if old else f"doc_{uuid4().hex}", owner=owner,
                project=new.scope.project, name=rows.storable(new.name),
                version=old.version + 1 if old else 1,
                digest=new.digest, characters=last.start + len(last.tile), passages=len(new.passages),
                sections=len({p.section for p in new.passages}), created_at=old.created_at if old else new.at,
                updated_at=new.at,
            )  # fmt: skip
            made = new.vectors if new.vectors is not None else (None,) * len(new.passages)
            made_by = NO_MODEL if new.vectors is None else generation
            inserted = []
            for p, words, vector in zip(new.passages, packed, made, strict=True):
                headings = rows.storable(json.dumps(p.headings, ensure_ascii=False))
                tile = rows.storable(p.tile)
                inserted.append(
                    (document, p.section, headings, p.start, p.lead, tile, words, made_by, vector)
                )
            tx.executemany(_INSERT_PASSAGE, inserted)
            stored = _named(tx, new.scope, new.name)
            assert stored is not None
            return stored, "updated" if old else "created"

        return await self._database.write(work)

    @reads
    def named(self, tx: Connection, scope: Scope, name: str) -> Document | None:
        return _named(tx, scope, name)

    @reads
    def find(self, tx: Connection, tenant: str, user: str | None, document_id: str) -> Document | None:
        asked = {"tenant": tenant, "user": user, "id": rows.storable(document_id)}
        return next(map(_document, rows.records(tx, f"SELECT {COLUMNS} {_BY_ID}", asked)), None)

    @reads
    def passages(self, tx: Connection, document: Document) -> Sequence[Passage]:
        scope = document.scope
        asked = (document.id, document.version, scope.tenant, scope.user)
        found = rows.records(tx, _PASSAGES, asked)
        with legible():
            return [Passage(headings=tuple(json.loads(row.pop("headings"))), **row) for row in found]

    @reads
    def list(
        self, tx: Connection, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[Document]:
        asked = rows.named(scope, limit=limit, before=None)
        if after is not None:
            named = rows.named(scope, id=rows.storable(after))
            asked["before"] = rows.place_after(
                tx, f"SELECT d.seq {_BY_ID}", named, "No document has this id."
            )
        return list(map(_document, rows.records(tx, _LIST, asked)))

    async def delete(self, document: Document, *, by: str, now: float) -> ForgetCounts:
        return await self._forgetting.forget_document(document.scope, document.id, by, now)


def _document(row: dict[str, Any]) -> Document:
    """Take the columns of a document out of the row."""
    same = {name: row.pop(name) for name in _SAME}
    return Document(scope=rows.scope_in(row), status=INDEXING if row.pop("waiting") else READY, **same)


def _named(tx: Connection, scope: Scope, name: str) -> Document | None:
    asked = rows.named(scope, in_project=scope.project or "", name=rows.storable(name))
    return next(map(_document, rows.records(tx, _NAMED, asked)), None)


# ---------------------------------------------------------------- the search index
_NO_STAMP = Stamp(0, 0)
LibraryKey = tuple[int, int, tuple[int, ...]]
"""What an index was made of: the database's epoch, a state of the user's documents, the generations of
vectors that are compared."""


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

    def search(
        self, project: str | None, look: PassageSearch
    ) -> list[tuple[int, PassageScores, PassageScores]]:
        """Return the numbers of the passages found, with their own scores and their section's."""
        chosen: dict[int, PassageScores] = {}
        types = None
        if look.sections:
            wanted = Search(look.vector, look.terms, limit=look.sections)
            best = self.sections.search(project, wanted)
            chosen = {section.seq: PassageScores(section.cosine, section.bm25) for section in best}
            types = frozenset(map(str, chosen))
        found = self.passages.search(project, Search(look.vector, look.terms, limit=look.limit, types=types))
        none = PassageScores()
        return [
            (one.seq, PassageScores(one.cosine, one.bm25), chosen.get(self.section_of[one.seq], none))
            for one in found
        ]


def build_library(key: LibraryKey, found: Iterable[Sequence[Any]]) -> LibraryIndex:
    """Index the passages (seq, document, section, project, vector, terms), which come in order. Raises
    DamagedRow for vectors of different lengths, and for terms that are not numbers."""
    numbers: dict[tuple[int, int], int] = {}
    members: dict[int, list[Row]] = {}
    for seq, document, section, project, vector, words in found:
        number = numbers.setdefault((document, section), len(numbers))
        row = Row(seq, str(number), project, None, current=True, vector=vector, terms=words)
        members.setdefault(number, []).append(row)
    sections = []
    for number, of_section in members.items():
        with legible():
            vectors = [np.frombuffer(row.vector, np.float32) for row in of_section if row.vector is not None]
            middle = np.sum(vectors, axis=0) if vectors else np.zeros(1)
        length = float(np.linalg.norm(middle))
        centroid = (middle / length).astype(np.float32).tobytes() if length else None
        words = b"".join(row.terms for row in of_section)
        project = of_section[0].project
        sections.append(Row(number, "", project, None, current=True, vector=centroid, terms=words))
    return LibraryIndex(
        key,
        sections=build(sections, _NO_STAMP),
        passages=build([row for of_section in members.values() for row in of_section], _NO_STAMP),
        section_of={row.seq: number for number, of_section in members.items() for row in of_section},
    )


# ---------------------------------------------------------------- passages
_HOLDS = """
    SELECT EXISTS (SELECT 1 FROM scopes s JOIN documents d ON d.owner = s.id
                   WHERE s.tenant = ? AND s.user = ? AND d.doomed = 0)"""
_VERSION = "SELECT id, documents FROM scopes WHERE tenant = ? AND user = ?"
_ALL = f"""
    SELECT p.seq, p.document, p.section, d.project,
           iif(p.generation IN {rows.seqs_in(":generations")}, p.embedding, NULL), p.terms
    FROM documents d JOIN passages p ON p.document = d.seq
    WHERE d.owner = :owner AND d.doomed = 0 ORDER BY p.seq"""
_FOUND_PASSAGES = f"""
    SELECT p.seq, p.headings, p.section, p.tile, p.start, p.lead, {COLUMNS}
    FROM passages p JOIN documents d ON d.seq = p.document JOIN scopes s ON s.id = d.owner
    WHERE p.seq IN {rows.seqs_in("?")} AND d.doomed = 0"""
# Those without any vector, then those of an older model, the oldest first; none of users who are being
# forgotten. Mostly there is nothing to do, which the index of the generations shows at once: hence CROSS
# JOIN, and the order.
_PENDING = """
    SELECT p.seq, p.headings, p.tile, p.lead FROM passages p CROSS JOIN documents d ON d.seq = p.document
    CROSS JOIN scopes s ON s.id = d.owner
    WHERE p.generation < ? AND d.doomed = 0 AND s.user IS NOT NULL ORDER BY p.generation, p.seq LIMIT ?"""
_FILL = """
    UPDATE passages SET embedding = :vector, generation = :generation
    WHERE seq = :seq AND generation < :generation"""
_OWNERS = f"""
    SELECT d.owner FROM passages p JOIN documents d ON d.seq = p.document
    WHERE p.seq IN {rows.seqs_in("?")}"""
_CHANGED = f"UPDATE scopes SET documents = documents + 1 WHERE id IN ({_OWNERS})"


class SqlPassages(Store):
    """Passages in the rows of one file, searched in arrays of the user's own."""

    def __init__(
        self, database: Database, embedding: Callable[[], EmbeddingModel | None], *, index_bytes: int
    ) -> None:
        super().__init__(database)
        self._embedding = embedding
        # One that is larger than all of it is cached alone, and not built for every search.
        self._indexes = TTLCache[int, LibraryIndex](
            index_bytes, size_of=lambda index: min(index.nbytes, index_bytes)
        )
        self.drop_cache = self._indexes.pop  # of one owner

    async def holds(self, scope: Scope) -> bool:
        asked = (scope.tenant, scope.user)
        return await self._database.begin_read(lambda tx: bool(value(tx, _HOLDS, asked)))

    @reads
    def search(self, tx: Connection, scope: Scope, look: PassageSearch) -> Sequence[PassageHit]:
        row = tx.execute(_VERSION, (scope.tenant, scope.user)).fetchone()
        if not row or not row[1]:
            return ()
        owner, version = row
        generations = rows.generations_of(tx, self._embedding()).generations
        key = (self._database.epoch, version, generations)
        index = self._indexes.get(owner)
        if index is None or index.key != key:
            asked = {"owner": owner, "generations": rows.as_json(generations)}
            index = build_library(key, tx.execute(_ALL, asked).fetchall())
            self._indexes.put(owner, index)
        found = index.search(scope.project, look)
        seqs = (rows.as_json(seq for seq, _, _ in found),)
        read = {row.pop("seq"): row for row in rows.records(tx, _FOUND_PASSAGES, seqs)}
        hits = []
        with legible():
            for seq, own, section in found:
                if (record := read.get(seq)) is not None:
                    document, headings = _document(record), tuple(json.loads(record.pop("headings")))
                    hits.append(PassageHit(document, Passage(headings=headings, **record), own, section))
        return hits

    @reads
    def pending(self, tx: Connection, limit: int) -> Sequence[PassageToEmbed]:
        last, ours = rows.newest_model(tx), rows.generations_of(tx, self._embedding())
        if last is None or last[0] != ours.generation:
            return ()  # another process is about to give them vectors of another model
        found = tx.execute(_PENDING, (last[0], limit)).fetchall()
        with legible():
            return [
                PassageToEmbed(seq, tuple(json.loads(headings)), tile[lead:].strip())
                for seq, headings, tile, lead in found
            ]

    @writes
    def fill(self, tx: Connection, made: Sequence[tuple[PassageToEmbed, bytes | None]]) -> int:
        generation = rows.generations_of(tx, self._embedding()).generation
        seqs = (rows.as_json(one.seq for one, _ in made),)
        rows.lock_owners(tx, _OWNERS, seqs)
        of_each = ({"vector": vector, "generation": generation, "seq": one.seq} for one, vector in made)
        count = sum(tx.execute(_FILL, changed).rowcount for changed in of_each)
        tx.execute(_CHANGED, seqs)
        return count
