"""Memories that were made from others (consolidated, reflective), contradictions between memories, and which
memories a background step has considered. The changes run inside the writer's transaction.

`memories.sources` names what a memory was made from. A derived memory repeats its sources, so it is erased
with any of them. What it superseded becomes current again, unless it has a successor."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, assert_never

from proxy.domain.changes import (
    Close,
    Consolidate,
    Contradiction,
    Derived,
    Due,
    Flag,
    Review,
    Settle,
    Undo,
)
from proxy.domain.core import Memory, Scope
from proxy.domain.errors import NotFound
from proxy.storage.sql import rows
from proxy.storage.sql.database import BEYOND_ALL, Connection, Store, column, reads, value

if TYPE_CHECKING:
    from proxy.storage.sql.changes import Writer

UNDONE = "undone"  # a step of `reviews`: what was consolidated once, and should not be again
_IS_CURRENT = "superseded_by IS NULL AND archived = 0"
_OURS = f"SELECT seq, id, content FROM memories WHERE owner = ? AND {_IS_CURRENT} AND id"
_THESE = "IN (SELECT value FROM json_each(?))"


# ---------------------------------------------------------------- changes
def apply(writer: "Writer", change: Derived) -> bool:
    """Apply one change; return whether a search may return something else now."""
    tx, owner = writer.tx, writer.owner
    match change:
        case Consolidate():
            new = change.memory
            olds = _current(tx, owner, change.old_ids)
            is_said = writer.twin(new) not in (None, *change.old_ids)
            if len(olds) < len(set(change.old_ids)) or is_said or writer.find(new.id) is not None:
                writer.dropped.append(new.id)
                return False
            for seq, content in olds.values():
                writer.close(seq, new.id, new.valid_from, new.created_at)
                writer.record(seq, new.created_at, "superseded", new.id, content)
            return writer.create(new, change.vector, change.reading)
        case Undo():
            return _undo(writer, change)
        case Close():
            found = _current(tx, owner, (change.id, change.by_id))
            if change.id == change.by_id or len(found) < 2:
                return False
            seq, content = found[change.id]
            began = value(tx, "SELECT valid_from FROM memories WHERE seq = ?", (found[change.by_id][0],))
            writer.close(seq, change.by_id, began, change.at)
            writer.record(seq, change.at, "superseded", change.by_id, content)
            _drop_flags(tx, seq)
            return True
        case Flag():
            found = _current(tx, owner, (change.older_id, change.newer_id))
            if len(found) < 2:
                return False
            older, newer = found[change.older_id][0], found[change.newer_id][0]
            digest = blake2b(f"{change.older_id}\0{change.newer_id}".encode(), digest_size=12).hexdigest()
            made = rows.insert(
                tx, "contradictions", "ON CONFLICT DO NOTHING RETURNING seq", id=f"cntr_{digest}",
                owner=owner, older=older, newer=newer, score=change.score, found_at=change.at,
            )  # fmt: skip
            return made is not None and _touched(writer, older)
        case Settle():
            settled = "DELETE FROM contradictions WHERE owner = ? AND id = ? RETURNING older"
            flagged = value(tx, settled, (owner, rows.storable(change.id)))
            return flagged is not None and _touched(writer, flagged)
        case Review():
            for seq, _ in _current(tx, owner, change.ids).values():
                _reviewed(tx, seq, change.step, change.batch, change.at)
            if change.upto is not None:
                tx.execute(
                    "INSERT INTO review_cursors (owner, step, upto) VALUES (?, ?, ?)"
                    " ON CONFLICT (owner, step) DO UPDATE SET upto = max(review_cursors.upto, excluded.upto)",
                    (owner, change.step, change.upto),
                )
            return False  # searches are not affected
        case _:
            assert_never(change)


def _undo(writer: "Writer", change: Undo) -> bool:
    """Delete the memory. Its sources are not consolidated again."""
    tx, owner, found = writer.tx, writer.owner, writer.find(change.id)
    query = """
        SELECT m.seq FROM memories d CROSS JOIN json_each(d.sources) source
        JOIN memories m ON m.id = source.value AND m.owner = d.owner
        WHERE d.seq = ? AND m.superseded_by = ?"""
    if found is None or not (sources := column(tx, query, (found[0], change.id))):
        raise NotFound("No consolidated memory has this id.")
    successor = value(tx, "SELECT superseded_by FROM memories WHERE seq = ?", (found[0],))
    for seq, content in _release(tx, owner, {change.id: successor}, writer.version):
        writer.record(seq, change.at, "restored", "undo", content)
    for seq in sources:
        _reviewed(tx, seq, UNDONE, "", change.at)
    writer.erase([(found[0], change.id, successor)])
    return True


def _current(tx: Connection, owner: int, ids: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return number and content of those of the memories that are current, by id."""
    found = tx.execute(f"{_OURS} {_THESE}", (owner, rows.as_json(ids)))
    return {id_: (seq, content) for seq, id_, content in found}


