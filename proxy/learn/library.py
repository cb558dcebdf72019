"""Ingest knowledge documents: make the text safe, cut it into passages, embed them, store them.

A short document is embedded before the request is answered. The passages of a long one can be found by
their words at once, and get their vectors in batches from the background loop that calls this module. What
a crash leaves undone is found again from the stored rows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from proxy.admit.embedding import vectors_of
from proxy.admit.safety import filters, planted
from proxy.admit.safety.filters import cleaned
from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import Scope
from proxy.domain.documents import (
    Change,
    Document,
    DocumentStore,
    Format,
    Limits,
    NewDocument,
    Passage,
    PassageIndex,
    searched_text,
)
from proxy.domain.errors import EmbeddingFailed, InvalidRequest, TooLarge
from proxy.domain.ports import Clock, Embedder
from proxy.learn.split import NO_BRACKETS, split
from proxy.telemetry import Seldom

AT_ONCE = 64  # passages that are embedded before the answer: some 0.7 s
BATCH = 32  # passages embedded between two looks at the clock
READ_AT_ONCE = 2  # texts: threads are few, and other work needs some, too
SHORTEST = 3  # characters of a document


@dataclass(frozen=True, slots=True)
class Library:
    """Takes documents in. Raises InvalidRequest, TooLarge for what it refuses, QuotaExceeded."""

    store: DocumentStore
    index: PassageIndex
    embedder: Embedder | None
    clock: Clock
    policy: SafetyPolicy = DEFAULT
    limits: Limits = Limits()  # noqa: RUF009 frozen
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_ONCE))
    seldom: Seldom = field(default_factory=Seldom)

    async def add(self, scope: Scope, name: str, content: str, format: Format) -> tuple[Document, Change]:
        """Return the document as it is kept now, and whether it is new, the next version, or the same."""
        if filters.find(name, self.policy) or planted.is_planted(name):
            raise InvalidRequest("`name` must not hold secrets or instructions.", param="name")
        async with self.reading:
            passages, digest = await asyncio.to_thread(self._read, content, format)
        same = await self.store.named(scope, name)
        if same is not None and same.digest == digest:
            return same, "unchanged"
        try:
            vectors = await self._vectors(passages) if len(passages) <= AT_ONCE else None
        except EmbeddingFailed:
            vectors = None  # they come later
        new = NewDocument(
            scope=scope, name=name, digest=digest, passages=passages, at=self.clock(), vectors=vectors
        )
        return await self.store.put(new, self.limits)

    async def catch_up(self, seconds: float) -> int:
        """Give vectors to passages that have none, for about so long; return how many were made."""
        if self.embedder is None:
            return 0
        loop, made = asyncio.get_running_loop(), 0
        until = loop.time() + seconds
        while loop.time() < until and (waiting := await self.index.pending(BATCH)):
            try:
                vectors = await self._embedded([(one.headings, one.text) for one in waiting])
            except EmbeddingFailed:
                self.seldom.warning("documents.embedding_failed")
                break
            made += await self.index.fill(list(zip(waiting, vectors, strict=True)))
        return made

    def _read(self, content: str, format: Format) -> tuple[tuple[Passage, ...], bytes]:
        """Return the passages of the text, what must not be kept replaced by a mark, and their digest."""
        if "\0" in content:
            raise InvalidRequest("`content` must not hold NUL characters.", param="content")
        text = content.removeprefix("\ufeff")  # the byte order mark of a file would hide its first heading
        passages = split(cleaned(text, self.policy), format)
        if not any(any(c.isalnum() for c in p.text) for p in passages):
            raise InvalidRequest("`content` says nothing.", param="content")
        if len(passages) > self.limits.passages:
            raise TooLarge(
                f"A document may have {self.limits.passages} passages, this one has {len(passages)}:"
                " post it in parts.",
                param="content",
            )
        passages = _safe_headings(passages, self.policy)
        return passages, _digest(passages)

    async def _vectors(self, passages: tuple[Passage, ...]) -> tuple[bytes | None, ...] | None:
        if self.embedder is None:
            return None
        return tuple(await self._embedded([(p.headings, p.text) for p in passages]))

    async def _embedded(self, found: list[tuple[tuple[str, ...], str]]) -> list[bytes | None]:
        """Return a vector a passage, None for what the model does not understand."""
        texts = [searched_text(headings, text) for headings, text in found]
        return await vectors_of(self.embedder, texts)


def _safe_headings(passages: Sequence[Passage], policy: SafetyPolicy) -> tuple[Passage, ...]:
    """Return the passages with headings that are safe by themselves: taking out their markup may have put a
    secret together ("AK**IA…**") that the text does not hold."""
    titles = dict.fromkeys(title for passage in passages for title in passage.headings)
    together = "\n\n".join(titles)
    if cleaned(together, policy) == together:  # as ever: one look instead of hundreds
        return tuple(passages)
    safe = {title: cleaned(title, policy).translate(NO_BRACKETS) for title in titles}
    return tuple(replace(p, headings=tuple(safe[title] for title in p.headings)) for p in passages)


def _digest(passages: tuple[Passage, ...]) -> bytes:
    """Return what tells one text from another: of the text as it is kept, so that a stricter policy makes a
    new version of what is posted again."""
    digest = blake2b(digest_size=16)
    for passage in passages:
        digest.update(f"{passage.headings}\0{passage.tile}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()
