"""The target of a forget: rows of one owner, up to those that were there when it began."""

from dataclasses import dataclass
from typing import Any

from proxy.domain.core import MemoryFilter
from proxy.storage.aim import Aim
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
class Target(Aim):
    """Memories of one owner (a number of `scopes`), and what else holds their text."""

    owner: int
    only: tuple[int, ...] | None = None  # rows
    bounds: Bounds = Bounds()

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
