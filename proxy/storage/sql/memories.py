"""The MemoryStore over SQL: see ports.MemoryStore for what every method guarantees.

A list follows the rows' numbers by an index, a slice at a time. Each slice is a read of its own: where
a filter lets few rows through, other requests need not wait until all have been looked at."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from proxy import telemetry
from proxy.domain.changes import Applied, Change, Event, TimelineEvent
from proxy.domain.core import (
    ForgetCounts,
    Hit,
    Memory,
    MemoryFilter,
    Page,
    Quota,
    Scope,
    Search,
    Stamp,
)
from proxy.domain.errors import Conflict, NotFound
from proxy.domain.limits import TTLCache
from proxy.domain.ports import EmbeddingModel, ProfileKind, Snapshot, SortProfile
from proxy.domain.session import Job
from proxy.storage.exact_index import Found, IndexCache, Prefetch, RowCache, UserIndex, faded_index
from proxy.storage.sql import erasure, jobs, rows
from proxy.storage.sql.changes import Writer, apply_within, time_of
from proxy.storage.sql.database import (
    BEYOND_ALL,
    Connection,
    DamagedRow,
    Database,
    Store,
    reads,
    value,
    writes,
)
from proxy.storage.sql.evolution import AFTER_CHANGE_S, make_due
from proxy.storage.sql.forget import Forgetting, expire, unblock_insert
from proxy.storage.sql.rows import Owner
from proxy.storage.sql.vectors import Indexed, IndexPlan, found_among, latest_index, stamp_model

_SLICE = 4_000  # rows that one read looks at
# CROSS JOIN: in this order. By an id alone SQLite would look for it with every user of the tenant.
_FROM = "memories m CROSS JOIN scopes s ON s.id = m.owner"
_READINGS = """
    SELECT m.id, v.reading FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.owner = ? AND m.id IN (SELECT value FROM json_each(?))"""
_FEW = 200
_PROFILES = 10_000  # of users that are cached
_MOST_IN_PROFILE = 40
_HAS_FADED = """
    SELECT 1 FROM memories
    WHERE owner = ? AND archived = 1 AND archived_by IN ('use', 'decay') AND superseded_by IS NULL LIMIT 1"""
_CORE = """
    SELECT seq, pinned FROM memories WHERE owner = :owner AND core = 1
    AND archived = 0 AND superseded_by IS NULL ORDER BY seq DESC LIMIT :most"""
_MOSTLY = 0.75  # of a cache, for those who may come back


class SqlMemories(Store):
    """Memories in the rows of one file, searched exactly in arrays of the user's own."""

    def __init__(
        self, database: Database, *, index_bytes: int, row_bytes: int, quota: Quota, indexed: Indexed | None
    ) -> None:
        """`indexed`: for the search of users with many memories; None: all are searched exactly."""
        super().__init__(database)
        self._indexed = indexed
        self._quota = quota
        self.model: EmbeddingModel | None = None  # this process makes and compares its vectors
        self._indexes = IndexCache(index_bytes)
        self._rows = RowCache(row_bytes)
        # Numbers and kinds of the memories that hold in every conversation, sorted once a version.
        self._profiles = TTLCache[int, tuple[tuple[int, Stamp], Sequence[tuple[int, ProfileKind]]]](_PROFILES)
        self._faded_indexes = TTLCache[int, tuple[tuple[int, Stamp], UserIndex]](
            index_bytes // 8, size_of=lambda entry: min(entry[1].nbytes, index_bytes // 8)
        )
        self._forgets = 0  # how often the caches of a user were dropped
        self.forgetting = Forgetting(database, self._drop_caches)
        caches = (self._indexes.by_user, self._rows.by_user)
        has_room = lambda: max(cache.filled for cache in caches) < _MOSTLY  # noqa: E731
        self.prefetch = Prefetch(database, self._load, has_room, _FEW)

    async def stamp_model(self, embedding: EmbeddingModel) -> None:
        """Bind the store to the model whose vectors it holds. Raises WrongModel where it is another's."""
        await self._database.write(lambda tx: stamp_model(tx, embedding))
        self.model = embedding
        self._indexes.clear()  # they may hold vectors of what was the store's model before
        self._profiles.clear()
        self._faded_indexes.clear()

    async def search(self, scope: Scope, search: Search) -> Sequence[Hit]:
        if self._indexed is None or search.faded:
            return await self._database.read(lambda tx: self._search(tx, scope, search))
        plan = await self._database.read(lambda tx: self._planned(tx, scope, search))
        if not isinstance(plan, IndexPlan):
            return plan
        proposed = await self._indexed.propose(plan, scope, search)
        return await self._database.read(lambda tx: self._checked(tx, scope, search, plan, proposed))

    def snapshot(self, scope: Scope, sort: SortProfile | None = None) -> Awaitable[Snapshot | None]:
        """See MemoryStore: of a user with few memories who comes back; of others the profile alone."""
        forgets = self._forgets
        return self._database.begin_read(
            lambda tx: self._taken(tx, scope, sort, lambda: self._forgets == forgets)
        )

    async def readings(self, scope: Scope, ids: Sequence[str]) -> Sequence[bytes | None]:
        def work(tx: Connection) -> Sequence[bytes | None]:
            owner = rows.find_owner(tx, scope)
            found = dict(tx.execute(_READINGS, (owner.id, rows.as_json(ids))).fetchall()) if owner else {}
            return [found.get(id_) for id_ in ids]

        return await self._database.begin_read(work)

    @reads
    def stamp(self, tx: Connection, scope: Scope) -> Stamp:
        owner = rows.find_owner(tx, scope)
        return owner.stamp if owner else rows.NEVER_SEEN

    async def apply(
        self, scope: Scope, changes: Sequence[Change], *, expect: Stamp, done: Job | None = None
    ) -> Applied:
        def work(tx: Connection) -> Applied:
            owner = rows.ensure_owner(tx, scope)
            if owner.stamp != expect:
                raise Conflict("the user's memories have changed since")
            if done is not None:
                jobs.finish(tx, done)
            unblock_insert(tx, owner.id, changes)
            version = expect.version + 1
            held, embeds = rows.generations_of(tx, self.model), self.model is not None
            writer = Writer(tx, owner.id, scope, version, held, embeds)
            has_changed, applied = apply_within(self._quota, writer, changes)
            if has_changed:
                rows.set_version(tx, owner.id, version)
                make_due(tx, owner.id, time_of(changes) + AFTER_CHANGE_S)
            return applied

        applied = await self._database.write(work)
        if applied.evicted:
            telemetry.log.info("memory.evicted", count=applied.evicted)
        if applied.refused:
            telemetry.log.info("memory.refused", count=len(applied.refused))
        return applied

    @writes
    def touch(self, tx: Connection, scope: Scope, ids: Sequence[str], at: float) -> None:
        if owner := rows.lock_owner(tx, scope):
            rows.touch(tx, owner.id, ids, at)

    @reads
    def get(self, tx: Connection, where: MemoryFilter, memory_id: str) -> Memory | None:
        condition, parameters = _condition(tx, where, inactive=True)
        parameters["id"] = rows.storable(memory_id)
        found = rows.memories_where(tx, f"{condition} AND m.id = :id LIMIT 1", parameters)
        return found[0][1] if found else None

    @reads
    def history(
        self, tx: Connection, where: MemoryFilter, ids: Sequence[str]
    ) -> Mapping[str, Sequence[Event]]:
        condition, parameters = _condition(tx, where, inactive=True)
        parameters["ids"] = rows.as_json(map(rows.storable, ids))
        # The plus keeps SQLite from walking through all that the user has.
        found = tx.execute(
            f"SELECT m.id, e.at, e.action, e.by, e.content FROM {_FROM} JOIN events e ON e.memory = m.seq"
            f" WHERE {condition.replace('m.owner =', '+m.owner =')}"
            " AND m.id IN (SELECT value FROM json_each(:ids)) ORDER BY e.id",
            parameters,
        )
        events: dict[str, list[Event]] = {}
        for id_, *event in found:
            events.setdefault(id_, []).append(Event(*event))
        return events

    async def list(
        self, where: MemoryFilter, *,
        limit: int, after: str | None = None, oldest_first: bool = False, total: bool = True,
    ) -> Page:  # fmt: skip
        start = partial(_start, where=where, after=after, up=oldest_first)
        edge: Edge | None = await self._database.read(start)
        items: list[Memory] = []
        while edge is not None and len(items) <= limit:
            left = limit + 1 - len(items)
            work = partial(_slice, where=where, edge=edge, limit=left, up=oldest_first)
            found, edge = await self._database.read(work)
            items += found
        count = await self._count(where) if total else None
        return Page(tuple(items[:limit]), count, has_more=len(items) > limit)

    async def _count(self, where: MemoryFilter) -> int:
        edge: Edge | None = _edge(where, up=True)
        total = 0
        while edge is not None:
            found, edge = await self._database.read(partial(_count, where=where, edge=edge))
            total += found
        return total

    async def forget(
        self, where: MemoryFilter, memory_id: str | None = None, *, by: str, dry_run: bool = False
    ) -> ForgetCounts:
        if dry_run:
            return await self.forgetting.count(where, memory_id)
        return await self.forgetting.forget(where, memory_id, by)

    async def resume_forgets(self) -> int:
        """Continue forgets that a crash or a caller interrupted; return how many."""
        return await self.forgetting.resume()

    async def expire(self, now: float) -> int:
        """Erase memories that expired more than a day ago, each user's with a receipt; return how many."""
        return await expire(self._database, now)

    def _drop_caches(self, owner: int) -> None:
        self._forgets += 1
        for cache in (self._indexes, self._rows, self._profiles, self._faded_indexes):
            cache.pop(owner)

    def _search(self, tx: Connection, scope: Scope, search: Search) -> Sequence[Hit]:
        owner = rows.find_owner(tx, scope)
        if owner is None:
            return []
        if search.faded:  # past the cache of rows, which holds what was last asked for of the current ones
            as_of = (self._database.epoch, owner.stamp)
            known = self._faded_indexes.get(owner.id)
            if known is None or known[0] != as_of:
                generations = rows.generations_of(tx, self.model).generations
                known = (as_of, faded_index(tx, owner, generations))
                self._faded_indexes.put(owner.id, known)
            found = known[1].search(scope.project, search)
            read = rows.memories_by_seq(tx, [item.seq for item in found])
            return _hits(found, {seq: memory for seq, (_, memory) in read.items()})
        return self._hits(tx, owner, self._index(tx, owner).search(scope.project, search))

    def _hits(self, tx: Connection, owner: Owner, found: Sequence[Found]) -> Sequence[Hit]:
        memories = self._rows.memories(tx, owner, self._database.epoch, [item.seq for item in found])
        return _hits(found, memories)

    def _planned(self, tx: Connection, scope: Scope, search: Search) -> IndexPlan | Sequence[Hit]:
        """Return what to ask the index for, or what was found where it need not be asked."""
        owner = rows.find_owner(tx, scope)
        if owner is None or self._indexed is None:
            return []
        ours = rows.generations_of(tx, self.model).generations
        plan = self._indexed.plan(tx, owner, scope.project, search, ours)
        return plan or self._search(tx, scope, search)

    def _checked(
        self, tx: Connection, scope: Scope, search: Search, plan: IndexPlan, proposed: Sequence[int] | None
    ) -> Sequence[Hit]:
        """Return what is found among the proposed memories; None or an erased user: among all."""
        owner = rows.find_owner(tx, scope)
        if owner is None or proposed is None or owner.id != plan.owner.id:
            return self._search(tx, scope, search)
        return self._hits(tx, owner, found_among(tx, plan, proposed, scope.project, search))

    def _load(self, tx: Connection, scope: Scope) -> None:
        """Read a user's index and memories into the caches."""
        if owner := rows.find_owner(tx, scope):
            index = self._index(tx, owner)
            self._rows.memories(tx, owner, self._database.epoch, index.seqs[index.current].tolist())

    def _taken(
        self, tx: Connection, scope: Scope, sort: SortProfile | None, holds: Callable[[], bool]
    ) -> "Taken | None":
        """Return the profile, and of a user with few memories who was here before the index and all memories:
        for one search it costs less to read later the rows that it finds. None for a user never seen, and if
        a row is damaged: it costs the searches that find it, and no others."""
        owner = rows.find_owner(tx, scope)
        if owner is None:
            return None
        comes_back, epoch = owner.id in self._indexes, self._database.epoch
        has_many = self._indexed is not None and self._indexed.has_many(tx, owner)
        index = None if has_many else self._index(tx, owner)
        profile = self._profile(tx, owner, index, sort) if sort else ()
        seqs = index.seqs[index.current].tolist() if index else []
        whole = index is not None and len(seqs) <= _FEW and comes_back
        with suppress(DamagedRow):
            wanted = seqs if whole else [seq for seq, _ in profile]
            memories = self._rows.memories(tx, owner, epoch, wanted) if wanted else {}
            there = [(memories[seq], kind) for seq, kind in profile if seq in memories]
            held = [one for one in there if one[0].type != "reflective"]
            faded = value(tx, _HAS_FADED, (owner.id,)) is not None
            return Taken(index if whole else None, memories, held, scope.project, faded, holds)
        return None

    def _profile(
        self, tx: Connection, owner: Owner, index: UserIndex | None, sort: SortProfile
    ) -> Sequence[tuple[int, ProfileKind]]:
        """Return the numbers and kinds of the profile's memories, the latest first. `index`: None for a user
        with many, where only the latest are read."""
        version = (self._database.epoch, index.stamp if index else owner.stamp)
        known = self._profiles.get(owner.id)
        if known is not None and known[0] == version:
            return known[1]
        index = index or latest_index(tx, owner, rows.generations_of(tx, self.model).generations)
        at = np.flatnonzero(index.current & index.embedded)[::-1]
        kinds = sort([row.tobytes() for row in index.matrix[at]]) if len(at) else ()
        sorted_ = [one for one in zip(index.seqs[at].tolist(), kinds, strict=True) if one[1]]
        core = tx.execute(_CORE, {"owner": owner.id, "most": 2 * _MOST_IN_PROFILE})
        marked: dict[int, ProfileKind] = {seq: "pinned" if pinned else "core" for seq, pinned in core}
        known_as = marked | dict(sorted_)  # a rule is a rule, pinned or not
        kinds_in_order = ("rule", "pinned", "trait", "core")
        of_kind = ([each for each in known_as.items() if each[1] == kind] for kind in kinds_in_order)
        found = [one for some in of_kind for one in some[:_MOST_IN_PROFILE]]
        self._profiles.put(owner.id, (version, found))
        return found

    def _index(self, tx: Connection, owner: Owner) -> UserIndex:
        ours = rows.generations_of(tx, self.model).generations
        return self._indexes.current(tx, owner, self._database.epoch, ours)


