"""The DocumentStore over Redis: see documents.DocumentStore for what every method guarantees.

A document is written in one commit, with all of its passages and in the place of its last version: whoever
is killed before it leaves nothing, and of two replicas that replace it at once the later one replaces what
the other has written.
"""

import asyncio
from collections.abc import Callable, Sequence

from proxy.domain.core import Forgotten, Scope
from proxy.domain.documents import Change, Document, Limits, NewDocument, Passage
from proxy.domain.errors import NotFound
from proxy.domain.ports import EmbeddingModel
from proxy.storage.redis import library, model
from proxy.storage.redis.forgetting import Forgetting
from proxy.storage.redis.layout import DocumentRow, PassageRow, storable
from proxy.storage.redis.library import document_of, passage_of
from proxy.storage.redis.unit import Unit, Units


class RedisDocuments:
    """Documents of all replicas. `embedding`: whose vectors this process makes."""

    def __init__(
        self, units: Units, forgetting: Forgetting, embedding: Callable[[], EmbeddingModel | None]
    ) -> None:
        self._units, self._forgetting, self._embedding = units, forgetting, embedding

    async def put(self, new: NewDocument, limits: Limits) -> tuple[Document, Change]:
        redis = self._units.redis
        words = await asyncio.to_thread(lambda: [library.packed_terms(p) for p in new.passages])
        held, newest = await asyncio.gather(model.held(redis, self._embedding()), model.newest(redis))

        async def work(unit: Unit) -> tuple[Document, Change]:
            old = await library.named(unit, new.scope.project, new.name)
            if old is not None and old[1]["digest"] == new.digest.hex():
                return document_of(new.scope, *old, newest), "unchanged"
            library.check_room(unit, new, old and old[1], limits)
            made = await library.put(unit, new, words, held.generation)
            return document_of(new.scope, *made, newest), "updated" if old else "created"

        return await self._units.write(new.scope, work)

    async def named(self, scope: Scope, name: str) -> Document | None:
        async def work(unit: Unit) -> tuple[str, DocumentRow] | None:
            return await library.named(unit, scope.project, name)

        found, newest = await asyncio.gather(self._units.read(scope, work), self._newest())
        return found and document_of(scope, *found, newest)

    async def find(self, tenant: str, user: str | None, document_id: str) -> Document | None:
        id_ = storable(document_id)
        scope = Scope(tenant, user) if user is not None else await self._holder(tenant, id_)
        if scope is None:
            return None
        read = self._units.glance(scope, lambda unit: unit.table("documents").get(id_))
        row, newest = await asyncio.gather(read, self._newest())
        return row and document_of(scope, id_, row, newest)

    async def passages(self, document: Document) -> Sequence[Passage]:
        id_ = document.id

        async def work(unit: Unit) -> Sequence[Passage]:
            documents, passages = unit.table("documents"), unit.table(f"passages:{id_}")
            await unit.fetch((documents, (id_,)), (passages, None))
            row: DocumentRow | None = await documents.get(id_)
            if row is None or row["version"] != document.version:
                return []
            found: dict[str, PassageRow] = await passages.all()
            return [passage_of(found[str(number)]) for number in library.numbers_of(row)]

        return await self._units.read(document.scope, work)

    async def list(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Document]:
        async def work(unit: Unit) -> dict[str, DocumentRow]:
            return await unit.table("documents").all()

        rows, newest = await asyncio.gather(self._units.glance(scope, work), self._newest())
        edge = None if after is None else rows.get(storable(after))
        if after is not None and edge is None:
            raise NotFound("No document has this id.", param="after")
        project = scope.project and storable(scope.project)
        wanted = {
            id_: row
            for id_, row in rows.items()
            if project in (None, row["project"]) and (edge is None or row["seq"] < edge["seq"])
        }
        ids = sorted(wanted, key=lambda each: wanted[each]["seq"], reverse=True)
        return [document_of(scope, id_, wanted[id_], newest) for id_ in ids[:limit]]

    async def delete(self, document: Document, *, by: str, now: float) -> Forgotten:
        return await self._forgetting.forget_document(document.scope, document.id, by, now)

    async def _holder(self, tenant: str, document_id: str) -> Scope | None:
        redis = self._units.redis
        holder = await redis.call("HGET", library.ids_key(redis, tenant), document_id)
        return None if holder is None else (await self._units.scopes((holder.decode(),))).get(holder.decode())

    async def _newest(self) -> int:
        return await model.newest(self._units.redis)
