"""The DocumentStore over SQL: see documents.DocumentStore for what every method guarantees."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from proxy.domain.core import Forgotten, Scope
from proxy.domain.documents import (
    INDEXING,
    READY,
    Change,
    Document,
    Limits,
    NewDocument,
    Passage,
    searched_text,
)
from proxy.domain.errors import NotFound, QuotaExceeded
from proxy.domain.ports import EmbeddingModel
from proxy.storage.damage import legible
from proxy.storage.sql import model, owners, rows
from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.forgetting.forget import Forgetting
from proxy.storage.sql.model import NO_MODEL
from proxy.storage.vectors.exact.postings import pack
from proxy.text import terms

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
_FOUND = f"{_DOCUMENTS} AND d.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"
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
            owners.lock(tx, new.scope)
            old = _named(tx, new.scope, new.name)
            if old is not None and old.digest == new.digest:
                return old, "unchanged"
            owner = owners.ensure(tx, new.scope).id
            if old is not None:
                tx.execute("DELETE FROM documents WHERE owner = ? AND id = ? AND doomed = 0", (owner, old.id))
            others, passages = tx.execute(_USED, (owner,)).fetchone()
            _check_room(others, passages, new, limits)
            generation = model.held(tx, self._embedding()).generation
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
            row = tx.execute(_FOUND, asked).fetchone()
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
                row = tx.execute(_FOUND, {**asked, "id": rows.storable(after)}).fetchone()
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