@dataclass(frozen=True, slots=True)
class Taken:
    """A user's memories, as ports.Snapshot. `index`: None if they are many, or were not read."""

    index: UserIndex | None
    memories: Mapping[int, Memory]
    held: Sequence[tuple[Memory, ProfileKind]]
    project: str | None
    has_faded: bool
    holds: Callable[[], bool]  # False once anything was forgotten in this process

    @property
    def profile(self) -> Sequence[tuple[Memory, ProfileKind]]:
        return self.held if self.holds() else ()

    def search(self, search: Search) -> Sequence[Hit] | None:
        if self.index is None or search.faded or not self.holds():
            return None
        return _hits(self.index.search(self.project, search), self.memories)


def _hits(found: Sequence[Found], memories: Mapping[int, Memory]) -> Sequence[Hit]:
    # An index ahead of the transaction may name what the transaction could not see yet.
    seen = (item for item in found if item.seq in memories)
    return [Hit(memories[item.seq], item.cosine, item.bm25, item.vector) for item in seen]


# ---------------------------------------------------------------- lists
# `up`: from the oldest on, else from the latest back. A list follows the rows' numbers; if a time narrows it,
# the times at which the memories became true.
Edge = tuple[float, ...]


def _columns(where: MemoryFilter) -> tuple[str, ...]:
    return ("m.valid_from", "m.seq") if where.is_timed else ("m.seq",)


