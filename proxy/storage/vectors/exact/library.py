"""One user's documents as arrays: sections first, then the passages of those that were chosen.

Both levels are the arrays that serve memories. A section's vector is the mean of its passages' vectors, its
words are all of theirs. To the second level a section is what a type is to memories: a filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proxy.domain.core import Search, Stamp
from proxy.domain.documents import Look, Scores
from proxy.storage.damage import legible
from proxy.storage.vectors.exact.index import Found, Row, UserIndex, build

_NO_STAMP = Stamp(0, 0)


@dataclass(frozen=True, slots=True)
class PassageRow:
    """A passage as the index reads it."""

    seq: int
    document: int
    section: int
    project: str | None
    vector: bytes | None
    terms: bytes


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage's number and scores, and its section's."""

    seq: int
    own: Scores
    section: Scores


@dataclass(frozen=True, slots=True)
class Key:
    """What an index was made of: a file, a state of the user's documents, the vectors that were compared."""

    epoch: int
    version: int
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LibraryIndex:
    """All documents of one user."""

    key: Key
    sections: UserIndex
    passages: UserIndex
    section_of: dict[int, int]  # by the passage's seq

    @property
    def nbytes(self) -> int:
        """Memory held, nearly."""
        return self.sections.nbytes + self.passages.nbytes + 100 * len(self.section_of)

    def search(self, project: str | None, look: Look) -> list[FoundPassage]:
        """Return the passages found, with both pairs of scores."""
        chosen: dict[int, Found] = {}
        types = None
        if look.sections:
            wanted = Search(look.vector, look.terms, limit=look.sections)
            chosen = {one.seq: one for one in self.sections.search(project, wanted)}
            types = frozenset(map(str, chosen))
        found = self.passages.search(project, Search(look.vector, look.terms, limit=look.limit, types=types))
        return [
            FoundPassage(one.seq, Scores(one.cosine, one.bm25), _scores(chosen.get(self.section_of[one.seq])))
            for one in found
        ]


def build_library(key: Key, rows: Sequence[PassageRow]) -> LibraryIndex:
    """Index the passages, which come in order. Raises DamagedRow for vectors of different
    lengths, and for terms that are no numbers."""
    numbers: dict[tuple[int, int], int] = {}
    members: dict[int, list[PassageRow]] = {}
    for row in rows:
        number = numbers.setdefault((row.document, row.section), len(numbers))
        members.setdefault(number, []).append(row)
    passages = [
        Row(row.seq, str(number), row.project, None, current=True, vector=row.vector, terms=row.terms)
        for number, of_section in members.items()
        for row in of_section
    ]
    with legible():
        sections = [_section(number, of_section) for number, of_section in members.items()]
    return LibraryIndex(
        key,
        sections=build(sections, _NO_STAMP),
        passages=build(passages, _NO_STAMP),
        section_of={row.seq: number for number, of_section in members.items() for row in of_section},
    )


def _section(number: int, rows: Sequence[PassageRow]) -> Row:
    words = b"".join(row.terms for row in rows)
    return Row(number, "", rows[0].project, None, current=True, vector=_centroid(rows), terms=words)


def _centroid(rows: Sequence[PassageRow]) -> bytes | None:
    """Return the unit vector in the middle of the passages' vectors."""
    vectors = [np.frombuffer(row.vector, np.float32) for row in rows if row.vector is not None]
    if not vectors:
        return None
    middle = np.sum(vectors, axis=0)
    length = float(np.linalg.norm(middle))
    return (middle / length).astype(np.float32).tobytes() if length else None


def _scores(found: Found | None) -> Scores:
    return Scores(found.cosine, found.bm25) if found else Scores()