# ---------------------------------------------------------------- what is derived
_DERIVED = """
    WITH RECURSIVE derived (seq, id) AS (
        SELECT m.seq, m.id FROM memories m WHERE m.owner = :owner AND m.sources <> '[]' AND EXISTS (
            SELECT 1 FROM json_each(m.sources) source
            WHERE source.value IN (SELECT value FROM json_each(:ids)))
        UNION
        SELECT m.seq, m.id FROM derived JOIN memories m ON m.owner = :owner AND m.sources <> '[]'
        AND EXISTS (SELECT 1 FROM json_each(m.sources) source WHERE source.value = derived.id)
    )
    SELECT seq, id FROM derived ORDER BY seq"""


def derived_from(tx: Connection, owner: int, ids: Sequence[str]) -> list[tuple[int, str]]:
    """Return number and id of what was made from these memories, or from what was made from them."""
    return tx.execute(_DERIVED, {"owner": owner, "ids": rows.as_json(ids)}).fetchall() if ids else []


def release_sources(tx: Connection, owner: int, seqs: str, version: int) -> None:
    """Make current again what derived memories (numbers, as JSON) superseded, before these are erased."""
    these = f"SELECT id, superseded_by FROM memories WHERE seq IN {rows.seqs_in('?')}"
    _release(tx, owner, dict(tx.execute(these, (seqs,)).fetchall()), version)


def _release(
    tx: Connection, owner: int, erased: Mapping[str, str | None], version: int
) -> list[tuple[int, str]]:
    """Give what the erased memories (with their successors) had superseded to their heirs, or make it current
    again; return number and content of the latter. What was only known to be older stays in the history."""
    found = tx.execute(
        "SELECT m.seq, m.id, m.content, m.project, m.type, m.digest, m.superseded_by, EXISTS ("
        " SELECT 1 FROM memories d CROSS JOIN json_each(d.sources) source"
        " WHERE d.owner = m.owner AND d.id = m.superseded_by AND source.value = m.id)"
        " FROM memories m WHERE +m.owner = ? AND m.superseded_by IN (SELECT value FROM json_each(?))"
        " ORDER BY m.valid_from",
        (owner, rows.as_json(erased)),
    ).fetchall()
    pass_on = "UPDATE memories SET superseded_by = ?, changed = ? WHERE seq = ?"
    restored: list[tuple[int, str]] = []
    older: list[int] = []
    latest = None
    for seq, id_, content, *place, superseded_by, is_source in found:
        if id_ in erased:
            continue
        heir = heir_of(superseded_by, erased)
        if heir is None and is_source:
            heir, latest = rows.twin_of(tx, owner, place), id_
        if heir is not None:
            tx.execute(pass_on, (heir, version, seq))
        elif is_source:
            current = "UPDATE memories SET superseded_by = NULL, valid_to = NULL, changed = ? WHERE seq = ?"
            tx.execute(current, (version, seq))
            restored.append((seq, content))
        else:
            older.append(seq)
    for seq in older if latest is not None else ():
        tx.execute(pass_on, (latest, version, seq))
    return restored


