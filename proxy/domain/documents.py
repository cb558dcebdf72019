"""Knowledge documents: values and ports.

A document is a named text, cut into passages along its headings; the passages, joined, are the stored text.
Posting it again with other text replaces it by the next version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from proxy.domain.core import ForgetCounts, Scope

DocumentFormat = Literal["markdown", "text"]
DocumentChange = Literal["created", "updated", "unchanged"]

READY, INDEXING = "ready", "indexing"
PATH = " › "  # between the headings that lead to a passage
_MARKS = ("[redacted", "[removed]")  # as admit.safety and admit.injection write them


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a document that is found and shown as one, and its headings."""

    headings: tuple[str, ...]  # outermost first
    section: int  # of the document, from 0; passages under one heading share it
    tile: str  # verbatim, with headings and blank lines; the tiles, joined, are the document
    start: int  # of the tile in the document, in characters
    lead: int = 0  # characters of the tile before the text to show

    @property
    def text(self) -> str:
        """The text to show, without headings and surrounding blank lines."""
        return self.tile[self.lead :].strip()

    @property
    def offsets(self) -> tuple[int, int]:
        """Where the text begins and ends in the document, in characters."""
        shown = self.tile[self.lead :]
        begin = self.start + self.lead + len(shown) - len(shown.lstrip())
        return begin, begin + len(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document without its text. All versions have the same `id`."""

    id: str
    scope: Scope
    name: str
    version: int  # from 1
    status: str  # READY, or INDEXING: some passages are found by their words only
    digest: bytes  # of the stored text
    characters: int
    sections: int
    passages: int
    created_at: float  # of the first version
    updated_at: float  # of this one


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """A text to store under a name. `vectors`: one per passage, None for those to be computed later."""

    scope: Scope
    name: str
    digest: bytes
    passages: tuple[Passage, ...]
    at: float
    vectors: tuple[bytes | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """How much one user may store. `passages`: of one document."""

    passages: int = 2_000
    documents: int = 500
    passages_of_user: int = 20_000


@dataclass(frozen=True, slots=True)
class PassageSearch:
    """A search in the documents of one scope. `sections`: how many of the best sections by cosine and by BM25
    are chosen first, to search their passages; 0: search all passages."""

    vector: bytes | None
    terms: tuple[str, ...]
    sections: int = 4
    limit: int = 10


@dataclass(frozen=True, slots=True)
class PassageScores:
    """Cosine (None if either side has no vector) and BM25."""

    cosine: float | None = None
    bm25: float = 0.0


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A passage found, with its scores and those of its section."""

    document: Document
    passage: Passage
    own: PassageScores
    section: PassageScores


@dataclass(frozen=True, slots=True)
class PassageToEmbed:
    seq: int
    headings: tuple[str, ...]
    text: str


class DocumentStore(Protocol):
    """Documents of many users; every read and write stays inside one scope."""

    async def put(self, new: NewDocument, limits: DocumentLimits) -> tuple[Document, DocumentChange]:
        """Store the document, durable on return; it replaces the one of the same name, user and project,
        and the same text changes nothing. Raises QuotaExceeded beyond the limits."""

    async def named(self, scope: Scope, name: str) -> Document | None:
        """Return the document of this name in exactly this project, or of no project."""

    async def find(self, tenant: str, user: str | None, document_id: str) -> Document | None:
        """Return the user's document, or any user's of the tenant; None if absent or another's."""

    async def passages(self, document: Document) -> Sequence[Passage]:
        """Return its passages in order; none if it was replaced or deleted."""

    async def list(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[Document]:
        """Return up to `limit` of the user's documents (of the scope's project, if it names one), the latest
        first, after the one with id `after` (NotFound if absent)."""

    async def delete(self, document: Document, *, by: str, now: float) -> ForgetCounts:
        """Erase the document, durable on return, and the answers that may repeat it; store a receipt."""


class PassageIndex(Protocol):
    """The passages of all documents, to search and to embed."""

    async def holds(self, scope: Scope) -> bool:
        """Return whether the user has any documents, with one indexed lookup."""

    async def search(self, scope: Scope, look: PassageSearch) -> Sequence[PassageHit]:
        """Return the best by cosine and the best by BM25 of the scope's passages, each with both scores."""

    async def pending(self, limit: int) -> Sequence[PassageToEmbed]:
        """Return passages of any user without a vector of the store's model."""

    async def fill(self, made: Sequence[tuple[PassageToEmbed, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None if the model cannot read the
        passage. Passages that were replaced or deleted are skipped."""


def is_redacted(passage: Passage) -> bool:
    """Return whether a secret or a planted instruction was replaced by a mark in it."""
    return any(mark in passage.tile for mark in _MARKS)


def path_of(headings: Sequence[str]) -> str:
    """Return the headings as one line, outermost first."""
    return PATH.join(headings)


def searched_text(headings: Sequence[str], text: str) -> str:
    """Return what a passage is searched by: its headings and its text."""
    return f"{path_of(headings)}\n{text}" if headings else text
