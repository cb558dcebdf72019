"""Ingest knowledge documents: make the text safe, split it into passages, embed them, store them.

A text is split along its headings (plain text has none) into whole paragraphs, lists, tables and
code blocks, as long as these are short enough to be found and shown as one. The passages' tiles cover the
document without a gap: joined, they are its text.

A short document is embedded before the request is answered. The passages of a long one can be found by
their words at once, and get their vectors in batches from the background loop that calls this module. What
a crash leaves undone is found again from the stored rows.
"""

import asyncio
import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from proxy.admit.gate import vectors_of
from proxy.admit.safety import DEFAULT, SafetyPolicy, cleaned, find, is_planted
from proxy.domain.core import Scope
from proxy.domain.documents import (
    Document,
    DocumentChange,
    DocumentFormat,
    DocumentLimits,
    DocumentStore,
    NewDocument,
    Passage,
    PassageIndex,
    PassageToEmbed,
    searched_text,
)
from proxy.domain.errors import EmbeddingFailed, InvalidRequest, TooLarge
from proxy.domain.ports import Clock, Embedder
from proxy.telemetry import ThrottledLog
from proxy.text.words import WIDE, pieces

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# ---------------------------------------------------------------- passages
# In units: a character, three for one of a script without spaces. Some 170 tokens; the model reads 256.
TARGET = 700
MOST = 1_200
LEAST = 150  # a shorter rest joins the previous passage
PASSAGES_A_SECTION = 8  # a longer section is searched as several
HEADING_CHARS = 120
_LONGEST_TITLE = 1_000  # with its markup

_CLAUSE = re.compile(r"[^;；]*+[;；]\s*+|[^;；]+")
NO_BRACKETS = str.maketrans("[]", "()")  # of headings: they are cited in brackets
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")  # as Markdown counts lines
# Blocks only: the inline markup of headings is parsed apart.


@cache
def _parsers() -> "tuple[MarkdownIt, MarkdownIt]":
    """Return the parser of blocks, and that of what is inside a line. Loaded with the first document."""
    from markdown_it import MarkdownIt

    blocks = MarkdownIt("commonmark").enable("table").disable(["inline", "reference"])
    return blocks, MarkdownIt("commonmark").enable("strikethrough")


@dataclass(slots=True)
class _Section:
    """Lines under one heading; `headings` have their markup. The first `above` lines are the heading, and
    previous headings without text."""

    headings: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    above: int = 0
    start: int = 0  # number of the first line of text

    @property
    def text(self) -> list[str]:
        return self.lines[self.above :]

    @property
    def has_text(self) -> bool:
        return any(line.strip() for line in self.text)


def split(text: str, format: DocumentFormat, most: int = sys.maxsize) -> tuple[Passage, ...]:
    """Return the document's passages in order, none without text. `text` may have any line ends. If there are
    more than `most`, the rest may be missing."""
    lines, front = _LINE.findall(text), 0
    if format == "markdown" and lines and lines[0].rstrip() == "---":
        # A YAML front matter, whose last rule would underline a heading.
        front = next((n + 1 for n, line in enumerate(lines) if n and line.rstrip() in ("---", "...")), 0)
    tokens = _parsers()[0].parse("".join(lines[front:]))
    code = {front + n for one in tokens if one.type == "fence" and one.map for n in range(*one.map)}
    sections = _by_headings(lines, front, tokens) if format == "markdown" else [_Section((), lines)]
    passages: list[Passage] = []
    start, number, tail = 0, -1, ""
    for section in _joined(sections):
        head = "".join(section.lines[: section.above])
        if not section.has_text:
            tail = head + "".join(section.text)  # the last section
            break
        if len(passages) > most:
            break
        headings = tuple(filter(None, map(_plain, section.headings)))
        for place, tile in enumerate(_tiles(section.text, section.start, code)):
            number += place % PASSAGES_A_SECTION == 0
            lead = 0 if place else len(head)
            tile = tile if place else head + tile
            passages.append(Passage(headings=headings, section=number, tile=tile, start=start, lead=lead))
            start += len(tile)
    if passages and tail:  # headings after the last text
        passages[-1] = replace(passages[-1], tile=passages[-1].tile + tail)
    return tuple(passages)