def heir_of(memory_id: str, successors: Mapping[str, str | None]) -> str | None:
    """Return who supersedes what the erased memory had superseded: the first of its line that is not erased.
    None: there is none. `successors`: of what is erased."""
    heir = successors[memory_id]
    for _ in successors:  # not `while`: imported memories may supersede each other in a circle
        if heir is None or heir not in successors:
            return heir
        heir = successors[heir]
    return None


# ---------------------------------------------------------------- contradictions
def _drop_flags(tx: Connection, seq: int) -> None:
    tx.execute("DELETE FROM contradictions WHERE ? IN (older, newer)", (seq,))


def _touched(writer: "Writer", seq: int) -> bool:
    """Mark the memory as changed: it is cached with its contradiction."""
    writer.tx.execute("UPDATE memories SET changed = ? WHERE seq = ?", (writer.version, seq))
    return True


def _reviewed(tx: Connection, seq: int, step: str, batch: str, at: float) -> None:
    tx.execute(
        "INSERT INTO reviews (memory, step, batch, at) VALUES (?, ?, ?, ?) ON CONFLICT (memory, step)"
        " DO UPDATE SET batch = excluded.batch, at = excluded.at",
        (seq, step, batch, at),
    )


def review_again(tx: Connection, seq: int) -> None:
    """Forget that a memory was considered, and what it contradicted: it says something else now."""
    tx.execute("DELETE FROM reviews WHERE memory = ?", (seq,))
    _drop_flags(tx, seq)


# ---------------------------------------------------------------- queries
_DUE = """
    SELECT m.seq, m.changed FROM memories m WHERE m.owner = :owner AND m.changed > coalesce(
        (SELECT c.upto FROM review_cursors c WHERE c.owner = :owner AND c.step = :step), -1)
    AND m.superseded_by IS NULL AND m.archived = 0 AND (m.expires_at IS NULL OR m.expires_at > :now)
    AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.memory = m.seq AND r.step = :step)
    ORDER BY m.changed, m.seq LIMIT :limit"""
_VECTORS = f"SELECT memory, embedding FROM vectors WHERE memory IN {rows.seqs_in('?')}"
_FLAGGED = """
    SELECT c.id, c.score, c.found_at, c.older, c.newer FROM contradictions c
    JOIN memories o ON o.seq = c.older JOIN memories n ON n.seq = c.newer
    WHERE c.owner = :owner AND c.seq < :before AND (:id IS NULL OR c.id = :id)
    AND (:project IS NULL OR o.project = :project)
    AND o.superseded_by IS NULL AND o.archived = 0 AND n.superseded_by IS NULL AND n.archived = 0
    AND NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = c.owner)
    ORDER BY c.seq DESC LIMIT :limit"""
_SUPERSEDED = """
    WITH RECURSIVE older (seq, id) AS (
        SELECT m.seq, m.id FROM memories m
        WHERE +m.owner = :owner AND m.superseded_by IN (SELECT value FROM json_each(:ids))
        UNION
        SELECT m.seq, m.id FROM older JOIN memories m ON m.superseded_by = older.id AND +m.owner = :owner
    )
    SELECT seq FROM older WHERE NOT EXISTS (SELECT 1 FROM forgets f WHERE f.owner = :owner)
    ORDER BY seq DESC LIMIT :limit"""
# What a consolidation took in still holds.
_OUTDATED = """
    SELECT d.id FROM memories d WHERE d.owner = ? AND d.sources <> '[]' AND d.source = 'reflection'
    AND d.superseded_by IS NULL AND d.archived = 0 AND d.pinned = 0
    AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.memory = d.seq AND r.step = 'outdated') AND EXISTS (
        SELECT 1 FROM json_each(d.sources) source
        JOIN memories m ON m.id = source.value AND m.owner = d.owner
        WHERE m.archived = 1 OR EXISTS (
            SELECT 1 FROM memories n WHERE n.id = m.superseded_by AND n.owner = m.owner
            AND n.source <> 'consolidated'))"""