def _edge(where: MemoryFilter, *, up: bool) -> Edge:
    edge = (float("-inf"), 0) if up else (float("inf"), BEYOND_ALL)
    return edge if where.is_timed else edge[1:]


def _bound(where: MemoryFilter, edge: Edge, name: str, sign: str) -> tuple[str, dict[str, float]]:
    """Return a comparison of the list's columns with the edge, and its parameters."""
    names = [f"{name}{n}" for n in range(len(edge))]
    values = ", ".join(f":{each}" for each in names)
    return f"({', '.join(_columns(where))}) {sign} ({values})", dict(zip(names, edge, strict=True))


def _slice(
    tx: Connection, *, where: MemoryFilter, edge: Edge, limit: int, up: bool
) -> tuple[list[Memory], Edge | None]:
    """Return up to `limit` memories beyond the edge, and the edge of what was not looked at, if any."""
    condition, parameters, order, end = _part(tx, where, edge, up=up)
    if where.text is not None:
        content = rows.CONTENT_THEN if where.as_of is not None else "m.content"
        read = tx.execute(f"SELECT m.seq, {content} FROM {_FROM} WHERE {condition} {order}", parameters)
        held = rows.as_json(rows.holding(where.text, read)[:limit])
        condition, parameters = f"m.seq IN {rows.seqs_in(':seqs')}", {"seqs": held}
    found = rows.memories_where(tx, f"{condition} {order} LIMIT :limit", parameters | {"limit": limit})
    return rows.as_then(tx, found, where.as_of), end