# ---------------------------------------------------------------- sections
def _by_headings(lines: Sequence[str], front: int, tokens: "Sequence[Token]") -> list[_Section]:
    """Return the sections in order; the first has no heading, and is empty if the text begins with one."""
    path: list[tuple[int, str]] = []
    sections, at = [_Section(())], 0
    for one, title in pairwise(tokens):
        # Not a heading in a list or a quotation, nor a rule below a paragraph of several lines.
        is_rule = one.markup in ("=", "-") and "\n" in title.content
        if one.type != "heading_open" or one.level or is_rule or len(title.content) > _LONGEST_TITLE:
            continue
        assert one.map is not None
        first, end = front + one.map[0], front + one.map[1]
        sections[-1].lines += lines[at:first]
        level = int(one.tag[1])
        path = [*((other, above) for other, above in path if other < level), (level, title.content)]
        sections.append(_Section(tuple(name for _, name in path), list(lines[first:end]), end - first, end))
        at = end
    sections[-1].lines += lines[at:]
    return sections


def _joined(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Yield the sections with text, each with the previous headings that have none, then the rest."""
    above: list[str] = []
    for section in sections:
        if not section.has_text:
            above += section.lines
            continue
        yield _Section(section.headings, [*above, *section.lines], len(above) + section.above, section.start)
        above = []
    if above:
        yield _Section((), above, len(above))


@lru_cache(maxsize=4_096)
def _plain(title: str) -> str:
    """Return a heading's words without markup, on one line, fit for a citation."""
    (inline,) = _parsers()[1].parseInline(title)
    words = "".join(
        " " if one.type.endswith("break") else one.content
        for one in inline.children or ()
        if one.type != "html_inline"
    )
    return " ".join(words.translate(NO_BRACKETS).split())[:HEADING_CHARS].strip()


# ---------------------------------------------------------------- passages
def _tiles(lines: Sequence[str], start: int, code: Container[int]) -> list[str]:
    """Return the lines, which begin at `start`, as tiles of whole blocks; together they are the lines."""
    tiles: list[str] = []
    room = 0
    for block in _blocks(lines, start, code):
        size = _size(block)
        if tiles and (size <= room or not block.strip() or not tiles[-1].strip()):
            tiles[-1] += block
        else:
            tiles.append(block)
            room = TARGET
        room -= size
    if len(tiles) > 1 and _size(tiles[-1]) < LEAST and _size(tiles[-2]) + _size(tiles[-1]) <= MOST:
        tiles[-2:] = [tiles[-2] + tiles[-1]]
    return tiles


def _blocks(lines: Sequence[str], start: int, code: Container[int]) -> Iterator[str]:
    """Yield paragraphs, each with the blank lines after it, and whole code blocks; long ones in parts."""
    block, is_after_blank = "", False
    for number, line in enumerate(lines, start):
        if is_after_blank and line.strip() and not (number in code and number - 1 in code):
            yield from _parts(block)
            block = ""
        is_after_blank = not line.strip()
        block += line
    if block:
        yield from _parts(block)


def _parts(block: str) -> Iterator[str]:
    """Yield the block, or short enough parts of it: lines, sentences, characters."""
    if _size(block) <= MOST:
        yield block
        return
    part, taken = "", 0
    for piece in _pieces(block):
        size = _size(piece)
        if part and taken + size > TARGET:
            yield part
            part, taken = "", 0
        part, taken = part + piece, taken + size
    if part:
        yield part


def _pieces(block: str) -> Iterator[str]:
    for line in block.splitlines(keepends=True):
        if _size(line) <= TARGET:
            yield line
            continue
        for sentence in (clause for piece in pieces(line) for clause in _CLAUSE.findall(piece)):
            step = TARGET // 3 if WIDE.search(sentence) else TARGET
            yield from (sentence[at : at + step] for at in range(0, len(sentence), step))


def _size(text: str) -> int:
    return len(text) + 2 * len(WIDE.findall(text))


# ---------------------------------------------------------------- ingestion
AT_ONCE = 64  # passages embedded before the answer: some 0.7 s
BATCH = 32  # passages embedded between two looks at the clock
READ_AT_ONCE = 2  # texts; the thread pool serves other work, too


@dataclass(frozen=True, slots=True)
class DocumentIngester:
    """Adds documents. Raises InvalidRequest, TooLarge, QuotaExceeded."""

    store: DocumentStore
    index: PassageIndex
    embedder: Embedder | None
    clock: Clock
    policy: SafetyPolicy = DEFAULT
    limits: DocumentLimits = DocumentLimits()  # noqa: RUF009 frozen
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_ONCE))
    throttled_log: ThrottledLog = field(default_factory=ThrottledLog)

    async def add(
        self, scope: Scope, name: str, content: str, format: DocumentFormat
    ) -> tuple[Document, DocumentChange]:
        """Return the stored document, and whether it is new, the next version, or unchanged."""
        if find(name, self.policy) or is_planted(name):
            raise InvalidRequest("`name` must not hold secrets or instructions.", param="name")
        async with self.reading:
            passages, digest = await asyncio.to_thread(self._read, content, format)
        same = await self.store.named(scope, name)
        if same is not None and same.digest == digest:
            return same, "unchanged"
        vectors: tuple[bytes | None, ...] | None = None  # made later
        if self.embedder is not None and len(passages) <= AT_ONCE:
            with suppress(EmbeddingFailed):
                vectors = tuple(await self._vectors(passages))
        at = self.clock()
        new = NewDocument(scope=scope, name=name, digest=digest, passages=passages, at=at, vectors=vectors)
        return await self.store.put(new, self.limits)

    async def catch_up(self, seconds: float) -> int:
        """Embed passages that have no vector, for about so long; return how many."""
        if self.embedder is None:
            return 0
        loop, made = asyncio.get_running_loop(), 0
        until = loop.time() + seconds
        while loop.time() < until and (pending := await self.index.pending(BATCH)):
            try:
                vectors = await self._vectors(pending)
            except EmbeddingFailed:
                self.throttled_log.warning("documents.embedding_failed")
                break
            made += await self.index.fill(list(zip(pending, vectors, strict=True)))
        return made

    def _read(self, content: str, format: DocumentFormat) -> tuple[tuple[Passage, ...], bytes]:
        """Return the text's passages, secrets and planted instructions replaced, and their digest: of what is
        stored, so that after a change of policy a document that is posted again becomes a new version."""
        if "\0" in content:
            raise InvalidRequest("`content` must not hold NUL characters.", param="content")
        text = content.removeprefix("\ufeff")  # a byte order mark would hide the first heading
        passages = split(cleaned(text, self.policy), format, self.limits.passages)
        if not any(any(c.isalnum() for c in p.text) for p in passages):
            raise InvalidRequest("`content` says nothing.", param="content")
        if len(passages) > self.limits.passages:
            most = self.limits.passages
            why = f"A document may have {most} passages, this one has more: post it in parts."
            raise TooLarge(why, param="content")
        # Removing markup may have joined the parts of a secret ("AK**IA…**") that the text does not hold.
        titles = dict.fromkeys(title for passage in passages for title in passage.headings)
        together = "\n\n".join(titles)
        if cleaned(together, self.policy) != together:  # hardly ever: one search instead of hundreds
            safe = {title: cleaned(title, self.policy).translate(NO_BRACKETS) for title in titles}
            passages = tuple(replace(p, headings=tuple(safe[t] for t in p.headings)) for p in passages)
        digest = blake2b(digest_size=16)
        for passage in passages:
            digest.update(f"{passage.headings}\0{passage.tile}\0".encode("utf-8", "surrogatepass"))
        return passages, digest.digest()

    async def _vectors(self, passages: Sequence[Passage | PassageToEmbed]) -> list[bytes | None]:
        """Return a vector per passage, None for those that the model does not understand."""
        return await vectors_of(self.embedder, [searched_text(p.headings, p.text) for p in passages])
