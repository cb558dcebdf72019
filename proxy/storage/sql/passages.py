"""The PassageIndex over SQL: see documents.PassageIndex for what every method guarantees."""

import json
from collections.abc import Callable, Sequence

from proxy.domain.cache import TTLCache
from proxy.domain.core import Scope
from proxy.domain.documents import Look, PassageHit, Pending
from proxy.domain.ports import EmbeddingModel
from proxy.storage.damage import legible
from proxy.storage.sql import model, owners, rows
from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.documents import COLUMNS, document_of, passage_of
from proxy.storage.vectors.exact.library import FoundPassage, Key, LibraryIndex, PassageRow, build_library

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
_FOUND = f"""
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
            version, owner = _version(tx, scope), owners.find(tx, scope)
            if not version or owner is None:
                return ()
            found = self._index(tx, owner.id, version).search(scope.project, look)
            return _hits(tx, found)

        return await self._database.read(work)

    async def pending(self, limit: int) -> Sequence[Pending]:
        def work(tx: Connection) -> Sequence[Pending]:
            last, ours = model.newest(tx), model.held(tx, self._embedding())
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
            generation = model.held(tx, self._embedding()).generation
            seqs = (rows.as_json(one.seq for one, _ in made),)
            owners.lock_all(tx, _OWNERS, seqs)
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
        generations = model.held(tx, self._embedding()).generations
        key = Key(self._database.epoch, version, generations)
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
    read = {row[0]: row[1:] for row in tx.execute(_FOUND, (rows.as_json(one.seq for one in found),))}
    with legible():
        return [
            PassageHit(document_of(read[one.seq][5:]), passage_of(read[one.seq][:5]), one.own, one.section)
            for one in found
            if one.seq in read
        ]
