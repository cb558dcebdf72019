"""What Create, Supersede and Confirm do to the tables. Runs inside the writer's transaction."""

import sqlite3
from dataclasses import dataclass
from typing import assert_never

from proxy import terms
from proxy.domain import Change, Confirm, Create, Memory, Scope, Supersede
from proxy.errors import WrongModel
from proxy.stores.sqlite import rows
from proxy.stores.sqlite.postings import pack


@dataclass(frozen=True, slots=True)
class Writer:
    """Applies changes to one user's memories under the version that they will have afterwards."""

    tx: sqlite3.Connection
    owner: int
    scope: Scope
    version: int
    dimension: int | None  # of the stamped embedding model; None: not stamped

    def apply(self, change: Change) -> bool:
        """Apply one change; return whether anything is different now."""
        match change:
            case Create():
                return self._create(change.memory, change.vector)
            case Supersede():
                return self._supersede(change)
            case Confirm():
                return self._confirm(change)
            case _:
                assert_never(change)

    def _create(self, memory: Memory, vector: bytes | None) -> bool:
        retired = self._retire_expired(memory)
        seq = self._insert(memory, vector)
        if seq is None:
            return retired
        self._record(seq, memory.created_at, "created", memory.source, memory.content)
        return True

    def _supersede(self, change: Supersede) -> bool:
        """Close the old one first: the new one may say the same in other words."""
        old, new = self._find(change.old_id), change.memory
        if old is None or change.old_id == new.id:
            return self._create(new, change.vector)
        closed = self.tx.execute(
            "UPDATE memories SET superseded_by = ?, valid_to = ?, updated_at = ?, changed = ?"
            " WHERE seq = ? AND superseded_by IS NULL",
            (new.id, new.valid_from, new.updated_at, self.version, old[0]),
        ).rowcount
        created = self._create(new, change.vector)
        if closed and not created:
            self._point_to_twin(old[0], new)
        if closed:
            self._record(old[0], new.updated_at, "superseded", self._successor(old[0]), old[1])
        return created or bool(closed)

    def _confirm(self, change: Confirm) -> bool:
        found = self._find(change.id)
        if found is None:
            return False
        seq, content, source = found
        self.tx.execute(
            "UPDATE memories SET updated_at = max(updated_at, ?), confidence = max(confidence, ?),"
            " changed = ? WHERE seq = ?",
            (change.at, change.confidence, self.version, seq),
        )
        rows.insert_evidence(self.tx, seq, change.evidence)
        self._record(seq, change.at, "confirmed", source, content)
        return True

    # ------------------------------------------------------------ rows
    def _insert(self, memory: Memory, vector: bytes | None) -> int | None:
        if (memory.scope.tenant, memory.scope.user) != (self.scope.tenant, self.scope.user):
            raise ValueError("a memory of another user")
        if vector is not None and self.dimension is not None and len(vector) != 4 * self.dimension:
            raise WrongModel(f"a vector of {len(vector) // 4} dimensions, the store holds {self.dimension}")
        seq = rows.insert_memory(self.tx, self.owner, memory, self.version)
        if seq is not None:
            self.tx.execute(
                "INSERT INTO vectors (memory, embedding, terms) VALUES (?, ?, ?)",
                (seq, vector, pack(terms.terms(memory.content))),
            )
        return seq

    def _retire_expired(self, memory: Memory) -> bool:
        """Archive an expired memory of the same words, which would keep the new one out."""
        archived = self.tx.execute(
            "UPDATE memories SET archived = 1, changed = ?"
            " WHERE owner = ? AND coalesce(project, '') = ? AND type = ? AND digest = ?"
            " AND superseded_by IS NULL AND archived = 0 AND expires_at <= ?",
            (self.version, self.owner, memory.scope.project or "", memory.type,
             rows.digest(memory.content), memory.created_at),
        )  # fmt: skip
        return archived.rowcount > 0

    def _find(self, memory_id: str) -> tuple[int, str, str] | None:
        """Return seq, content and source of one of the user's memories."""
        row: tuple[int, str, str] | None = self.tx.execute(
            "SELECT seq, content, source FROM memories WHERE id = ? AND owner = ?", (memory_id, self.owner)
        ).fetchone()
        return row

    def _point_to_twin(self, seq: int, dropped: Memory) -> None:
        """Let a closed memory name the one that already says what the dropped memory would have said."""
        self.tx.execute(
            "UPDATE memories SET superseded_by = coalesce((SELECT id FROM memories WHERE owner = ?"
            " AND coalesce(project, '') = ? AND type = ? AND digest = ? AND superseded_by IS NULL"
            " AND archived = 0), superseded_by) WHERE seq = ?",
            (self.owner, dropped.scope.project or "", dropped.type, rows.digest(dropped.content), seq),
        )

    def _successor(self, seq: int) -> str:
        (successor,) = self.tx.execute("SELECT superseded_by FROM memories WHERE seq = ?", (seq,)).fetchone()
        return str(successor)

    def _record(self, seq: int, at: float, action: str, by: str, content: str) -> None:
        self.tx.execute(
            "INSERT INTO events (memory, at, action, by, content) VALUES (?, ?, ?, ?, ?)",
            (seq, at, action, by, rows.storable(content)),
        )
