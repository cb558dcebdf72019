"""Compute what is stored with a memory's text: its vector (none in a language that the model does not
understand), and its reading for the relevance head.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy import telemetry
from proxy.domain.core import Change, Create, Edit, Supersede
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge
from proxy.domain.ports import Embedder

FEWEST = 20  # texts, before their languages say something
REMIND_S = 3_600.0


class Languages:
    """Counts the texts that this process stores, and those that the model does not read: they are found by
    words only. The log says so once an hour if that is most of them."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.texts, self.unread = 0, 0
        self._steady, self._told_at = steady, float("-inf")

    def note(self, understood: Sequence[bool]) -> None:
        """Count the texts."""
        self.texts += len(understood)
        self.unread += len(understood) - sum(understood)
        is_due = self._steady() - self._told_at >= REMIND_S
        if is_due and self.texts >= FEWEST and self.unread > self.texts / 2:
            self._told_at = self._steady()
            telemetry.log.warning(
                "embedding.language_not_read",
                texts=self.texts,
                unread=self.unread,
                remedy="scripts/install multilingual, and embedding.model (docs/memory.md)",
            )


LANGUAGES = Languages()


async def vector_of(embedder: Embedder | None, content: str) -> bytes | None:
    """Return the vector of one content, None where the embedder is absent or does not understand it."""
    if embedder is None:
        return None
    understood = embedder.understands(content)
    LANGUAGES.note((understood,))
    if not understood:
        return None
    (vector,) = await embedder.embed([content])
    return vector


async def vectors_of(embedder: Embedder | None, contents: Sequence[str]) -> list[bytes | None]:
    """Return the vector of each content, None for those that the embedder does not understand, and for all if
    there is no embedder. The event loop is not held up by their number."""
    if embedder is None or not contents:
        return [None] * len(contents)
    understood = await asyncio.to_thread(lambda: [embedder.understands(c) for c in contents])
    LANGUAGES.note(understood)
    texts = [c for c, known in zip(contents, understood, strict=True) if known]
    vectors = iter(await embedder.embed(texts) if texts else ())
    return [next(vectors) if known else None for known in understood]


async def with_readings(judge: Judge | None, changes: Sequence[Change]) -> list[Change]:
    """Return the changes with the readings of the contents that they store. A judge that fails is done
    without: the first message that finds the memory reads it."""
    contents = [content for change in changes if (content := _stored(change)) is not None]
    if judge is None or not contents:
        return list(changes)
    try:
        readings = iter(await judge.readings(contents))
    except EmbeddingFailed:
        return list(changes)
    return [change if _stored(change) is None else _with(change, next(readings)) for change in changes]


def _stored(change: Change) -> str | None:
    """Return the content that the change stores, None if it stores none."""
    match change:
        case Create() | Supersede():
            return change.memory.content
        case Edit() if change.vector is not None:
            return change.memory.content
    return None


def _with(change: Change, reading: bytes | None) -> Change:
    assert isinstance(change, Create | Supersede | Edit)
    return replace(change, reading=reading)
