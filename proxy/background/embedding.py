"""Vectors of what is to be stored; texts that the model does not understand have none."""

import asyncio
from collections.abc import Sequence

from proxy.embedtext import embed_text
from proxy.ports import Embedder


async def vector_of(embedder: Embedder | None, content: str) -> bytes | None:
    """Return the vector of one content, None where the embedder is absent or does not understand it."""
    if embedder is None or not embedder.understands(content):
        return None
    (vector,) = await embedder.embed([embed_text(content)])
    return vector


async def vectors_of(embedder: Embedder | None, contents: Sequence[str]) -> list[bytes | None]:
    """Return `vector_of` for many contents; the event loop is not held up by their number."""
    if embedder is None:
        return [None] * len(contents)
    understood = await asyncio.to_thread(lambda: [embedder.understands(c) for c in contents])
    texts = [embed_text(c) for c, known in zip(contents, understood, strict=True) if known]
    vectors = iter(await embedder.embed(texts) if texts else ())
    return [next(vectors) if known else None for known in understood]
