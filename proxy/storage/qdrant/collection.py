"""How the collections are made: one for each generation of vectors, and one for memories without a model."""

import asyncio
from dataclasses import dataclass

from qdrant_client import AsyncQdrantClient, models

DENSE, WORDS = "dense", "words"
_NO_MODEL = -1
_INDEXED: dict[str, models.KeywordIndexParams | models.BoolIndexParams] = {
    "project": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "type": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "current": models.BoolIndexParams(type=models.BoolIndexType.BOOL),
    # A user's points lie together on disk, and one user's search does not walk through others'.
    "uid": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What an operator may choose."""

    name: str = "memories"
    replication_factor: int = 1
    write_consistency_factor: int = 1
    shard_number: int = 0  # 0: as Qdrant decides
    on_disk: bool = False
    quantization: str = "none"  # "none" | "scalar" | "binary"

    def of(self, generation: int) -> str:
        """Return the name of a generation's collection."""
        return f"{self.name}_{'plain' if generation == _NO_MODEL else generation}"

    def generation_of(self, name: str) -> int | None:
        """Return the generation whose collection has this name; None: it is not one of ours."""
        base, _, rest = name.rpartition("_")
        if base != self.name:
            return None
        if rest == "plain":
            return _NO_MODEL
        return int(rest) if rest.isdigit() else None


async def create(
    client: AsyncQdrantClient, collection: Collection, generation: int, dimension: int, *, indexed: bool
) -> None:
    """Make a generation's collection, with indexes of what searches filter by (the local mode has none).
    Dimension 0: it will hold no vectors."""
    dense = models.VectorParams(
        size=dimension, distance=models.Distance.COSINE, on_disk=collection.on_disk or None
    )
    await client.create_collection(
        collection.of(generation),
        vectors_config={DENSE: dense} if dimension else {},
        sparse_vectors_config={
            WORDS: models.SparseVectorParams(
                index=models.SparseIndexParams(on_disk=collection.on_disk or None)
            )
        },
        shard_number=collection.shard_number or None,
        replication_factor=collection.replication_factor,
        write_consistency_factor=collection.write_consistency_factor,
        on_disk_payload=True,
        # One graph for each user, none for all: no search ever crosses users.
        hnsw_config=models.HnswConfigDiff(payload_m=16, m=0),
        quantization_config=_quantization(collection),
    )
    if indexed:
        await index_payload(client, collection.of(generation))


async def index_payload(client: AsyncQdrantClient, name: str) -> None:
    """Have Qdrant index what searches filter by; what is indexed already stays so."""
    await asyncio.gather(
        *(client.create_payload_index(name, field, field_schema=schema) for field, schema in _INDEXED.items())
    )


def _quantization(collection: Collection) -> models.QuantizationConfig | None:
    match collection.quantization:
        case "scalar":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            return models.ScalarQuantization(scalar=scalar)
        case "binary":
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        case _:
            return None
