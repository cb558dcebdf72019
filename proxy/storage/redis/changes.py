"""Apply a Change to a user's rows. Runs inside a unit of work; stores/sqlite/changes.py does the same for
SQLite.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from proxy.domain.core import Change, Confirm, Create, Edit, Event, Hold, Memory, Release, Scope, Supersede
from proxy.domain.errors import Duplicate, NotFound
from proxy.storage.generations import NO_MODEL, Held
from proxy.storage.placing import check, heir_of
from proxy.storage.redis import identity, quarantine, words
from proxy.storage.redis.layout import MemoryRow, said_key, storable
from proxy.storage.redis.rows import Rows, key_of, row_of, terms_of, with_evidence


@dataclass(frozen=True, slots=True)
class Writer:
    """Applies changes to one user's memories under the version that they will have afterwards."""

    rows: Rows
    scope: Scope
    version: int
    held: Held  # the vectors that it may write
    embeds: bool = True  # False: there is no model, so that what comes without a vector should have one
    dropped: list[str] = field(default_factory=list)  # ids of new memories that were known already
    written: set[str] = field(default_factory=set)  # ids of memories that were stored or edited

    async def fetch(self, changes: Sequence[Change]) -> None:
        """Read ahead what the changes need."""
        new = [c.memory for c in changes if isinstance(c, Create | Supersede | Edit)]
        ids = [storable(memory.id) for memory in new]
        ids += [storable(c.old_id) for c in changes if isinstance(c, Supersede)]
        ids += [storable(c.id) for c in changes if isinstance(c, Confirm)]
        if ids:
            await self.rows.fetch(ids, new)

    async def apply(self, change: Change) -> bool:
        """Apply one change; return whether anything is different now."""
        match change:
            case Create():
                return await self._create(change.memory, change.vector, change.history)
            case Supersede():
                return await self._supersede(change)
            case Confirm():
                return await self._confirm(change)
            case Edit():
                return await self._edit(change.memory, change.vector)
            case Hold():
                return await quarantine.hold(self.rows.unit, self.scope.project, change)
            case Release():
                return await quarantine.release(self.rows.unit, change.id)
            case _:
                assert_never(change)

    async def _create(self, memory: Memory, vector: bytes | None, history: tuple[Event, ...] = ()) -> bool:
        retired = await self._retire_expired(memory, at=memory.created_at)
        new = await identity.own(self.rows, memory) if history else memory
        if not await self._insert(new, vector):
            self.dropped.append(memory.id)
            return retired
        if memory.superseded_by and not history:
            await self._fit_into_history(storable(new.id))
        created = Event(memory.created_at, "created", memory.source, memory.content)
        for event in history or (created,):
            await self.rows.record(storable(new.id), event.at, event.action, event.by, event.content)
        return True

    async def _supersede(self, change: Supersede) -> bool:
        """Close the old one first: the new one may say the same in other words."""
        old_id, new_id, new = storable(change.old_id), storable(change.memory.id), change.memory
        old = await self.rows.get(old_id)
        if old is None or old_id == new_id:
            return await self._create(new, change.vector)
        known = await self.rows.get(new_id)
        if known is not None and not words.is_counted(known):  # it no longer holds: it ends nothing
            self.dropped.append(new.id)
            return False
        if closed := old["superseded_by"] is None:
            await self.rows.put(old_id, {**_ended(old, new_id, new.valid_from), "updated_at": new.updated_at})
        # The same thing turns out to have held earlier: what it ended, ended then.
        for older_id, older in (await self.rows.superseded_by(old_id)).items():
            if older["valid_to"] is not None and older["valid_to"] > new.valid_from:
                await self.rows.put(older_id, _ended(older, new_id, new.valid_from))
        created = await self._create(new, change.vector)
        if closed and not created:
            await self._point_to_twin(old_id, new)
        if closed:
            successor = str((await self._row(old_id))["superseded_by"])
            await self.rows.record(old_id, new.created_at, "superseded", successor, old["content"])
        return created or closed

    async def _confirm(self, change: Confirm) -> bool:
        memory_id = storable(change.id)
        row = await self.rows.get(memory_id)
        if row is None:
            return False
        confirmed: MemoryRow = {
            **row,
            "updated_at": max(row["updated_at"], change.at),
            "confidence": max(row["confidence"], change.confidence),
            "evidence": with_evidence(row["evidence"], change.evidence),
        }
        if row["expires_at"] is not None and (change.expires_at or 0.0) > row["expires_at"]:
            # The index holds when it ends, too.
            confirmed |= {"expires_at": change.expires_at, "written": self.version}
        await self.rows.put(memory_id, confirmed)
        await self.rows.record(memory_id, change.at, "confirmed", row["source"], row["content"])
        return True

    async def _edit(self, memory: Memory, vector: bytes | None) -> bool:
        """Rewrite the row. Its number stays, and with it its place in lists; so does what it superseded and
        what superseded it."""
        check(memory, vector, self.scope, self.held.dimension)
        memory_id = storable(memory.id)
        if await self.rows.get(memory_id) is None:
            raise NotFound("No memory has this id.")
        await self._retire_expired(memory, at=memory.updated_at, keep=memory_id)
        old = await self._row(memory_id)
        new = self._edited(old, memory)
        if rewritten := vector is not None or new["content"] != old["content"]:
            new["terms"] = terms_of(new["content"])
            new["vector"] = None if vector is None else self.version
            new["generation"] = self._generation(vector)
        if words.is_counted(new) and await self.rows.twin(key_of(new)) not in (None, memory_id):
            raise Duplicate(
                "Another memory of this user says just that.", param="content", code="duplicate_memory"
            )
        if rewritten and new["superseded_by"] is None:
            self.rows.add_vector(memory_id, vector, new["generation"])
        await self.rows.put(memory_id, new)
        self.written.add(memory_id)
        action = "archived" if memory.archived and not old["archived"] else "updated"
        by = memory.source if memory.source != old["source"] else "api"
        await self.rows.record(memory_id, memory.updated_at, action, by, old["content"])
        return True

    def _edited(self, old: MemoryRow, memory: Memory) -> MemoryRow:
        """Return the row with what a person can correct."""
        asked = row_of(
            memory, seq=old["seq"], version=self.version, vector=old["vector"], generation=old["generation"]
        )
        kept: MemoryRow = {
            **asked,
            "created_at": old["created_at"],
            "valid_from": old["valid_from"],
            "valid_to": old["valid_to"],
            "superseded_by": old["superseded_by"],
            "evidence": old["evidence"],
            "access_count": old["access_count"],
            "last_accessed": old["last_accessed"],
        }
        if kept["content"] == old["content"]:
            kept["terms"] = old["terms"]
        return kept

    # ------------------------------------------------------------ making room
    async def displace(self, change: Supersede) -> bool:
        """Let the new memory of an applied Supersede take the place of the old one, with its history and
        what it had superseded in its turn; return False where it superseded nothing."""
        old_id, new_id = storable(change.old_id), storable(change.memory.id)
        old, new = await self.rows.get(old_id), await self.rows.get(new_id)
        if old is None or new is None or old_id == new_id or old["superseded_by"] != new_id:
            return False
        await self.rows.put(new_id, {**new, "evidence": [*old["evidence"], *new["evidence"]]})
        await self.rows.put(old_id, {**old, "evidence": []})
        await self.rows.move_events(old_id, new_id)
        await self.erase({old_id: new_id})
        return True

    async def erase(self, doomed: dict[str, str | None]) -> None:
        """Erase memories, given by their successors: not on anybody's order to forget, so that the
        generation stays."""
        await self.rows.erase(doomed)
        for memory_id in doomed:
            await self._close_gap(memory_id, doomed)

    async def _close_gap(self, memory_id: str, successors: dict[str, str | None]) -> None:
        """Let what an erased memory had superseded be superseded by that one's successor: forgetting this
        one must find it."""
        heir = heir_of(memory_id, successors)
        if heir is None:
            return
        for orphan_id, orphan in (await self.rows.superseded_by(memory_id)).items():
            await self.rows.put(orphan_id, {**orphan, "superseded_by": heir})

    # ------------------------------------------------------------ rows
    def _generation(self, vector: bytes | None) -> int:
        return self.held.generation if self.embeds or vector is not None else NO_MODEL

    async def _row(self, memory_id: str) -> MemoryRow:
        row = await self.rows.get(memory_id)
        assert row is not None
        return row

    async def _insert(self, memory: Memory, vector: bytes | None) -> bool:
        """Store the memory; False if its id or its words are there already."""
        check(memory, vector, self.scope, self.held.dimension)
        memory_id = storable(memory.id)
        if await self.rows.get(memory_id) is not None:
            return False
        row = row_of(
            memory,
            seq=self.rows.unit.next(),
            version=self.version,
            vector=None if vector is None else self.version,
            generation=self._generation(vector),
        )
        if words.is_counted(row) and await self.rows.twin(key_of(row)) is not None:
            return False
        await self.rows.put(memory_id, row)
        if row["superseded_by"] is None:
            self.rows.add_vector(memory_id, vector, row["generation"])
        self.written.add(memory_id)
        return True

    async def _retire_expired(self, memory: Memory, *, at: float, keep: str = "") -> bool:
        """Archive another memory of the same words that has expired: it would keep this one out."""
        twin = await self.rows.twin(_said(memory))
        row = None if twin is None or twin == keep else await self.rows.get(twin)
        if twin is None or row is None or not words.has_expired(row, at):
            return False
        await self.rows.put(twin, {**row, "archived": True})
        return True

    async def _point_to_twin(self, memory_id: str, dropped: Memory) -> None:
        """Let a closed memory name the one that already says what the dropped memory would have said."""
        if twin := await self.rows.twin(_said(dropped)):
            await self.rows.put(memory_id, {**await self._row(memory_id), "superseded_by": twin})

    async def _fit_into_history(self, memory_id: str) -> None:
        """Let one that is stored late end when the next began, and what was before it end when it began."""
        row = await self._row(memory_id)
        began, successor, ended = row["valid_from"], row["superseded_by"], row["valid_to"]
        while successor is not None and ended is not None:
            others = await self.rows.superseded_by(successor)
            following = [
                (other["valid_from"], other["seq"], other_id)
                for other_id, other in others.items()
                if other_id != memory_id and began < other["valid_from"] < ended
            ]
            if not following:
                break
            ended, _, successor = min(following)  # ever earlier: this ends
        for other_id, other in (await self.rows.superseded_by(str(successor))).items():
            until = other["valid_to"]
            if other_id != memory_id and until is not None and other["valid_from"] < began < until:
                closed: MemoryRow = {**other, "superseded_by": memory_id, "valid_to": began}
                await self.rows.put(other_id, closed)
        await self.rows.put(memory_id, {**row, "superseded_by": successor, "valid_to": ended})


def _ended(row: MemoryRow, by: str, at: float) -> MemoryRow:
    """Return the row as superseded by another memory that holds from `at`."""
    return {**row, "superseded_by": by, "valid_to": max(row["valid_from"], at)}


def _said(memory: Memory) -> str:
    project = memory.scope.project
    return said_key(project and storable(project), storable(memory.type), storable(memory.content))
