"""The target of a forget: memories of one user, and what else holds their text."""

from dataclasses import dataclass

from proxy.domain.core import MemoryFilter
from proxy.storage.aim import Aim
from proxy.storage.redis.layout import HeldRow, MemoryRow, storable
from proxy.text import terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Aim):
    """Memories of one user; `text` is folded, and all is as the rows hold it."""

    only: frozenset[str] | None = None
    upto: int | None = None  # of the memories, those with no higher seq: what came later is not meant

    @classmethod
    def of(cls, where: MemoryFilter, memory_id: str | None) -> "Target":
        """Return what a forget of the filter, or of one memory of it, means for the user."""
        return cls(
            project=None if where.project is None else storable(where.project),
            type=where.type,
            text=None if where.text is None else terms.fold(storable(where.text)),
            memory_id=None if memory_id is None else storable(memory_id),
        )

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
