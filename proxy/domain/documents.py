"""Knowledge documents beside personal memory: values, and the ports that keep them.

A document is a text with a name, cut into passages along its headings. Its passages, joined, are the text as
it is kept. Posted again with other words it becomes the next version, and the old one is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from proxy.domain.core import ForgetCounts, Scope

DocumentFormat = Literal["markdown", "text"]
DocumentChange = Literal["created", "updated", "unchanged"]

READY, INDEXING = "ready", "indexing"
PATH = " › "  # between the headings that lead to a passage
_MARKS = ("[redacted", "[removed]")  # of background.safety: filters and planted


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a document that is found and shown as one, and the headings that lead to it."""

    headings: tuple[str, ...]  # outermost first
    section: int  # of the document, from 0; passages under one heading share it
    tile: str  # verbatim, with headings and blank lines around: the tiles, joined, are the document
    start: int  # of the tile in the document, in characters
    lead: int = 0  # characters of the tile before what is to be shown

    @property
    def text(self) -> str:
        """What is shown: without the headings above it and the blank lines around it."""
        return self.tile[self.lead :].strip()

    @property
    def offsets(self) -> tuple[int, int]:
        """Where the text begins and ends in the document, in characters."""
        shown = self.tile[self.lead :]
        begin = self.start + self.lead + len(shown) - len(shown.lstrip())
        return begin, begin + len(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document as far as lists show it. `id` stays the same from version to version."""

    id: str
    scope: Scope
    name: str
    version: int  # from 1
    status: str  # READY, or INDEXING: some passages are still found by their words only
    digest: bytes  # of the text as it is kept
    characters: int
    sections: int
    passages: int
    created_at: float  # of the first version
    updated_at: float  # of this one


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """A text to keep under a name. `vectors`, one a passage, are None where they are to be made later."""

    scope: Scope
    name: str
    digest: bytes
    passages: tuple[Passage, ...]
    at: float
    vectors: tuple[bytes | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """How much one user may keep; a document of more passages than `passages` is refused before that."""

    passages: int = 2_000
    documents: int = 500
    passages_of_user: int = 20_000


@dataclass(frozen=True, slots=True)
class PassageSearch:
    """What to look for in the documents of one scope. `sections`: how many of the best by cosine and of the
    best by BM25 are chosen first; their passages are then searched, 0: all passages at once."""

    vector: bytes | None
    terms: tuple[str, ...]
    sections: int = 4
    limit: int = 10


@dataclass(frozen=True, slots=True)
class PassageScores:
    """Cosine (None where either side has no vector) and BM25."""

    cosine: float | None = None
    bm25: float = 0.0


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A passage found, and what was found for its section as a whole."""

    document: Document
    passage: Passage
    own: PassageScores
    section: PassageScores


@dataclass(frozen=True, slots=True)
class PassageToEmbed:
    """A passage that waits for its vector."""

    seq: int
    headings: tuple[str, ...]
    text: str


class DocumentStore(Protocol):
    """Documents of many users; every read and write stays inside one scope."""

    async def put(self, new: NewDocument, limits: DocumentLimits) -> tuple[Document, DocumentChange]:
        """Keep the document, durable on return, in the place of what had its name in the scope's user and
        project; the same text changes nothing. Raises QuotaExceeded beyond the limits."""
        ...

    async def named(self, scope: Scope, name: str) -> Document | None:
        """Return the document of this name in just this scope's project, or of no project."""
        ...

    async def find(self, tenant: str, user: str | None, document_id: str) -> Document | None:
        """Return the user's document, or any user's of the tenant; None if absent or another's."""
        ...

    async def passages(self, document: Document) -> Sequence[Passage]:
        """Return its passages in order; none where it was replaced or deleted meanwhile."""
        ...

    async def list(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Document]:
        """Return up to `limit` of the user's documents (of the scope's project, if it names one), the last
        written first, after the one with id `after` (NotFound: none)."""
        ...

    async def delete(self, document: Document, *, by: str, now: float) -> ForgetCounts:
        """Erase the document, durable on return, and the answers that may repeat it; a receipt is kept."""
        ...


class PassageIndex(Protocol):
    """The passages of all documents, for who searches them and who gives them vectors."""

    async def holds(self, scope: Scope) -> bool:
        """Return whether the user has documents at all, for the price of one indexed lookup."""
        ...

    async def search(self, scope: Scope, look: PassageSearch) -> Sequence[PassageHit]:
        """Return the best by cosine and the best by BM25 of the scope's passages, each with both scores."""
        ...

    async def pending(self, limit: int) -> Sequence[PassageToEmbed]:
        """Return passages, of anybody, that have no vector of the store's model yet."""
        ...

    async def fill(self, made: Sequence[tuple[PassageToEmbed, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None where the model understands
        nothing of it. What was replaced or deleted meanwhile is left out."""
        ...


def is_redacted(passage: Passage) -> bool:
    """Return whether a mark stands in it where a secret or a planted instruction stood."""
    return any(mark in passage.tile for mark in _MARKS)


def path_of(headings: Sequence[str]) -> str:
    """Return the headings as one line, outermost first."""
    return PATH.join(headings)


def searched_text(headings: Sequence[str], text: str) -> str:
    """Return what a passage is found by: the headings that lead to it say what it is about."""
    return f"{path_of(headings)}\n{text}" if headings else text
