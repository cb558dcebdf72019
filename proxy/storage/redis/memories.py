"""The MemoryStore over Redis and an index: see ports.MemoryStore for what every method guarantees."""

from collections.abc import Mapping, Sequence

from proxy import telemetry
from proxy.domain.core import (
    Change,
    Event,
    Forgotten,
    Hit,
    Job,
    Memory,
    MemoryFilter,
    Page,
    Scope,
    Search,
    Stamp,
)
from proxy.domain.errors import Conflict
from proxy.domain.oversight import Applied, Quota
from proxy.domain.ports import EmbeddingModel, SortProfile
from proxy.storage.generations import Held
from proxy.storage.redis import model, queue, rows
from proxy.storage.redis.changes import Writer
from proxy.storage.redis.expiry import expire
from proxy.storage.redis.forgetting import Forgetting
from proxy.storage.redis.indexing import Indexing
from proxy.storage.redis.listing import Listing
from proxy.storage.redis.quota import apply_within
from proxy.storage.redis.reembed import RedisVectors
from proxy.storage.redis.rows import Rows
from proxy.storage.redis.search import Searching
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.redis.way import make_way
from proxy.storage.vector_index import VectorIndex

UNLIMITED = Quota()


class RedisMemories:
    """Memories as rows of Redis, found by an index. What is acknowledged is durable in Redis; the index
    follows, at once where it can be reached."""

    def __init__(self, units: Units, index: VectorIndex, *, quota: Quota = UNLIMITED) -> None:
        self._units, self._quota = units, quota
        self._model: EmbeddingModel | None = None
        self._searching = Searching(units, index)
        self._listing = Listing(units)
        self.indexing = Indexing(units, index)
        self.vectors = RedisVectors(units, self.indexing)
        self.forgetting = Forgetting(units, self.indexing)

    @property
    def embedding(self) -> EmbeddingModel | None:
        """Whose vectors this process makes and compares."""
        return self._model

    async def stamp_model(self, embedding: EmbeddingModel) -> None:
        """Bind the store to the model whose vectors it holds. Raises WrongModel where it is another's."""
        await model.stamp(self._units.redis, embedding)
        self._model = embedding

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        held = model.held(self._units.redis, self._model)
        return await self._searching.search(scope, search, held)

    async def snapshot(self, scope: Scope, sort: SortProfile | None = None) -> None:
        """See MemoryStore: there is none, since the index is elsewhere."""

    async def stamp(self, scope: Scope) -> Stamp:
        async def work(unit: Unit) -> Stamp:
            return unit.stamp

        return await self._units.glance(scope, work)

    async def apply(
        self, scope: Scope, changes: Sequence[Change], *, expect: Stamp, done: Job | None = None
    ) -> Applied:
        held = await model.held(self._units.redis, self._model)

        async def work(unit: Unit) -> Applied:
            return await self._apply(unit, scope, changes, expect, done, held)

        applied = await self._units.write(scope, work)
        await self.indexing.settle(scope)
        if applied.evicted:
            telemetry.log.info("memory.evicted", count=applied.evicted)
        if applied.refused:
            telemetry.log.info("memory.refused", count=len(applied.refused))
        return applied

    async def touch(self, scope: Scope, ids: Sequence[str], at: float) -> None:
        await self._units.write(scope, lambda unit: rows.touch(unit, ids, at))

    async def get(self, where: MemoryFilter, memory_id: str) -> Memory | None:
        return await self._listing.get(where, memory_id)

    async def list(
        self,
        where: MemoryFilter,
        *,
        limit: int,
        after: str | None = None,
        oldest_first: bool = False,
        total: bool = True,
    ) -> Page:
        return await self._listing.page(
            where, limit=limit, after=after, oldest_first=oldest_first, total=total
        )

    async def history(self, where: MemoryFilter, ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        return await self._listing.history(where, ids)

    async def forget(
        self, where: MemoryFilter, memory_id: str | None = None, *, by: str, dry_run: bool = False
    ) -> Forgotten:
        if dry_run:
            return await self.forgetting.count(where, memory_id)
        return await self.forgetting.forget(where, memory_id, by)

    async def resume_forgets(self) -> int:
        """Go on with what a crash broke off; return how many forgets."""
        return await self.forgetting.resume()

    async def expire(self, now: float) -> int:
        """Erase memories that expired more than a day ago, each user's with a receipt; return how many."""
        return await expire(self._units, self.indexing, now)

    async def _apply(
        self,
        unit: Unit,
        scope: Scope,
        changes: Sequence[Change],
        expect: Stamp,
        done: Job | None,
        held: Held,
    ) -> Applied:
        if unit.stamp != expect:
            raise Conflict("the user's memories have changed meanwhile")
        if done is not None:
            await queue.finish(unit, done)
        await make_way(unit, changes)
        writer = Writer(Rows(unit), scope, expect.version + 1, held, embeds=self._model is not None)
        await writer.fetch(changes)
        result = await apply_within(self._quota, writer, changes)
        if result.changed:
            unit.set_number("version", expect.version + 1)
        return Applied(result.refused, result.evicted, tuple(writer.dropped))
