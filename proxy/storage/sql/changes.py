"""Apply changes to the tables, within the quota of the user. Runs inside the writer's transaction.

`scopes` says what a user has; triggers keep it. Everything counts, the history too. Under `evict` the
changes are applied and the weakest of the others are erased: the history first, then what has expired, then
by importance x weight x confidence, then who was used least lately. Under `refuse` nothing is
evicted: a change that does not fit is left out. A memory that supersedes may then take the place of the one
it supersedes, which stays in its history; otherwise a full memory could only become stale."""

import json
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.domain.changes import (
    FADED_BY,
    Applied,
    Archive,
    Change,
    Confirm,
    Consolidate,
    Create,
    Edit,
    Event,
    Hold,
    Pin,
    Release,
    Restore,
    Settle,
    Supersede,
)
from proxy.domain.core import (
    Candidate,
    Evidence,
    Memory,
    QuarantinedCandidate,
    Quota,
    Scope,
    own_id,
)
from proxy.domain.errors import Duplicate, NotFound, WrongModel
from proxy.storage.exact_index import REMEMBERED_VERSIONS, pack
from proxy.storage.sql import derivation, entities, rows
from proxy.storage.sql.database import Connection, Store, legible, reads, value
from proxy.storage.sql.rows import NO_MODEL, Generations
from proxy.text.words import terms

_ANOTHERS = """
    SELECT 1 FROM memories m JOIN scopes s ON s.id = m.owner
    WHERE m.id = :id AND s.tenant = :tenant AND m.owner <> :owner LIMIT 1"""


# ---------------------------------------------------------------- quarantine
MOST_HELD = 1000  # of one user; beyond that the oldest is deleted: a flood must not fill the disk

_OURS = """
    FROM quarantine q JOIN scopes s ON s.id = q.owner
    WHERE s.tenant = :tenant AND s.user = :user AND (:project IS NULL OR q.project = :project)"""
_HELD = f"""
    SELECT q.id, s.tenant, s.user, q.project, q.reason, q.at, q.type, q.content, q.confidence, q.tags,
           q.span AS evidence, q.replaces, q.source, q.importance, q.observed_at, q.expires_at, q.session_id,
           q.exchange_id {_OURS}"""
_TRIM = """
    DELETE FROM quarantine WHERE owner = :owner AND seq <= (
        SELECT seq FROM quarantine WHERE owner = :owner ORDER BY seq DESC LIMIT 1 OFFSET :most)"""


_AS_THEY_ARE = (
    "type", "source", "confidence", "importance", "replaces", "observed_at", "expires_at",
)  # fmt: skip