def _count(tx: Connection, *, where: MemoryFilter, edge: Edge) -> tuple[int, Edge | None]:
    """Return how many match in the slice after the edge, and where it ends, if there is more."""
    condition, parameters, _, end = _part(tx, where, edge, up=True)
    slice_ = f"FROM {_FROM} WHERE {condition}"
    if where.text is not None:
        content = rows.CONTENT_THEN if where.as_of is not None else "m.content"
        return len(rows.holding(where.text, tx.execute(f"SELECT m.seq, {content} {slice_}", parameters))), end
    return int(value(tx, f"SELECT count(*) {slice_}", parameters)), end


def _part(
    tx: Connection, where: MemoryFilter, edge: Edge, *, up: bool
) -> tuple[str, dict[str, Any], str, Edge | None]:
    """Return the condition of the slice beyond the edge, its parameters, the order, and where it ends
    (None: with the list)."""
    condition, parameters = _condition(tx, where, inactive=where.include_inactive)
    order = "ORDER BY " + ", ".join(f"{one} {'ASC' if up else 'DESC'}" for one in _columns(where))
    beyond, bounds = _bound(where, edge, "edge", ">" if up else "<")
    of_owner, owner = _of_owner(tx, where)
    if where.is_timed:
        of_owner += " AND " + " AND ".join(c for n, c in rows.RANGE.items() if getattr(where, n) is not None)
    last = tx.execute(
        f"SELECT {', '.join(_columns(where))} FROM memories m WHERE {of_owner} AND {beyond}"
        f" {order} LIMIT 1 OFFSET {_SLICE - 1}",
        owner | bounds | {name: at for name in rows.RANGE if (at := getattr(where, name)) is not None},
    ).fetchone()
    condition, parameters = f"{condition} AND {beyond}", parameters | bounds
    if last is None:
        return condition, parameters, order, None
    within, end = _bound(where, tuple(last), "end", "<=" if up else ">=")
    return f"{condition} AND {within}", parameters | end, order, tuple(last)


