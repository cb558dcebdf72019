"""Builds the knowledge-document service of one process."""

from collections.abc import Sequence
from functools import partial

from proxy.admit.safety import SafetyPolicy
from proxy.domain.core import Scope
from proxy.domain.ports import Clock, Embedder, Stores
from proxy.http.memory_api.wiring import Documents
from proxy.learn.documents import DocumentIngester
from proxy.recall.documents import RankedPassage, Shelf, search

SHARE_OF_DEADLINE = 0.5  # of memory's: what a search of documents may take beside that of memories


def library_of(
    stores: Stores, embedder: Embedder | None, policy: SafetyPolicy, clock: Clock
) -> DocumentIngester:
    """Return what takes documents in."""
    return DocumentIngester(stores.documents, stores.passages, embedder, clock, policy)


def shelf_of(stores: Stores, embedder: Embedder | None, deadline_ms: float) -> Shelf:
    """Return what the read path looks documents up with. `embedder`: reads questions as it reads documents;
    what an encoder for questions learnt is how memories are told."""
    deadline_s = SHARE_OF_DEADLINE * deadline_ms / 1000
    return Shelf(stores.passages, stores.memories, embedder, deadline_s=deadline_s)


def documents_of(library: DocumentIngester, shelf: Shelf) -> Documents:
    """Return what the memory API works with."""
    return Documents(library.store, library.add, partial(_search, shelf))


async def _search(
    shelf: Shelf, scope: Scope, query: str, *, limit: int, threshold: float | None
) -> Sequence[RankedPassage]:
    return await search(scope, query, shelf, limit=limit, threshold=threshold)
