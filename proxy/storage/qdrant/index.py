"""The VectorIndex over Qdrant: see stores/vector_index.py for what every method guarantees."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID, uuid5

import httpx
import numpy as np
from grpc import RpcError  # type: ignore[import-untyped]
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal

from proxy import telemetry
from proxy.storage.qdrant import collection as collections
from proxy.storage.qdrant import sparse
from proxy.storage.qdrant.collection import DENSE, WORDS
from proxy.storage.vector_index import IndexUnavailable, Near, Point, Query

T = TypeVar("T")
_Vector: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]] | None"

# ValueError: what the local mode raises for everything.
_FOREIGN = (ApiException, QdrantException, RpcError, httpx.HTTPError, OSError, TimeoutError, ValueError)
_OURS = UUID("6f1c1d1e-8f5a-4c55-9d2b-6d0f6a4f7f01")
_PATIENCE = 3  # failures in a row after which nobody asks for a while
_PAUSE_S = 2.0
_PAYLOAD = ["memory", "vector_of"]
_IN_ORDER = models.WriteOrdering.MEDIUM  # all replicas of a point see its writes in one order


class QdrantIndex:
    """Points in a collection for each generation, made when they are first needed."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        collection: collections.Collection,
        *,
        search_timeout_s: float = 0.1,
    ) -> None:
        """`search_timeout_s`: a search that takes longer counts as failed: a request waits for it."""
        self._client, self._collection = client, collection
        self._search_timeout_s = search_timeout_s
        self._there: set[int] = set()  # generations whose collection was seen
        self._creating = asyncio.Lock()
        self._failures = 0
        self._pause_until = 0.0

    async def open(self) -> None:
        """Find the collections that there are."""
        self._there = await self._call(self._found)

    async def upsert(self, generation: int, points: Sequence[Point]) -> None:
        if not points:
            return
        dimension = next((len(p.vector) // 4 for p in points if p.vector is not None), 0)
        await self._ensure(generation, dimension)
        name = self._collection.of(generation)
        # One request for all of a version: the filter is that of the request.
        by_version: dict[int, list[models.PointStruct]] = {}
        for point in points:
            by_version.setdefault(point.written, []).append(_struct(point))
        await self._call(
            lambda: _all(
                self._client.upsert(name, points=some, update_filter=_not_after(written), ordering=_IN_ORDER)
                for written, some in by_version.items()
            )
        )
        others = self._there - {generation}
        await self._delete(others, [_id(point.uid, point.memory) for point in points])

    async def delete(self, uid: str, ids: Sequence[str]) -> None:
        self._there = await self._call(self._found)
        await self._delete(self._there, [_id(uid, memory_id) for memory_id in ids])

    async def delete_all(self, uid: str, written: int) -> None:
        self._there = await self._call(self._found)
        upto = models.FieldCondition(key="written", range=models.Range(lte=written))
        selector = models.FilterSelector(filter=models.Filter(must=[_is("uid", uid), upto]))
        await self._call(
            lambda: _all(
                self._client.delete(self._collection.of(each), selector, ordering=_IN_ORDER)
                for each in self._there
            )
        )

    async def vectors(self, generation: int, uid: str, ids: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        if generation not in self._there:
            return {}
        name, points = self._collection.of(generation), [_id(uid, memory_id) for memory_id in ids]
        found = await self._call(
            lambda: self._client.retrieve(name, points, with_payload=_PAYLOAD, with_vectors=[DENSE])
        )
        return {
            record.payload["memory"]: (record.payload["vector_of"], vector.tobytes())
            for record in found
            if record.payload and (vector := _dense(record.vector)) is not None
        }

    async def search(self, query: Query, generations: Collection[int]) -> list[Near]:
        if not self._there.issuperset(generations):
            self._there = await self._call(self._found, timeout_s=self._search_timeout_s)
        if missing := set(generations) - self._there:
            raise IndexUnavailable(f"{len(missing)} collections are missing")
        found = await self._call(
            lambda: asyncio.gather(*(self._search(query, each) for each in generations)),
            timeout_s=self._search_timeout_s,
        )
        return [near for some in found for near in some]

    async def close(self) -> None:
        await self._client.close()

    # ------------------------------------------------------------ one collection
    async def _search(self, query: Query, generation: int) -> list[Near]:
        vector = None
        if query.vector is not None and generation in query.generations:
            vector = np.frombuffer(query.vector, np.float32)
        requests, filters = [], _filter(query)
        if vector is not None:
            # Those that are wanted with their vectors are asked for by themselves: with every vector the
            # answer would be ten times as long.
            near: dict[str, Any] = {"query": vector.tolist(), "using": DENSE, "filter": filters}
            if query.vectors:
                requests.append(
                    models.QueryRequest(
                        **near, limit=query.vectors, with_payload=_PAYLOAD, with_vector=[DENSE]
                    )
                )
            requests.append(models.QueryRequest(**near, limit=query.limit, with_payload=_PAYLOAD))
        if query.weights:
            requests.append(
                models.QueryRequest(
                    query=sparse.of_question(query.weights), using=WORDS, filter=filters, limit=query.limit,
                    with_payload=_PAYLOAD, with_vector=[DENSE] if vector is not None else False,
                )
            )  # fmt: skip
        if not requests:
            return []
        answers = await self._client.query_batch_points(self._collection.of(generation), requests)
        found: dict[str, Near] = {}
        for request, answer in zip(requests, answers, strict=True):
            for point in answer.points:
                payload: Mapping[str, Any] = point.payload or {}
                ours = _dense(point.vector)
                by_meaning = request.using == DENSE
                cosine = point.score if by_meaning else _cosine(ours, vector)
                held = ours.tobytes() if by_meaning and ours is not None else None
                one = Near(payload["memory"], payload.get("vector_of"), cosine, held)
                found.setdefault(one.memory, one)
        return list(found.values())

    async def _delete(self, generations: Collection[int], ids: list[str]) -> None:
        selector = models.PointIdsList(points=list(ids))
        await self._call(
            lambda: _all(
                self._client.delete(self._collection.of(each), selector, ordering=_IN_ORDER)
                for each in generations
            )
        )

    async def _ensure(self, generation: int, dimension: int) -> None:
        async with self._creating:
            if generation not in self._there:
                self._there = await self._call(self._found)
            if generation in self._there:
                return
            try:
                await self._call(
                    lambda: collections.create(
                        self._client, self._collection, generation, dimension, indexed=self._is_server
                    )
                )
            except IndexUnavailable:
                # Another replica may have been first; its indexes of payload may be missing still.
                self._there = await self._call(self._found)
                if generation not in self._there:
                    raise
            self._there.add(generation)

    @property
    def _is_server(self) -> bool:
        """False for the library's own stand-in, which has no indexes of payload."""
        return not isinstance(getattr(self._client, "_client", None), AsyncQdrantLocal)

    async def _found(self) -> set[int]:
        names = [each.name for each in (await self._client.get_collections()).collections]
        ours = (self._collection.generation_of(name) for name in names)
        return {generation for generation in ours if generation is not None}

    # ------------------------------------------------------------ failures
    async def _call(self, work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """Return the work's result; IndexUnavailable where Qdrant cannot do it, or failed just now."""
        if time.monotonic() < self._pause_until:
            raise IndexUnavailable("failed just now")
        try:
            async with asyncio.timeout(timeout_s):
                result = await work()
        except _FOREIGN as error:
            self._failed(error)
            # Its kind only: its text may hold what was asked.
            raise IndexUnavailable(type(error).__name__) from error
        if self._failures >= _PATIENCE:
            telemetry.log.info("index.available")
        self._failures = 0
        return result

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._there = set()  # one of them may be gone
        if self._failures >= _PATIENCE:
            self._pause_until = time.monotonic() + _PAUSE_S
        if self._failures == _PATIENCE:
            telemetry.log.warning("index.unavailable", error=type(error).__name__)


def _struct(point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {WORDS: sparse.of_memory(point.terms)}
    if point.vector is not None:
        vector[DENSE] = np.frombuffer(point.vector, np.float32).tolist()
    payload: dict[str, Any] = {
        "uid": point.uid, "memory": point.memory, "project": point.project, "type": point.type,
        "current": point.current, "written": point.written, "vector_of": point.vector_of,
    }  # fmt: skip
    if point.expires_at is not None:
        payload["expires"] = point.expires_at
    return models.PointStruct(id=_id(point.uid, point.memory), vector=vector, payload=payload)


def _filter(query: Query) -> models.Filter:
    """Return what Qdrant can tell of what the search wants."""
    wanted, must = query.wanted, [_is("uid", query.uid), _is("current", True)]
    if wanted.types is not None:
        must.append(models.FieldCondition(key="type", match=models.MatchAny(any=sorted(wanted.types))))
    conditions: list[models.Condition] = [*must]
    if wanted.project is not None:
        nobodys = models.IsNullCondition(is_null=models.PayloadField(key="project"))
        conditions.append(models.Filter(should=[_is("project", wanted.project), nobodys]))
    over = models.FieldCondition(key="expires", range=models.Range(lte=wanted.now))
    return models.Filter(must=conditions, must_not=[over])


def _is(key: str, value: str | bool) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _not_after(written: int) -> models.Filter:
    """Let a point stay that says something newer: whoever comes late changes nothing. Qdrant from 1.16 on."""
    return models.Filter(must=[models.FieldCondition(key="written", range=models.Range(lte=written))])


def _id(uid: str, memory_id: str) -> str:
    return str(uuid5(_OURS, f"{uid} {memory_id}"))


def _dense(vectors: Any) -> _Vector:
    values = vectors.get(DENSE) if isinstance(vectors, dict) else None
    return None if values is None else np.asarray(values, np.float32)


def _cosine(ours: _Vector, query: _Vector) -> float | None:
    return None if ours is None or query is None else float(ours @ query)


async def _all(calls: "Any") -> None:
    await asyncio.gather(*calls)
