"""Search a user's memories: candidates from the index, the truth from the rows.

A candidate counts only if its row is there, is current, and has the vector that was compared. What the index
does not hold yet is looked at here, so that everybody finds what was stored, at once. Without the index, the
newest memories are searched by their words.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proxy.domain.core import Hit, Scope, Search
from proxy.domain.errors import WrongModel
from proxy.storage.generations import Held
from proxy.storage.redis import order, orders, words
from proxy.storage.redis.layout import MemoryRow
from proxy.storage.redis.rows import memory_of
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.redis.words import Statistics
from proxy.storage.vector_index import IndexUnavailable, Near, Query, VectorIndex, Wanted

NEWEST = 2000  # current memories that are searched without the index
_PENDING = 500  # memories not indexed yet that a search looks at
_MORE = 20  # candidates beyond the limit: some are outdated, and the index's order by words is about right
_FURTHER = 4


@dataclass(frozen=True, slots=True)
class _Known:
    """What has to be known of the user before the index is asked."""

    unit: Unit
    generations: tuple[int, ...]  # those that the index has memories of; none where all are pending
    statistics: Statistics
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Scored:
    memory_id: str
    row: MemoryRow
    bm25: float
    cosine: float | None = None
    vector: bytes | None = None


class Searching:
    """Searches of one process."""

    def __init__(self, units: Units, index: VectorIndex) -> None:
        self._units, self._index = units, index

    async def search(self, scope: Scope, search: Search, model: Awaitable[Held]) -> list[Hit]:
        """Return the best `search.limit` by cosine and the best by BM25, each with both scores."""
        wanted = Wanted(scope.project, search.types, search.now)
        held, known = await asyncio.gather(
            model, self._units.glance(scope, lambda unit: _know(unit, search, wanted))
        )
        if known is None:
            return []
        if search.vector is not None and held.dimension not in (None, len(search.vector) // 4):
            dimension = len(search.vector) // 4
            raise WrongModel(f"a query of {dimension} dimensions, the store holds {held.dimension}")
        try:
            found = await self._by_index(search, wanted, known, held)
        except IndexUnavailable:
            found = await self._by_words(scope, wanted, known.statistics)
        return [
            Hit(memory_of(scope, each.memory_id, each.row), each.cosine, each.bm25, each.vector)
            for each in _best(found, search)
        ]

    async def _by_index(self, search: Search, wanted: Wanted, known: _Known, held: Held) -> list[_Scored]:
        query = Query(
            uid=known.unit.uid, wanted=wanted, vector=search.vector, generations=held.generations,
            weights=known.statistics.idf, limit=search.limit + _MORE, vectors=search.vectors,
        )  # fmt: skip
        near = await self._index.search(query, known.generations) if known.generations else []
        found = await _scored(near, known, query, held)
        if len(near) - len(found) > _MORE:  # so many are outdated that the lists may have come out short
            near = await self._index.search(replace(query, limit=query.limit * _FURTHER), known.generations)
            found = await _scored(near, known, query, held)
        return found

    async def _by_words(self, scope: Scope, wanted: Wanted, statistics: Statistics) -> list[_Scored]:
        """Return the newest memories with their scores by words."""
        found: list[_Scored] = []
        idf, mean = statistics.idf, statistics.mean
        if not idf:
            return found
        async for some in order.walk(self._units, scope):
            found += [
                _Scored(memory_id, row, words.bm25(row, idf, mean))
                for memory_id, row in some.items()
                if words.is_wanted(row, wanted)
            ]
            if len(found) >= NEWEST:
                break
        return found


async def _scored(near: Sequence[Near], known: _Known, query: Query, held: Held) -> list[_Scored]:
    """Return what the rows say of the candidates and of what is not indexed yet."""
    candidates: dict[str, list[Near]] = {}
    for each in near:
        candidates.setdefault(each.memory, []).append(each)

    memories, vectors = known.unit.table("memories"), known.unit.blobs("vectors")
    await known.unit.fetch((memories, [*candidates, *known.pending]), (vectors, known.pending))
    rows: Mapping[str, MemoryRow] = await orders.shown(
        known.unit, await memories.many([*candidates, *known.pending])
    )
    blobs = await vectors.many(known.pending)
    idf, mean = known.statistics.idf, known.statistics.mean
    return [
        _Scored(
            memory_id,
            row,
            words.bm25(row, idf, mean),
            *_compared(row, query, held, blobs.get(memory_id), candidates.get(memory_id, ())),
        )
        for memory_id, row in rows.items()
        if words.is_wanted(row, query.wanted)
    ]


async def _know(unit: Unit, search: Search, wanted: Wanted) -> _Known | None:
    """Return None for a user without memories."""
    if not unit.number("memories"):
        return None
    unindexed = unit.table("unindexed")
    await unit.fetch(*words.needed(unit, search.terms), (unindexed, None))
    pending: Mapping[str, float] = await unindexed.all()
    held = {int(name[3:]): count for name, count in unit.numbers("in:").items() if count > 0}
    is_behind = len(pending) >= sum(held.values()) and len(pending) <= _PENDING
    return _Known(
        unit,
        () if is_behind else tuple(held),
        await words.statistics(unit, search.terms, wanted),
        tuple(heapq.nlargest(_PENDING, pending, key=pending.__getitem__)),
    )


def _compared(
    row: MemoryRow, query: Query, held: Held, vector: bytes | None, near: Iterable[Near]
) -> tuple[float | None, bytes | None]:
    """Return the cosine of the vector that the row has now, None where there is nothing to compare, and the
    vector where it is at hand and was asked for."""
    if query.vector is None or row["vector"] is None or row["generation"] not in held.generations:
        return None, None
    if vector is not None and len(vector) == len(query.vector):
        cosine = float(np.frombuffer(vector, np.float32) @ np.frombuffer(query.vector, np.float32))
        return cosine, vector if query.vectors else None
    found = (each for each in near if each.vector_of == row["vector"])
    return next(((each.cosine, each.vector) for each in found), (None, None))


def _best(found: Sequence[_Scored], search: Search) -> list[_Scored]:
    """Return the best by cosine and the best by BM25, oldest first; among equals the latest memory wins. Only
    the first by cosine keep their vectors: what is not indexed yet came with all of them."""
    near = [each for each in found if each.cosine is not None]
    said = [each for each in found if each.bm25 > 0]
    nearest = heapq.nlargest(search.limit, near, key=lambda each: (each.cosine, each.row["seq"]))
    told = heapq.nlargest(search.limit, said, key=lambda each: (each.bm25, each.row["seq"]))
    bare = [replace(each, vector=None) for each in (*told, *nearest)]
    best = [*bare, *nearest[: search.vectors]]  # of the same memory the last one counts
    return sorted({each.memory_id: each for each in best}.values(), key=lambda each: each.row["seq"])
