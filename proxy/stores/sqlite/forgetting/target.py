"""What a forget is aimed at: rows of one owner, up to those that were there when it began."""

import sqlite3
from dataclasses import dataclass
from typing import Any

from proxy import terms
from proxy.domain import MemoryFilter, with_children
from proxy.stores.sqlite import rows

_ALL = 2**63 - 1


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
    """Memories of one owner (a number of `scopes`), and what else holds their text."""

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
        """True if nothing of the owner is to be left."""
        return self.is_scope and self.project is None

    @property
    def is_of_many(self) -> bool:
        """True if it covers all memories of a kind, and not single things that are named."""
        return self.memory_id is None and self.document_id is None and self.only is None

    @property
    def types(self) -> list[str] | None:
        """The types that the one named stands for, None for all."""
        return None if self.type is None else sorted(with_children((self.type,)) | {self.type})

    def parameters(self) -> dict[str, Any]:
        """Return what the constant SQL of this package refers to."""
        return {
            "owner": self.owner,
            "project": self.project,
            "types": None if self.types is None else rows.as_json(self.types),
            "only": None if self.only is None else rows.as_json(self.only),
            "document_id": self.document_id,
            "id": None if self.memory_id is None else rows.storable(self.memory_id),
            "text": None if self.text is None else terms.fold(rows.storable(self.text)),
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


def bounds_now(tx: sqlite3.Connection) -> Bounds:
    """Return the last row of each table. All of them count upwards and never use a number twice."""
    last = dict(tx.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    return Bounds(
        memories=last.get("memories", 0),
        exchanges=last.get("exchanges", 0),
        held=last.get("quarantine", 0),
        responses=last.get("stored_responses", 0),
        conversations=last.get("conversations", 0),
        items=last.get("conversation_items", 0),
        documents=last.get("documents", 0),
    )
