"""The CandidateIndex in Qdrant: one collection for each generation of vectors, the user as tenant index.

A memory's words are a sparse vector: what a term's count is worth in BM25, with a constant mean length, so
that no point has to be written again when the mean moves. How rare a term is comes from Qdrant's own
`Modifier.IDF`, over all users. That is enough to propose memories: the database computes the scores.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import numpy as np
from grpc import RpcError  # type: ignore[import-untyped]
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal

from proxy import telemetry
from proxy.domain.core import Search
from proxy.domain.limits import CircuitBreaker
from proxy.storage.exact_index import term_hash
from proxy.storage.sql.rows import NO_MODEL
from proxy.storage.sql.vectors import IndexUnavailable, Point

T = TypeVar("T")

DENSE, WORDS = "dense", "words"
# ValueError: what the library's local mode raises for everything.
_FOREIGN = (ApiException, QdrantException, RpcError, httpx.HTTPError, OSError, TimeoutError, ValueError)
_TRIP_AFTER = 3  # failures in a row
_OPEN_S = 2.0  # in which nothing is asked
_K1, _B, _MEAN_LENGTH = 1.2, 0.4, 12.0  # as in exact_index.py; memories have about 12 terms
_SPARSE_BITS = 2**32 - 1  # two terms that share a number cost a candidate
_IN_ORDER = models.WriteOrdering.MEDIUM  # all replicas of a point see its writes in one order
_INDEXED: dict[str, Any] = {
    "owner": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "project": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "type": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "expires": models.PayloadSchemaType.FLOAT,
}
_INT8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
_QUANTIZATIONS: dict[str, models.QuantizationConfig | None] = {
    "none": None,
    "scalar": models.ScalarQuantization(scalar=_INT8),
    "binary": models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What an operator may choose. All but the first count when a collection is made."""

    prefix: str = "memories"
    replication_factor: int = 1
    write_consistency_factor: int = 1
    shard_number: int = 0  # 0: Qdrant decides
    on_disk: bool = False
    quantization: str = "none"  # "none" | "scalar" | "binary"

    def of(self, generation: int) -> str:
        """Return the name of a generation's collection."""
        return f"{self.prefix}_{'plain' if generation == NO_MODEL else generation}"

    def generation_of(self, name: str) -> int | None:
        """Return the generation with a collection of this name; None: it is not one of ours."""
        base, _, rest = name.rpartition("_")
        if base != self.prefix or not (rest == "plain" or rest.isdecimal()):
            return None
        return NO_MODEL if rest == "plain" else int(rest)


def connect(url: str, api_key: str | None, *, prefer_grpc: bool, timeout_s: float) -> AsyncQdrantClient:
    """Return a client of a server. Nothing is asked yet."""
    return AsyncQdrantClient(
        url=url, api_key=api_key, prefer_grpc=prefer_grpc, timeout=max(1, round(timeout_s)),
        check_compatibility=False,  # it would ask, and print, while the proxy starts
    )  # fmt: skip


