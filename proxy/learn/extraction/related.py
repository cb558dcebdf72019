"""Select the stored memories that a batch may repeat or replace, to be shown to the extraction model."""

import asyncio
from collections.abc import Sequence

from proxy.admit.embedding import vectors_of
from proxy.domain.core import Batch, Exchange, Hit, Memory, Search
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder, MemoryStore
from proxy.text.sentences import sentences
from proxy.text.terms import terms

LIMIT = 20
_PER_SEARCH = 8
_EXCHANGES = 6  # the last ones of a long batch
_SENTENCES = 6  # of an exchange; each costs a search
_FEWEST_TERMS = 2
_MOST = 4_000  # characters of a message that are looked at
_TEXT = 600  # characters; what matters stands at the end


async def related(memories: MemoryStore, embedder: Embedder | None, batch: Batch, now: float) -> list[Memory]:
    """Return the current memories nearest to what the user said; [] for a silent user.

    Each sentence is looked up by itself, and the nearest of each come first: in a message about three
    things each has its own neighbours.
    Without an embedder, or when it fails, the shared terms decide."""
    found: dict[str, tuple[int, Hit]] = {}  # by id: the best rank in any search
    for exchange in batch.pending[-_EXCHANGES:]:
        texts = await asyncio.to_thread(_texts, exchange)  # some 10 ms for a long message
        vectors = await _vectors(embedder, texts)
        # Read once for all sentences: each search by itself would ask a reader.
        few = await memories.snapshot(exchange.scope) if len(texts) > 1 else None
        for text, vector in zip(texts, vectors, strict=True):
            search = Search(vector, terms(text), limit=_PER_SEARCH, now=now)
            hits = None if few is None else few.search(search)
            _take(await memories.search(exchange.scope, search) if hits is None else hits, found)
            await asyncio.sleep(0)  # requests come first
    ordered = sorted(found.values(), key=lambda one: (-one[0], _nearness(one[1])), reverse=True)
    return [hit.memory for _, hit in ordered[:LIMIT]]


def _take(hits: Sequence[Hit], found: dict[str, tuple[int, Hit]]) -> None:
    """Add one search's hits to what was found; each memory keeps its best rank."""
    for rank, hit in enumerate(sorted(hits, key=_nearness, reverse=True)):
        known = found.get(hit.memory.id)
        if known is None or rank < known[0]:
            found[hit.memory.id] = (rank, hit)


def _texts(exchange: Exchange) -> list[str]:
    """Return what to look up: the message's sentences, the last ones of many, and its end."""
    every = dict.fromkeys(sentences(exchange.said[-_MOST:]))
    said = [s for s in every if len(terms(s)) >= _FEWEST_TERMS][-_SENTENCES:]
    tail = exchange.said[-_TEXT:].strip()
    return [text for text in dict.fromkeys((*said, tail)) if terms(text)]


async def _vectors(embedder: Embedder | None, texts: list[str]) -> list[bytes | None]:
    """Return each text's vector, None where the embedder does not understand it, or fails."""
    try:
        return await vectors_of(embedder, texts)
    except EmbeddingFailed:
        return [None] * len(texts)  # only the model's view of what is known gets poorer


def _nearness(hit: Hit) -> tuple[float, float]:
    return (hit.cosine or 0.0, hit.bm25)
