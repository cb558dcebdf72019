"""What a forget is aimed at: memories of one user, and what else holds their text."""

from dataclasses import dataclass

from proxy import terms
from proxy.domain import MemoryFilter, with_children
from proxy.stores.redis.layout import HeldRow, MemoryRow, storable


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Memories of one user. What the fields leave open is not asked for."""

    project: str | None = None
    types: frozenset[str] | None = None
    text: str | None = None  # folded
    memory_id: str | None = None
    document_id: str | None = None  # no memory, but this document
    only: frozenset[str] | None = None  # of the memories, just these
    upto: int | None = None  # of the memories, those with no higher seq: what came later is not meant

    @classmethod
    def of(cls, where: MemoryFilter, memory_id: str | None) -> "Target":
        """Return what a forget of the filter, or of one memory of it, means for the user."""
        return cls(
            project=None if where.project is None else storable(where.project),
            types=None if where.type is None else with_children((where.type,)) | {where.type},
            text=None if where.text is None else terms.fold(storable(where.text)),
            memory_id=None if memory_id is None else storable(memory_id),
        )

    @property
    def is_scope(self) -> bool:
        """True if it covers all that was said, too: a user's, or a project's."""
        return self.types is None and self.text is None and self.is_of_many

    @property
    def is_everything(self) -> bool:
        """True if nothing of the user is to be left."""
        return self.is_scope and self.project is None

    @property
    def is_of_many(self) -> bool:
        """True if it covers all memories of a kind, and not single ones that are named."""
        return self.memory_id is None and self.document_id is None and self.only is None

    @property
    def named(self) -> frozenset[str] | None:
        """The memories among which it covers any; None: all."""
        return self.only if self.memory_id is None else frozenset((self.memory_id,))

    def is_about(self, project: str | None) -> bool:
        """True of a project (None: of none) whose sessions, jobs and responses it concerns."""
        return self.project is None or project == self.project

    def reaches(self, row: MemoryRow) -> bool:
        """True of a memory that was there when it began."""
        return self.upto is None or row["seq"] <= self.upto

    def covers(self, row: MemoryRow | HeldRow) -> bool:
        """True of what it means, its id and its seq aside."""
        return (
            self.is_about(row["project"])
            and (self.types is None or row["type"] in self.types)
            and (self.text is None or self.text in terms.fold(row["content"]))
        )