class QdrantIndex:
    """Points in Qdrant, each under its memory's number."""

    def __init__(
        self, client: AsyncQdrantClient, collection: Collection, *, search_timeout_s: float = 0.1
    ) -> None:
        """`search_timeout_s`: a search that takes longer counts as failed, since a request waits for it."""
        self._client, self._collection = client, collection
        self._search_timeout_s = search_timeout_s
        self._seen: set[int] = set()  # generations with a collection that was there
        self._breaker = CircuitBreaker(_OPEN_S, trip_after=_TRIP_AFTER)
        self._is_away = False  # as the log has it

    @property
    def name(self) -> str:
        return self._collection.prefix

    async def search(
        self,
        owner: int,
        project: str | None,
        search: Search,
        *,
        compared: Sequence[int],
        within: Sequence[int],
    ) -> Sequence[int]:
        chosen = _filter(owner, project, search)
        asked = [(each, _requests(search, chosen, compares=each in compared)) for each in within]
        async with self._guarded(self._search_timeout_s):
            answers = await asyncio.gather(
                *(
                    self._client.query_batch_points(self._collection.of(each), requests)
                    for each, requests in asked
                    if requests
                )
            )
        found = (point.id for answer in answers for one in answer for point in one.points)
        return list(dict.fromkeys(int(id_) for id_ in found))

    async def upsert(self, generation: int, points: Sequence[Point], dimension: int) -> None:
        name, structs = self._collection.of(generation), [_struct(point) for point in points]
        async with self._guarded():
            if generation not in self._seen:
                if generation not in await self._found():
                    await self._client.create_collection(name, **_parameters(self._collection, dimension))
                if not isinstance(getattr(self._client, "_client", None), AsyncQdrantLocal):
                    # Also if it exists: its maker may have died before this. Local mode has no indexes.
                    for field, schema in _INDEXED.items():
                        await self._client.create_payload_index(name, field, field_schema=schema, wait=True)
                self._seen.add(generation)
            await self._client.upsert(name, structs, wait=True, ordering=_IN_ORDER)

    async def delete(self, memories: Sequence[int], generations: Sequence[int]) -> None:
        selector = models.PointIdsList(points=list(memories))
        async with self._guarded():
            names = map(self._collection.of, generations)
            deletions = (self._client.delete(n, selector, wait=True, ordering=_IN_ORDER) for n in names)
            await asyncio.gather(*deletions)

    async def generations(self) -> frozenset[int]:
        async with self._guarded():
            return await self._found()

    async def drop(self) -> None:
        self._seen = set()
        async with self._guarded():
            for generation in await self._found():
                await self._client.delete_collection(self._collection.of(generation))

    async def close(self) -> None:
        await self._client.close()

    # ------------------------------------------------------------ collections
    async def _found(self) -> frozenset[int]:
        names = [each.name for each in (await self._client.get_collections()).collections]
        ours = (self._collection.generation_of(name) for name in names)
        return frozenset(generation for generation in ours if generation is not None)

    # ------------------------------------------------------------ failures
    @asynccontextmanager
    async def _guarded(self, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Raise IndexUnavailable if Qdrant cannot do what is in the block, or failed just now."""
        if self._breaker.is_open:
            raise IndexUnavailable("failed just now")
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except _FOREIGN as error:
            self._seen = set()  # one of them may have been deleted
            if self._breaker.failed() and not self._is_away:
                self._is_away = True
                telemetry.log.warning("index.unavailable", error=type(error).__name__)
            raise IndexUnavailable(type(error).__name__) from None  # its text may hold what was asked
        self._breaker.succeeded()
        if self._is_away:
            self._is_away = False
            telemetry.log.info("index.available")


def _parameters(chosen: Collection, dimension: int) -> dict[str, Any]:
    on_disk = chosen.on_disk or None
    dense = models.VectorParams(size=dimension, distance=models.Distance.COSINE, on_disk=on_disk)
    words = models.SparseVectorParams(
        index=models.SparseIndexParams(on_disk=on_disk), modifier=models.Modifier.IDF
    )
    return {
        "vectors_config": {DENSE: dense} if dimension else {},
        "sparse_vectors_config": {WORDS: words},
        "shard_number": chosen.shard_number or None,
        "replication_factor": chosen.replication_factor,
        "write_consistency_factor": chosen.write_consistency_factor,
        "on_disk_payload": True,
        # One graph for each user and none for all: no search ever crosses users.
        "hnsw_config": models.HnswConfigDiff(payload_m=16, m=0),
        "quantization_config": _QUANTIZATIONS[chosen.quantization],
    }


def _struct(point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {}
    if point.terms:
        numbers = np.frombuffer(point.terms, np.int64) & _SPARSE_BITS
        held, counts = np.unique(numbers, return_counts=True)
        norm = _K1 * (1 - _B) + _K1 * _B / _MEAN_LENGTH * len(numbers)
        values = ((_K1 + 1) * counts / (counts + norm)).tolist()
        vector[WORDS] = models.SparseVector(indices=held.tolist(), values=values)
    if point.vector is not None:
        vector[DENSE] = np.frombuffer(point.vector, np.float32).tolist()
    payload = {"owner": str(point.owner), "type": point.type}
    optional = {"project": point.project, "expires": point.expires_at}
    given = {key: value for key, value in optional.items() if value is not None}
    return models.PointStruct(id=point.memory, vector=vector, payload=payload | given)


def _requests(search: Search, chosen: models.Filter, *, compares: bool) -> list[models.QueryRequest]:
    limits: dict[str, Any] = {"filter": chosen, "limit": search.limit, "with_payload": False}
    requests = []
    if search.vector is not None and compares:
        vector = np.frombuffer(search.vector, np.float32).tolist()
        requests.append(models.QueryRequest(query=vector, using=DENSE, **limits))
    if search.terms:
        numbers = sorted({term_hash(term) & _SPARSE_BITS for term in search.terms})
        words = models.SparseVector(indices=numbers, values=[1.0] * len(numbers))
        requests.append(models.QueryRequest(query=words, using=WORDS, **limits))
    return requests


def _filter(owner: int, project: str | None, search: Search) -> models.Filter:
    def is_(key: str, value: str) -> models.FieldCondition:
        return models.FieldCondition(key=key, match=models.MatchValue(value=value))

    must: list[models.Condition] = [is_("owner", str(owner))]
    if search.types is not None:
        must.append(models.FieldCondition(key="type", match=models.MatchAny(any=sorted(search.types))))
    if project is not None:
        of_none = models.IsEmptyCondition(is_empty=models.PayloadField(key="project"))
        must.append(models.Filter(should=[is_("project", project), of_none]))
    expired = models.FieldCondition(key="expires", range=models.Range(lte=search.now))
    return models.Filter(must=must, must_not=[expired])
