"""Compute the vectors of what is to be stored; a text in a language that the model does not understand gets
none.
"""

import asyncio
from collections.abc import Callable, Sequence

from proxy.embedtext import embed_text
from proxy.ports import Embedder


async def vector_of(embedder: Embedder | None, content: str) -> bytes | None:
    """Return the vector of one content, None where the embedder is absent or does not understand it."""
    if embedder is None or not embedder.understands(content):
        return None
    (vector,) = await embedder.embed([embed_text(content)])
    return vector


def as_it_stands(content: str) -> str:
    """Return the content: what is embedded of a text that is no memory."""
    return content


async def vectors_of(
    embedder: Embedder | None, contents: Sequence[str], text: Callable[[str], str] = embed_text
) -> list[bytes | None]:
    """Return the vector of each content's `text`, None for those that the embedder does not understand, and
    for all where it is absent. The event loop is not held up by their number."""
    if embedder is None or not contents:
        return [None] * len(contents)
    understood = await asyncio.to_thread(lambda: [embedder.understands(c) for c in contents])
    texts = [text(c) for c, known in zip(contents, understood, strict=True) if known]
    vectors = iter(await embedder.embed(texts) if texts else ())
    return [next(vectors) if known else None for known in understood]