def _start(tx: Connection, *, where: MemoryFilter, after: str | None, up: bool) -> Edge:
    """Return the place of the memory `after`, also if it has left the list since the last page."""
    if after is None:
        return _edge(where, up=up)
    this = "m.id = :id AND s.tenant = :tenant AND (:user IS NULL OR s.user = :user)"
    asked = {"id": rows.storable(after), "tenant": where.tenant, "user": where.user}
    found = tx.execute(f"SELECT {', '.join(_columns(where))} FROM {_FROM} WHERE {this}", asked).fetchone()
    if found is None:
        raise NotFound("no memory has this id", param="after")
    return tuple(found)


def _condition(tx: Connection, where: MemoryFilter, *, inactive: bool) -> tuple[str, dict[str, Any]]:
    """Return the filter, without what is being forgotten."""
    condition, parameters = rows.conditions(where, inactive=inactive)
    of_owner, owner = _of_owner(tx, where)
    return f"{condition} AND {of_owner}{erasure.hidden(tx)}", parameters | owner


def _of_owner(tx: Connection, where: MemoryFilter) -> tuple[str, dict[str, int]]:
    """Return a condition by which rows are found in their order through an index."""
    if where.user is None:
        return "TRUE", {}
    return "m.owner = :owner", {"owner": rows.owner_number(tx, where)}


# ---------------------------------------------------------------- events, and what was superseded
_EVENTS_SLICE = 2_000  # events that one read looks at
_STEPS = 8  # of what a memory superseded, back in time
_START = (float("inf"), BEYOND_ALL)
# An event's number among those of its memory: the id would tell how much all users do.
_NUMBER = "(SELECT count(*) FROM events n WHERE n.memory = e.memory AND n.id < e.id)"
_BECAME = """
    CASE WHEN e.action IN ('updated', 'archived', 'restored') THEN coalesce((
            SELECT n.content FROM events n WHERE n.memory = e.memory AND n.id > e.id ORDER BY n.id LIMIT 1
        ), m.content)
        WHEN e.action = 'superseded'
        THEN (SELECT n.content FROM memories n WHERE n.id = e.by AND n.owner = e.owner)
    END"""
_EVENTS = f"""
    SELECT e.at, e.id, m.id, {_NUMBER}, m.type, m.project, e.action, e.by, e.content, {_BECAME}
    FROM (SELECT * FROM events WHERE owner = :owner AND (at, id) < (:at, :id) AND at >= :since AND at < :until
          ORDER BY at DESC, id DESC LIMIT :slice) e
    JOIN memories m ON m.seq = e.memory
    WHERE (:project IS NULL OR m.project = :project) {{}} ORDER BY e.at DESC, e.id DESC LIMIT :limit"""
