"""Re-embed the memories with another model, some hundred at a time, while requests go on.

The new model is the store's from the first moment; what has none of its vectors yet is found by its words.
A process killed in the middle leaves nothing to mend: what is still to do is told by the rows themselves.
Where the index was lost, this makes it anew: the texts are here, its vectors are nowhere else.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.domain.core import Scope
from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.redis import model, order
from proxy.storage.redis.indexing import Indexing
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.rows import Rows
from proxy.storage.redis.unit import Unit, Units


@dataclass(frozen=True, slots=True)
class Stale:
    """A memory that waits for a vector of the new model. `written` tells whether it was changed since."""

    owner: str  # its user's uid
    seq: int
    id: str
    written: int
    content: str


class RedisVectors:
    """The vectors of all users, for `memory-proxy reembed`."""

    def __init__(self, units: Units, indexing: Indexing) -> None:
        self._units, self._indexing = units, indexing

    async def begin(self, embedding: EmbeddingModel, *, anew: bool = False) -> int:
        """Make the model the store's and return its generation: the last one, where it is this model's
        already and not all is to be done `anew`."""
        named = await model.models(self._units.redis)
        if named and not anew and named[-1] == (embedding.name, embedding.dimension):
            return len(named) - 1
        return await model.begin(self._units.redis, embedding)

    async def count(self, generation: int) -> int:
        """Return how many memories have no vector of the generation."""
        total = 0
        for scope in (await self._users("")).values():
            total += await self._units.glance(scope, lambda unit: _count(unit, generation))
        return total

    async def stale(self, generation: int, after: Stale | None, limit: int) -> list[Stale]:
        """Return the next memories that have no vector of the generation, in a fixed order: one user after
        another, so that each has memories of two kinds for as short as can be."""
        found: list[Stale] = []
        for owner, scope in (await self._users(after.owner if after else "")).items():
            edge = after.seq if after and after.owner == owner else None
            if not await self._units.glance(scope, lambda unit: _count(unit, generation)):
                continue
            async for stale in self._of_one(owner, scope, generation, edge):
                found.append(stale)
                if len(found) == limit:
                    return found
        return found

    async def put(self, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None for what the model does not
        understand. What was changed or forgotten since it was read is left as it is.

        Raises WrongModel if the store has another model by now.
        """
        if len(await model.models(self._units.redis)) != generation + 1:
            raise WrongModel("the memories are being embedded with yet another model")
        by_owner: dict[str, list[tuple[Stale, bytes | None]]] = {}
        for stale, vector in made:
            by_owner.setdefault(stale.owner, []).append((stale, vector))
        scopes, count = await self._units.scopes(by_owner), 0
        for owner, some in by_owner.items():
            if (scope := scopes.get(owner)) is not None:
                count += await self._put(scope, generation, some)
                await self._indexing.settle(scope)
        return count

    async def _put(self, scope: Scope, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        async def work(unit: Unit) -> int:
            rows, version, count = Rows(unit), unit.stamp.version + 1, 0
            await rows.fetch([stale.id for stale, _ in made])
            for stale, vector in made:
                row = await rows.get(stale.id)
                if row is None or row["written"] != stale.written:
                    continue
                # Written anew: an index that knows the memory takes its vector to be the one that it has.
                vector_of = None if vector is None else version
                new: MemoryRow = {**row, "written": version, "vector": vector_of, "generation": generation}
                await rows.put(stale.id, new)
                if new["superseded_by"] is None:
                    rows.add_vector(stale.id, vector, generation)
                count += 1
            if count:
                unit.set_number("version", version)
            return count

        return await self._units.write(scope, work)

    async def _of_one(
        self, owner: str, scope: Scope, generation: int, edge: int | None
    ) -> AsyncIterator[Stale]:
        async for some in order.walk(self._units, scope, edge=edge, oldest_first=True):
            for memory_id, row in some.items():
                if row["generation"] != generation:
                    yield Stale(owner, row["seq"], memory_id, row["written"], row["content"])

    async def _users(self, since: str) -> Mapping[str, Scope]:
        """Return the users from one uid on, in their order."""
        everybody = await self._units.redis.call("HKEYS", self._units.redis.key("users"))
        uids = sorted(uid.decode() for uid in everybody)
        return await self._units.scopes(uid for uid in uids if uid >= since)


async def _count(unit: Unit, generation: int) -> int:
    counters = unit.numbers("of:").items()
    return sum(count for name, count in counters if name != f"of:{generation}")