class SqlDerivation(Store):
    """See domain.changes.DerivationStore."""

    @reads
    def due(self, tx: Connection, scope: Scope, step: str, *, limit: int, now: float) -> Due:
        owner = rows.find_owner(tx, scope)
        if owner is None or tx.execute("SELECT 1 FROM forgets WHERE owner = ?", (owner.id,)).fetchone():
            return Due((), {}, None)
        asked = {"owner": owner.id, "step": step, "now": now, "limit": limit}
        found = tx.execute(_DUE, asked).fetchall()
        seqs = [seq for seq, _ in found]
        memories = rows.memories_by_seq(tx, seqs)
        vectors = dict(tx.execute(_VECTORS, (rows.as_json(seqs),)).fetchall())
        items = [memories[seq][1] for seq in seqs]
        by_id = {memories[seq][1].id: vectors.get(seq) for seq in seqs}
        # All of a version was looked at only if another one follows, or nothing does.
        upto = owner.stamp.version if len(found) < limit else found[-1][1] - 1
        return Due(tuple(items), by_id, upto)

    @reads
    def batches(self, tx: Connection, scope: Scope, step: str, since: float) -> int:
        owner = rows.owner_number(tx, scope)
        query = """
            SELECT count(DISTINCT r.batch) FROM reviews r JOIN memories m ON m.seq = r.memory
            WHERE m.owner = ? AND r.step = ? AND r.at > ? AND r.batch <> ''"""
        return int(value(tx, query, (owner, step, since)))

    @reads
    def undone(self, tx: Connection, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        owner = rows.owner_number(tx, scope)
        query = f"""
            SELECT m.id FROM memories m JOIN reviews r ON r.memory = m.seq
            WHERE +m.owner = ? AND m.id {_THESE} AND r.step = ?"""
        return frozenset(column(tx, query, (owner, rows.as_json(ids), UNDONE)))

    @reads
    def superseded(self, tx: Connection, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Memory]:
        owner = rows.owner_number(tx, scope)
        asked = {"owner": owner, "ids": rows.as_json(ids), "limit": limit}
        seqs = column(tx, _SUPERSEDED, asked)
        memories = rows.memories_by_seq(tx, seqs)
        return [memories[seq][1] for seq in seqs]

    @reads
    def outdated(self, tx: Connection, scope: Scope) -> Sequence[str]:
        owner = rows.owner_number(tx, scope)
        return column(tx, _OUTDATED, (owner,))

    @reads
    def contradictions(
        self, tx: Connection, scope: Scope, *, limit: int, after: str | None = None
    ) -> Sequence[Contradiction]:
        owner = rows.owner_number(tx, scope)
        before, query = BEYOND_ALL, "SELECT seq FROM contradictions WHERE owner = ? AND id = ?"
        if after is not None:
            asked = (owner, rows.storable(after))
            before = rows.place_after(tx, query, asked, "No contradiction has this id.")
        return _flagged(tx, scope, {"owner": owner, "before": before, "id": None, "limit": limit})

    @reads
    def contradiction(self, tx: Connection, scope: Scope, id: str) -> Contradiction | None:
        owner = rows.owner_number(tx, scope)
        asked = {"owner": owner, "before": BEYOND_ALL, "id": rows.storable(id), "limit": 1}
        return next(iter(_flagged(tx, scope, asked)), None)


def _flagged(tx: Connection, scope: Scope, asked: Mapping[str, object]) -> list[Contradiction]:
    found = tx.execute(_FLAGGED, {**asked, "project": scope.project}).fetchall()
    memories: dict[int, tuple[int, Memory]] = rows.memories_by_seq(
        tx, [seq for row in found for seq in row[3:]]
    )
    return [
        Contradiction(id_, memories[older][1], memories[newer][1], score, at)
        for id_, score, at, older, newer in found
    ]