_LAST_EVENT = """
    SELECT at, id FROM events WHERE owner = :owner AND (at, id) < (:at, :id) AND at >= :since AND at < :until
    ORDER BY at DESC, id DESC LIMIT 1 OFFSET :slice - 1"""
_CURSOR = """
    SELECT e.at, e.id FROM memories m JOIN events e ON e.memory = m.seq
    WHERE m.id = ? AND m.owner = ? ORDER BY e.id LIMIT 1 OFFSET ?"""
_EARLIER = f"""
    WITH RECURSIVE line (head, seq, id, steps) AS (
        SELECT m.superseded_by, m.seq, m.id, 1 FROM memories m
        WHERE m.superseded_by IN (SELECT value FROM json_each(:ids)) AND +m.owner = :owner
        UNION
        SELECT line.head, m.seq, m.id, line.steps + 1
        FROM line CROSS JOIN memories m ON m.superseded_by = line.id AND +m.owner = :owner
        WHERE line.steps < {_STEPS})
    SELECT head, seq FROM line"""


Place = tuple[float, int]
"""Where a page begins: an event's time and row."""


class SqlTimeline(Store):
    """Events and superseded memories of one user at a time."""

    async def events(
        self, where: MemoryFilter, *, limit: int, after: str | None = None
    ) -> Sequence[TimelineEvent]:
        place: Place | None = await self._database.read(partial(_place, where=where, after=after))
        found: list[TimelineEvent] = []
        while place is not None and len(found) < limit:
            work = partial(_events_slice, where=where, place=place, limit=limit - len(found))
            more, place = await self._database.read(work)
            found += more
        return found

    async def earlier(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Memory]]:
        def work(tx: Connection) -> Mapping[str, Sequence[Memory]]:
            owner = rows.owner_number(tx, scope)
            asked = {"owner": owner, "ids": rows.as_json(map(rows.storable, ids))}
            heads: list[tuple[str, int]] = tx.execute(_EARLIER, asked).fetchall()
            if not heads:
                return {}
            condition = f"m.seq IN {rows.seqs_in(':seqs')} AND (:project IS NULL OR m.project IS NULL"
            condition += (
                f" OR m.project = :project){erasure.hidden(tx)} ORDER BY m.valid_from DESC, m.seq DESC"
            )
            wanted = {"seqs": rows.as_json(seq for _, seq in heads), "project": scope.project}
            found: dict[str, list[Memory]] = {}
            for seq, memory in rows.memories_where(tx, condition, wanted):
                for head in dict.fromkeys(head for head, of in heads if of == seq):
                    found.setdefault(head, []).append(memory)
            return found

        return await self._database.begin_read(work)


def _place(tx: Connection, *, where: MemoryFilter, after: str | None) -> Place | None:
    owner = rows.owner_number(tx, where)
    if after is None:
        return _START
    memory_id, _, number = after.rpartition(":")
    asked = (rows.storable(memory_id), owner, int(number) if number.isdecimal() and len(number) < 10 else -1)
    row = tx.execute(_CURSOR, asked).fetchone() if asked[2] >= 0 else None
    if row is None:
        raise NotFound("no event has this id", param="after")
    return (row[0], row[1])


def _events_slice(
    tx: Connection, *, where: MemoryFilter, place: Place, limit: int
) -> tuple[list[TimelineEvent], Place | None]:
    """Return up to `limit` events before the place, and where the next slice begins, if there is one."""
    asked: dict[str, Any] = {
        "owner": rows.owner_number(tx, where), "project": where.project, "limit": limit,
        "at": place[0], "id": place[1], "since": float("-inf") if where.since is None else where.since,
        "until": float("inf") if where.until is None else where.until,
    }  # fmt: skip
    hidden = erasure.hidden(tx)
    asked["slice"] = _EVENTS_SLICE if hidden or where.project is not None else limit
    found = tx.execute(_EVENTS.format(hidden), asked).fetchall()
    last = tx.execute(_LAST_EVENT, asked).fetchone()
    events = []
    for at, _, memory_id, number, type_, project, action, by, content, became in found:
        event, then = Event(at, action, by, content), became if became != content else None
        events.append(TimelineEvent(f"{memory_id}:{number}", memory_id, type_, project, event, then))
    return events, tuple(last) if last else None
