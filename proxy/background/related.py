"""The memories that a batch may repeat or replace, to be shown to the extraction model."""

from proxy.background.cues import own_words
from proxy.domain import Batch, Hit, Memory, Search
from proxy.errors import EmbeddingFailed
from proxy.ports import Embedder, MemoryStore
from proxy.terms import terms

LIMIT = 20
_PER_EXCHANGE = 10
_EXCHANGES = 6  # the last ones of a long batch; each costs a search
_TEXT = 600  # characters; what matters stands at the end


async def related(memories: MemoryStore, embedder: Embedder | None, batch: Batch, now: float) -> list[Memory]:
    """Return the current memories nearest to what the user said, best first; [] for a silent user.

    Without an embedder, or when it fails, the shared terms decide."""
    best: dict[str, Hit] = {}
    for exchange in batch.pending[-_EXCHANGES:]:
        said = own_words(exchange.said)[-_TEXT:].strip()
        words = terms(said)
        if not words:
            continue
        vector = await _vector(embedder, said)
        search = Search(vector, words, limit=_PER_EXCHANGE, now=now)
        for hit in await memories.search(exchange.scope, search):
            known = best.get(hit.memory.id)
            if known is None or _nearness(hit) > _nearness(known):
                best[hit.memory.id] = hit
    return [hit.memory for hit in sorted(best.values(), key=_nearness, reverse=True)[:LIMIT]]


async def _vector(embedder: Embedder | None, said: str) -> bytes | None:
    if embedder is None or not embedder.understands(said):
        return None
    try:
        return (await embedder.embed([said]))[0]
    except EmbeddingFailed:
        return None  # only the model's view of what is known gets poorer


def _nearness(hit: Hit) -> tuple[float, float]:
    return (hit.cosine or 0.0, hit.bm25)
