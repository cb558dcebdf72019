"""The target of a forget: rows of one owner, up to those that were there when it began."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from proxy.domain.core import MemoryFilter, with_children
from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection

_ALL = 2**63 - 1
# In the order of the fields of Bounds.
_BOUNDED = (
    "memories",
    "exchanges",
    "quarantine",
    "stored_responses",
    "conversations",
    "conversation_items",
    "documents",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The last row of each table that a forget covers: what is written after it began survives it."""

    memories: int = _ALL
    exchanges: int = _ALL
    held: int = _ALL
    responses: int = _ALL
    conversations: int = _ALL
    items: int = _ALL
    documents: int = _ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Memories of one owner (a number of `scopes`), and what else holds their text. A field that is None
    narrows nothing."""

    owner: int
    project: str | None = None
    type: str | None = None
    text: str | None = None
    memory_id: str | None = None
    document_id: str | None = None  # no memory, but this document
    only: tuple[int, ...] | None = None  # of the memories, just these rows
    bounds: Bounds = Bounds()

    @property
    def is_scope(self) -> bool:
        """True if it covers all that was said, too: a user's, or a project's."""
        return self.type is None and self.text is None and self.is_of_many

    @property
    def is_everything(self) -> bool:
        """True if nothing of the user is to be left."""
        return self.is_scope and self.project is None

    @property
    def is_of_many(self) -> bool:
        """True if it covers all memories of a kind, and not single things that are named."""
        return self.memory_id is None and self.document_id is None and self.only is None

    @property
    def types(self) -> frozenset[str] | None:
        """The named type with its subtypes, None for all."""
        return None if self.type is None else _with_children(self.type)

    def parameters(self) -> dict[str, Any]:
        """Return what the constant SQL of this package refers to."""
        return {
            "owner": self.owner,
            "project": self.project,
            "types": None if self.types is None else rows.as_json(sorted(self.types)),
            "only": None if self.only is None else rows.as_json(self.only),
            "document_id": self.document_id,
            "id": None if self.memory_id is None else rows.storable(self.memory_id),
            "memories": self.bounds.memories,
            "exchanges": self.bounds.exchanges,
            "held": self.bounds.held,
            "responses": self.bounds.responses,
            "conversations": self.bounds.conversations,
            "items": self.bounds.items,
            "documents": self.bounds.documents,
        }


def aimed(owner: int, where: MemoryFilter, memory_id: str | None) -> Target:
    """Return what a forget of the filter means for one owner."""
    return Target(
        owner=owner, project=where.project, type=where.type, text=where.text, memory_id=memory_id
    )  # fmt: skip


def bounds_now(tx: Connection) -> Bounds:
    """Return the last row of each table. All of them count upwards and never use a number twice."""
    return Bounds(
        *(tx.execute(f"SELECT coalesce(max(seq), 0) FROM {table}").fetchone()[0] for table in _BOUNDED)
    )


@cache
def _with_children(type_: str) -> frozenset[str]:
    return with_children((type_,)) | {type_}
