"""Retrieve hits for a query: embed it, and search the scope by vector and by words.

An embedder that is missing, fails, or does not know the language costs its half of the search, never the
whole. The store's failures are the caller's: without a store there is no memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from proxy.domain import Hit, Level, Scope, Search, with_children
from proxy.errors import EmbeddingFailed
from proxy.pipeline.recall.byname import as_asked_by, leaning, told_of, told_of_others
from proxy.pipeline.recall.hops import follow
from proxy.pipeline.recall.rewrite import Query
from proxy.ports import Embedder, MemoryStore, Snapshot

LIST_LENGTH = 50  # of each of the two lists; more costs time and finds nothing that a budget would show
LINK_LENGTH = 8  # of each list where a link is followed


@dataclass(frozen=True, slots=True)
class Found:
    """The hits. `dense`: their cosines mean something. `level`: LEXICAL without a working embedder.
    `links`: what a link between memories adds to a score, by memory id (see hops). `subjects`: those whom
    the question names and the memories are told of (see byname). `question`: its vector, where it has one.
    `others`: ids of memories told of others than these."""

    hits: tuple[Hit, ...]
    dense: bool
    level: Level
    links: Mapping[str, float] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    question: bytes | None = None
    others: frozenset[str] = frozenset()


async def retrieve(
    query: Query,
    scope: Scope,
    types: tuple[str, ...] | None,
    *,
    now: float,
    memories: MemoryStore,
    embedder: Embedder | None,
    few: Snapshot | None = None,
    vectors: int = 0,
) -> Found:
    """Return the scope's memories of these types (with their child kinds) that the query may mean; `few`: the
    scope's memories where they are at hand; `vectors`: how many of the nearest come with their vectors.

    Raises StoreUnavailable. A failing embedder leaves a lexical search, said in `level`.
    """
    vector, level = await _vector(query, embedder)
    if vector is None and not query.terms:
        return Found((), dense=False, level=level)
    wanted = with_children(types) if types is not None else None
    search = Search(vector, query.terms, limit=LIST_LENGTH, types=wanted, now=now, vectors=vectors)

    async def found(asked: Search) -> Sequence[Hit]:
        at_once = None if few is None else few.search(asked)
        return await memories.search(scope, asked) if at_once is None else at_once

    async def look(terms: tuple[str, ...]) -> Sequence[Hit]:
        return await found(replace(search, terms=terms, limit=LINK_LENGTH, vectors=0))

    hits = await found(search)
    names = told_of(query.text, [hit.memory.content for hit in hits])
    if names and vector is not None and embedder is not None:
        own = await _as_told(query.text, names, vector, embedder)
        search = replace(search, vector=own, vectors=2 * vectors)  # as many again, for those told of others
        hits = await found(search)

    # Shorter lists than could be hold all memories that have a vector.
    more = bool(query.terms) and (len(hits) >= LIST_LENGTH or vector is None)
    linked = await follow(query.text, hits, look if more else None)
    others = _of_others(names, linked.hits) if names else frozenset()
    return Found(linked.hits, vector is not None, level, linked.worth, names, vector, others)


def _of_others(names: Sequence[str], hits: Sequence[Hit]) -> frozenset[str]:
    apart = told_of_others(names, [hit.memory.content for hit in hits])
    return frozenset(hit.memory.id for hit, is_apart in zip(hits, apart, strict=True) if is_apart)


async def _as_told(question: str, names: Sequence[str], vector: bytes, embedder: Embedder) -> bytes:
    """Return the vector of a question about those of whom the memories are told by name."""
    try:
        return leaning(vector, await embedder.embed_query(as_asked_by(names, question)))
    except EmbeddingFailed:
        return vector


async def _vector(query: Query, embedder: Embedder | None) -> tuple[bytes | None, Level]:
    if embedder is None:
        return None, Level.LEXICAL
    if not embedder.understands(query.text):
        return None, Level.LEXICAL
    led = bool(query.imagined) and embedder.understands(query.imagined)
    try:
        vector = await embedder.embed_query(query.text)
        imagined = await embedder.embed([query.imagined]) if led else []
    except EmbeddingFailed:
        return None, Level.LEXICAL
    least = embedder.model.similarity_threshold
    return (pooled(vector, imagined[0], least=least) if imagined else vector), Level.FULL


def pooled(question: bytes, imagined: bytes, *, least: float) -> bytes:
    """Return the unit vector between both, or the question's where their cosine is below `least`: an imagined
    answer that has nothing to do with the question must not lead the search away."""
    first, second = np.frombuffer(question, np.float32), np.frombuffer(imagined, np.float32)
    if float(first @ second) < least:
        return question
    mean: NDArray[np.float32] = first + second
    return (mean / np.linalg.norm(mean)).astype(np.float32).tobytes()