class SqlQuarantine(Store):
    """What is held, for its owner to look at."""

    @reads
    def held(
        self, tx: Connection, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[QuarantinedCandidate]:
        asked = rows.named(scope, limit=limit, before=None)
        if after is not None:
            named = {**asked, "project": None, "id": rows.storable(after)}
            message = "Nothing is held under this id."
            asked["before"] = rows.place_after(tx, f"SELECT q.seq {_OURS} AND q.id = :id", named, message)
        query = f"{_HELD} AND (:before IS NULL OR q.seq < :before) ORDER BY q.seq DESC LIMIT :limit"
        return [_read(row) for row in rows.records(tx, query, asked)]

    @reads
    def find(self, tx: Connection, scope: Scope, held_id: str) -> QuarantinedCandidate | None:
        found = rows.records(tx, f"{_HELD} AND q.id = :id", rows.named(scope, id=rows.storable(held_id)))
        return _read(found[0]) if found else None


def _read(row: dict[str, Any]) -> QuarantinedCandidate:
    held = {"scope": rows.scope_in(row), **{name: row.pop(name) for name in ("id", "reason", "at")}}
    said_in = (row.pop("session_id"), row.pop("exchange_id"))
    origin = Evidence(*said_in, row["evidence"]) if any(said_in) else None
    with legible():
        candidate = Candidate(tags=tuple(json.loads(row.pop("tags"))), origin=origin, **row)
    return QuarantinedCandidate(candidate=candidate, **held)


# ---------------------------------------------------------------- memories
_SAYS_THAT = "Another memory of this user says just that."
STORING = (Create, Supersede, Edit, Consolidate)  # changes that bring a memory


@dataclass(frozen=True, slots=True)
class Writer:
    """Applies changes to one user's memories under the version that they will have afterwards."""

    tx: Connection
    owner: int
    scope: Scope
    version: int
    held: Generations  # the vectors that it may write
    embeds: bool = True  # False: there is no model, so that what comes without a vector should have one
    dropped: list[str] = field(default_factory=list)  # ids of new memories that were known already

    def apply(self, change: Change) -> bool:
        """Apply one change; return whether anything is different now."""
        match change:
            case Create():
                return self.create(change.memory, change.vector, change.reading, change.history)
            case Supersede():
                return self._supersede(change)
            case Confirm():
                return self._confirm(change)
            case Edit():
                return self._edit(change)
            case Hold():
                return self._hold(change)
            case Release():
                taken_out = "DELETE FROM quarantine WHERE owner = ? AND id = ?"
                self.tx.execute(taken_out, (self.owner, rows.storable(change.id)))
                return False  # searches are not affected
            case Archive():
                # Of those that are current; pinned ones only if their owner does it.
                archived = self.tx.execute(
                    "UPDATE memories SET archived = 1, archived_by = :by, changed = :version"
                    " WHERE +owner = :owner AND id IN (SELECT value FROM json_each(:ids)) AND archived = 0"
                    " AND superseded_by IS NULL AND (pinned = 0 OR :by = 'user') RETURNING seq, content",
                    {"ids": rows.as_json(change.ids), "by": change.by, "owner": self.owner,
                     "version": self.version},
                ).fetchall()  # fmt: skip
                for seq, content in archived:
                    self.record(seq, change.at, "archived", change.by, content)
                return bool(archived)
            case Restore():
                return self._restore(change)
            case Pin():
                seq, content, pinned = self._existing(change.id, "pinned")
                if bool(pinned) == change.pinned:
                    return False
                self.tx.execute(
                    "UPDATE memories SET pinned = ?, core = ?, fades_at = NULL, changed = ? WHERE seq = ?",
                    (int(change.pinned), int(change.pinned), self.version, seq),
                )
                self.record(seq, change.at, "pinned" if change.pinned else "unpinned", "user", content)
                return True
            case _:
                return derivation.apply(self, change)

    def create(
        self, memory: Memory, vector: bytes | None, reading: bytes | None, history: tuple[Event, ...] = ()
    ) -> bool:
        statement = rows.digest(memory.content)
        retired = self._retire_expired(memory, statement, at=memory.created_at)
        new = memory
        if history:
            new = replace(
                memory, id=self._own(memory.id), sources=tuple(map(self._own, memory.sources)),
                superseded_by=memory.superseded_by and self._own(memory.superseded_by),
            )  # fmt: skip
        check(new, vector, self.scope, self.held.dimension)
        seq = rows.insert_memory(self.tx, self.owner, new, statement, self.version)
        if seq is None:
            self.dropped.append(memory.id)
            return retired
        rows.insert(
            self.tx, "vectors", memory=seq, embedding=vector, terms=pack(terms(new.content)),
            generation=self._generation(vector), reading=reading,
        )  # fmt: skip
        entities.record(self.tx, self.owner, seq, new.content, new.tags)
        if memory.superseded_by and not history:
            self._fit_into_history(seq, memory)
        created = Event(memory.created_at, "created", memory.source, memory.content)
        for event in history or (created,):
            self.record(seq, event.at, event.action, event.by, event.content)
        return True

    def _own(self, memory_id: str) -> str:
        """Return the id, or another for it if another user of the tenant has it."""
        asked = {"id": rows.storable(memory_id), "tenant": self.scope.tenant, "owner": self.owner}
        return own_id(self.scope, memory_id) if self.tx.execute(_ANOTHERS, asked).fetchone() else memory_id

    def _supersede(self, change: Supersede) -> bool:
        """Close the old one first: the new one may say the same in other words."""
        old, new = self.find(change.old_id), change.memory
        if old is None or change.old_id == new.id:
            return self.create(new, change.vector, change.reading)
        # What no longer holds ends nothing, however often it is said to.
        past = "SELECT superseded_by IS NOT NULL OR archived = 1 FROM memories WHERE id = ? AND owner = ?"
        if value(self.tx, past, (new.id, self.owner)):
            self.dropped.append(new.id)
            return False
        closed = self.close(old[0], new.id, new.valid_from, new.updated_at)
        # The same thing turns out to have held earlier: what it ended, ended then.
        self.tx.execute(
            "UPDATE memories SET superseded_by = ?, valid_to = max(valid_from, ?), changed = ?"
            " WHERE +owner = ? AND superseded_by = ? AND valid_to > ?",
            (new.id, new.valid_from, self.version, self.owner, change.old_id, new.valid_from),
        )
        created = self.create(new, change.vector, change.reading)
        if closed and not created and (twin := self.twin(new)) is not None:
            self.tx.execute("UPDATE memories SET superseded_by = ? WHERE seq = ?", (twin, old[0]))
        if closed:
            self.record(old[0], new.created_at, "superseded", self._successor(old[0]), old[1])
        return created or closed

    def _confirm(self, change: Confirm) -> bool:
        found = self.find(change.id)
        if found is None:
            return False
        seq, content, source = found
        self.tx.execute(
            "UPDATE memories SET updated_at = max(updated_at, ?), confidence = max(confidence, ?),"
            " expires_at = CASE WHEN expires_at IS NULL THEN NULL"
            " ELSE max(expires_at, coalesce(?, expires_at)) END,"
            " changed = ? WHERE seq = ?",
            (change.at, change.confidence, change.expires_at, self.version, seq),
        )
        rows.insert_evidence(self.tx, seq, change.evidence)
        self.record(seq, change.at, "confirmed", source, content)
        archived_by = value(self.tx, "SELECT archived_by FROM memories WHERE seq = ?", (seq,))
        if archived_by in FADED_BY:
            with suppress(Duplicate):  # another memory states it
                self._restore(Restore(change.id, change.at, source))
        return True

    def _edit(self, change: Edit) -> bool:
        """Rewrite the row. Its number stays, and with it its place in lists; so does what it superseded and
        what superseded it."""
        memory, vector = change.memory, change.vector
        check(memory, vector, self.scope, self.held.dimension)
        columns = "source, archived, superseded_by"
        seq, content, source, archived, superseded_by = self._existing(memory.id, columns)
        self._retire_expired(memory, rows.digest(memory.content), at=memory.updated_at, keep=memory.id)
        stays_current = not memory.archived and superseded_by is None
        if stays_current and self.twin(memory) not in (None, memory.id):
            raise Duplicate(_SAYS_THAT, param="content", code="duplicate_memory")
        rows.update_memory(self.tx, seq, memory, self.version)
        new_content = rows.storable(memory.content)
        if vector is not None or new_content != content:
            derivation.review_again(self.tx, seq)
            self.tx.execute(
                "UPDATE vectors SET embedding = ?, terms = ?, generation = ?, reading = ? WHERE memory = ?",
                (vector, pack(terms(new_content)), self._generation(vector), change.reading, seq),
            )
        entities.record(self.tx, self.owner, seq, memory.content, memory.tags)
        moved = "archived" if memory.archived else "restored"
        action = "updated" if memory.archived == bool(archived) else moved
        by = memory.source if memory.source != source else "api"
        self.record(seq, memory.updated_at, action, by, content)
        return True

    def _hold(self, change: Hold) -> bool:
        """Put the candidate in quarantine, unless it is there; searches are not affected (False)."""
        candidate, origin = change.candidate, change.candidate.origin or Evidence("", "")
        rows.insert(
            self.tx, "quarantine", "ON CONFLICT DO NOTHING", id=change.id, owner=self.owner,
            project=self.scope.project, content=rows.storable(candidate.content), reason=change.reason,
            tags=json.dumps(candidate.tags), session_id=origin.session_id, exchange_id=origin.exchange_id,
            span=rows.storable(origin.span or candidate.evidence), at=change.at,
            **{name: getattr(candidate, name) for name in _AS_THEY_ARE},
        )  # fmt: skip
        self.tx.execute(_TRIM, {"owner": self.owner, "most": MOST_HELD})
        return False

    def _restore(self, change: Restore) -> bool:
        """Make an archived memory current again, as if it had been stated now; one that would be archived
        again for its weight starts with the weight of a new one."""
        columns = "archived, superseded_by, project, type, digest"
        seq, content, archived, superseded_by, *place = self._existing(change.id, columns)
        if not archived:
            return False
        if superseded_by is None and rows.twin_of(self.tx, self.owner, place) is not None:
            raise Duplicate(_SAYS_THAT, code="duplicate_memory")
        self.tx.execute(
            "UPDATE memories SET archived = 0, archived_by = NULL, updated_at = max(updated_at, ?),"
            " weight = max(weight, 1.0), fades_at = NULL, changed = ?, written = ? WHERE seq = ?",
            (change.at, self.version, self.version, seq),
        )
        self.record(seq, change.at, "restored", change.by, content)
        return True

    def _existing(self, memory_id: str, columns: str) -> tuple[Any, ...]:
        query = f"SELECT seq, content, {columns} FROM memories WHERE id = ? AND owner = ?"
        found: tuple[Any, ...] | None = self.tx.execute(query, (memory_id, self.owner)).fetchone()
        if found is None:
            raise NotFound("No memory has this id.", param="memory_id", code="memory_not_found")
        return found

    # ------------------------------------------------------------ making room
    def displace(self, change: Supersede) -> bool:
        """Let the new memory of an applied Supersede take the place of the old one, with its history and
        what it had superseded in its turn; return False where it superseded nothing."""
        old, new = self.find(change.old_id), self.find(change.memory.id)
        if old is None or new is None or old == new or self._successor(old[0]) != change.memory.id:
            return False
        for table in ("events", "evidence"):
            self.tx.execute(f"UPDATE {table} SET memory = ? WHERE memory = ?", (new[0], old[0]))
        self.erase([(old[0], change.old_id, change.memory.id)])
        return True

    def erase(self, evicted: Sequence[tuple[int, str, str | None]]) -> None:
        """Erase memories (seq, id, superseded_by) with what cascades: not a forget, so
        that the generation stays. Indexes learn of it from `evicted`."""
        successors = {id_: superseded_by for _, id_, superseded_by in evicted}
        seqs = rows.as_json(seq for seq, _, _ in evicted)
        parameters = {"owner": self.owner, "version": self.version, "seqs": seqs}
        self.tx.execute(
            "INSERT INTO evicted SELECT :owner, :version, CAST(value AS INTEGER) FROM json_each(:seqs)",
            parameters,
        )
        self.tx.execute(f"DELETE FROM memories WHERE seq IN {rows.seqs_in(':seqs')}", parameters)
        self.tx.execute(
            "DELETE FROM evicted WHERE owner = ? AND version <= ?",
            (self.owner, self.version - REMEMBERED_VERSIONS),
        )
        # Who was superseded by an erased memory is superseded by that one's successor: forgetting this one
        # must find it. The plus keeps SQLite from walking through all that the user has.
        orphans = self.tx.execute(
            "SELECT seq, superseded_by FROM memories WHERE +owner = ?"
            " AND superseded_by IN (SELECT value FROM json_each(?))",
            (self.owner, rows.as_json(successors)),
        ).fetchall()
        inherit = "UPDATE memories SET superseded_by = ?, changed = ? WHERE seq = ?"
        for seq, successor in orphans:
            if (heir := derivation.heir_of(successor, successors)) is not None:
                self.tx.execute(inherit, (heir, self.version, seq))

    # ------------------------------------------------------------ rows
    def _generation(self, vector: bytes | None) -> int:
        return self.held.generation if self.embeds or vector is not None else NO_MODEL

    def _retire_expired(self, memory: Memory, statement: bytes, *, at: float, keep: str = "") -> bool:
        """Archive another memory of the same words that has expired: it would keep this one out."""
        archived = self.tx.execute(
            "UPDATE memories SET archived = 1, archived_by = 'expiry', changed = ?"
            " WHERE owner = ? AND coalesce(project, '') = ? AND type = ? AND digest = ?"
            " AND superseded_by IS NULL AND archived = 0 AND expires_at <= ? AND id <> ?",
            (self.version, self.owner, memory.scope.project or "", memory.type, statement, at, keep),
        )
        return archived.rowcount > 0

    def find(self, memory_id: str) -> tuple[int, str, str] | None:
        """Return seq, content and source of one of the user's memories."""
        query = "SELECT seq, content, source FROM memories WHERE id = ? AND owner = ?"
        row: tuple[int, str, str] | None = self.tx.execute(query, (memory_id, self.owner)).fetchone()
        return row

    def _fit_into_history(self, seq: int, past: Memory) -> None:
        """Let one that is stored late end when the next began, and what was before it end when it began."""
        place = {
            "owner": self.owner, "seq": seq, "id": past.id, "began": past.valid_from,
            "successor": past.superseded_by, "ended": past.valid_to, "version": self.version,
        }  # fmt: skip
        while following := self.tx.execute(
            "SELECT id, valid_from FROM memories WHERE +owner = :owner AND superseded_by = :successor"
            " AND seq <> :seq AND valid_from > :began AND valid_from < :ended ORDER BY valid_from LIMIT 1",
            place,
        ).fetchone():
            place["successor"], place["ended"] = following  # ever earlier: this ends
        self.tx.execute(
            "UPDATE memories SET superseded_by = :id, valid_to = :began, changed = :version"
            " WHERE +owner = :owner AND superseded_by = :successor AND seq <> :seq"
            " AND valid_from < :began AND valid_to > :began",
            place,
        )
        self.tx.execute(
            "UPDATE memories SET superseded_by = :successor, valid_to = :ended WHERE seq = :seq", place
        )

    def twin(self, memory: Memory) -> str | None:
        """Return the id of the current memory that says the same."""
        return rows.twin_of(self.tx, self.owner, rows.place_of(memory))

    def close(self, seq: int, by_id: str, began: float, at: float) -> bool:
        """Supersede the memory by one that holds from `began` on; False if it is already."""
        closed = """
            UPDATE memories SET superseded_by = ?, valid_to = max(valid_from, ?), updated_at = ?, changed = ?
            WHERE seq = ? AND superseded_by IS NULL"""
        return self.tx.execute(closed, (by_id, began, at, self.version, seq)).rowcount > 0

    def _successor(self, seq: int) -> str:
        return str(value(self.tx, "SELECT superseded_by FROM memories WHERE seq = ?", (seq,)))

    def record(self, seq: int, at: float, action: str, by: str, content: str) -> None:
        said = rows.storable(content)
        rows.insert(
            self.tx, "events", memory=seq, owner=self.owner, at=at, action=action, by=by, content=said
        )


def check(memory: Memory, vector: bytes | None, scope: Scope, dimension: int | None) -> None:
    """Raise ValueError for a memory that is not the user's, and WrongModel for a vector that is not of the
    store's dimension (None: no model was ever named)."""
    if (memory.scope.tenant, memory.scope.user) != (scope.tenant, scope.user):
        raise ValueError("a memory of another user")
    if vector is not None and dimension is not None and len(vector) != 4 * dimension:
        raise WrongModel(f"a vector of {len(vector) // 4} dimensions, the store holds {dimension}")


# ---------------------------------------------------------------- the quota
_MOST_AT_ONCE = 1000  # evictions beyond what the changes need: after a quota was lowered, others wait too

# Word for word those of the index `memories_weakest`, which spares the sort.
_CLOSED = "(CASE WHEN superseded_by IS NOT NULL OR archived = 1 THEN 1 ELSE 0 END)"
_WEAKEST_FIRST = "(importance * weight * confidence), (coalesce(last_accessed, created_at)), seq"
_OTHERS = f"""
    SELECT seq, id, superseded_by, length(CAST(content AS BLOB)) FROM memories
    WHERE owner = :owner AND written < :version AND {_CLOSED} ="""
_IN_THIS_ORDER = (
    f"{_OTHERS} 1 ORDER BY {_WEAKEST_FIRST}",
    f"{_OTHERS} 0 AND expires_at <= :now ORDER BY {_WEAKEST_FIRST}",
    f"{_OTHERS} 0 AND (expires_at IS NULL OR expires_at > :now) ORDER BY {_WEAKEST_FIRST}",
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user has, or a change adds."""

    memories: int = 0
    content_bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.memories + other.memories, self.content_bytes + other.content_bytes)


def apply_within(quota: Quota, writer: Writer, changes: Sequence[Change]) -> tuple[bool, Applied]:
    """Apply the changes, and leave the user no further above the quota than before, nor above it at all
    where the policy is to evict; return whether a search may return something else now, and the outcome."""
    # Where others make room, only what is new together can be too much.
    present = Usage() if quota.evict else _usage(writer)
    refused: tuple[str, ...] = ()
    if fits(quota, sum(map(growth, changes), present)):
        changed, displaced = sum(map(writer.apply, changes)) > 0, 0
    else:
        changed, refused, displaced = _one_by_one(quota, writer, changes)
    evicted = _make_room(quota, writer, changes) if quota.evict else 0
    return changed or evicted > 0, Applied(refused, displaced + evicted, tuple(writer.dropped))


def _usage(writer: Writer) -> Usage:
    query = "SELECT memories, content_bytes FROM scopes WHERE id = ?"
    return Usage(*writer.tx.execute(query, (writer.owner,)).fetchone())


# ---------------------------------------------------------------- where not everything fits
def _one_by_one(quota: Quota, writer: Writer, changes: Sequence[Change]) -> tuple[bool, tuple[str, ...], int]:
    """Apply the changes that fit, and let a new memory that does not displace the one it supersedes. Return
    whether anything changed, what was refused, and how many were displaced."""
    changed, displaced = False, 0
    refused: list[str] = []

    def measure() -> Usage:
        """Return what the user has, or where others make room, what the changes so far have written."""
        if not quota.evict:
            return _usage(writer)
        query = """
            SELECT count(*), coalesce(sum(length(CAST(content AS BLOB))), 0) FROM memories
            WHERE owner = ? AND changed = ? AND written = ?"""
        return Usage(*writer.tx.execute(query, (writer.owner, writer.version, writer.version)).fetchone())

    for change in sorted(changes, key=lambda change: isinstance(change, Release)):
        if refused and isinstance(change, Release):
            continue  # there was no room for the candidate's memory: it stays in quarantine
        before = measure()
        writer.tx.execute("SAVEPOINT change")
        different = writer.apply(change)
        fits = not grown_too_far(quota, before, measure())
        if not fits and isinstance(change, Supersede) and not quota.evict:
            fits = writer.displace(change) and not grown_too_far(quota, before, measure())
            displaced += fits
        if fits:
            changed |= different
        else:
            writer.tx.execute("ROLLBACK TO change")
            refused += [change.memory.id] if isinstance(change, STORING) else []
        writer.tx.execute("RELEASE change")
    return changed, tuple(refused), displaced


# ---------------------------------------------------------------- eviction
def _make_room(quota: Quota, writer: Writer, changes: Sequence[Change]) -> int:
    """Erase the weakest that these changes did not write, until the rest fits; return how many."""
    usage = _usage(writer)
    if fits(quota, usage):
        return 0
    now = time_of(changes)  # what expires before the last change has expired
    parameters = {"owner": writer.owner, "version": writer.version, "now": now}
    most = _MOST_AT_ONCE + len(changes)
    evicted: list[tuple[int, str, str | None]] = []
    for query in _IN_THIS_ORDER:
        if fits(quota, usage) or len(evicted) == most:
            break
        with closing(writer.tx.execute(query, parameters)) as candidates:
            for seq, id_, superseded_by, size in candidates:
                if fits(quota, usage) or len(evicted) == most:
                    break
                evicted.append((seq, id_, superseded_by))
                usage += Usage(-1, -size)
    writer.erase(evicted)
    return len(evicted)


# ---------------------------------------------------------------- the rule
def fits(quota: Quota, usage: Usage) -> bool:
    too_many = quota.memories and usage.memories > quota.memories
    too_much = quota.content_bytes and usage.content_bytes > quota.content_bytes
    return not (too_many or too_much)


def grown_too_far(quota: Quota, before: Usage, after: Usage) -> bool:
    """True for growth beyond the quota. Who is above it already may still shrink, or stay."""
    too_many = quota.memories and after.memories > max(quota.memories, before.memories)
    too_much = quota.content_bytes and after.content_bytes > max(quota.content_bytes, before.content_bytes)
    return bool(too_many or too_much)


def growth(change: Change) -> Usage:
    """Return the most that the change can add."""
    if not isinstance(change, STORING):
        return Usage()
    size = len(rows.storable(change.memory.content).encode())
    return Usage(0 if isinstance(change, Edit) else 1, size)


def time_of(changes: Sequence[Change]) -> float:
    stored = [change.memory.updated_at for change in changes if isinstance(change, STORING)]
    others = [change.at for change in changes if not isinstance(change, (*STORING, Release, Settle))]
    return max(stored + others, default=0.0)
