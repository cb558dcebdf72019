"""Search of users with many memories by an external index, which the database keeps up to date.

The index proposes; what is found, and with which scores, comes from the rows in one transaction: an erased or
superseded memory is never found, whatever the index still holds. It holds numbers, no text and no name.

Triggers put the number of each memory that changes into `vector_outbox`, in the transaction that changes it.
One process at a time, under a lease, sends the state that these memories have now: current ones as points,
others as deletions. So an entry may be sent twice, or late, and a crash loses nothing. A process that lost
its lease while it was sending puts its memories into the outbox again: another may have sent a newer state
before. The outbox is read before the index is asked: a memory that arrives in between is in one of the two.

A collection that is not on the list of those that were made, as after Qdrant lost its data, gets all memories
of its generation."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.core import Scope, Search
from proxy.domain.errors import WrongModel
from proxy.domain.limits import TTLCache
from proxy.domain.ports import EmbeddingModel
from proxy.storage.exact_index import Found, Row, UserIndex, build
from proxy.storage.sql.database import Connection, Database, Store, column, reads, value, writes
from proxy.storage.sql.erasure import hidden
from proxy.storage.sql.rows import FIRST, Owner, as_json, newest_model, seqs_in


# ---------------------------------------------------------------- the port
class IndexUnavailable(Exception):
    """The index cannot be used now. Does not leave the stores."""


@dataclass(frozen=True, slots=True)
class Point:
    """A current memory as the index holds it."""

    memory: int
    owner: int
    type: str
    project: str | None
    expires_at: float | None
    vector: bytes | None  # float32, unit length
    terms: bytes  # see exact_index.pack


class CandidateIndex(Protocol):
    """An index with a collection of points for each generation of vectors (see rows.py). Every method
    but `close` may raise IndexUnavailable, at once while the index is known to be down."""

    @property
    def name(self) -> str:
        """Distinguishes the index from others that the same database was copied to."""

    async def search(
        self,
        owner: int,
        project: str | None,
        search: Search,
        *,
        compared: Sequence[int],
        within: Sequence[int],
    ) -> Sequence[int]:
        """Return the numbers of the user's memories that are the best by cosine, and the best by words, in
        the collections of the generations `within`, all of which must exist. `compared`: generations with
        vectors that may be compared with the search's."""

    async def upsert(self, generation: int, points: Sequence[Point], dimension: int) -> None:
        """Write the points, durable on return, and make the collection if it is missing, for vectors of this
        dimension (0: for none)."""

    async def delete(self, memories: Sequence[int], generations: Sequence[int]) -> None:
        """Delete the memories from the generations' collections; absent ones are not an error."""

    async def generations(self) -> frozenset[int]:
        """Return the generations that have a collection."""

    async def drop(self) -> None:
        """Delete all collections of this index."""

    async def close(self) -> None:
        """End the connections."""


# ---------------------------------------------------------------- outbox
_AT_ONCE = 256
_LEASE_S = 60.0  # longer than a portion takes
_WAIT_S = 0.5
_SETTLE_S = 30.0  # longer than a write takes

_THESE = seqs_in(":seqs")
_ENTRIES = "SELECT seq, owner, memory FROM vector_outbox ORDER BY seq LIMIT :most"
_CURRENT = f"""
    SELECT v.generation, m.seq, m.owner, m.type, m.project, m.expires_at, v.embedding, v.terms
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.seq IN {_THESE} AND m.superseded_by IS NULL AND m.archived = 0"""
_ENQUEUE = f"""
    INSERT INTO vector_outbox (owner, memory)
    SELECT m.owner, m.seq FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.superseded_by IS NULL AND m.archived = 0
    AND v.generation IN {seqs_in(":generations")}
    AND NOT EXISTS (SELECT 1 FROM vector_outbox o WHERE o.memory = m.seq)"""
_WAITING = "SELECT DISTINCT memory FROM vector_outbox WHERE owner = ? LIMIT ?"
_ENQUEUE_ALL = """
    INSERT INTO vector_outbox (owner, memory)
    SELECT owner, seq FROM memories WHERE superseded_by IS NULL AND archived = 0"""
_TAKE = """
    UPDATE vector_targets SET holder = :me, leased_until = :until
    WHERE name = :name AND (holder = :me OR leased_until < :now)"""
_RENEW = "UPDATE vector_targets SET leased_until = :until WHERE name = :name AND holder = :me"

Report = Callable[[int, int], None]
"""Is called with how many memories were sent, and how many there are to send."""


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """The index as the database knows it."""

    generations: tuple[int, ...]  # with a collection
    rebuilding: bool


@dataclass(frozen=True, slots=True)
class _Portion:
    """Entries of the outbox, and what is to be sent for them."""

    target: IndexTarget
    entries: Sequence[tuple[int, int, int]]  # seq, owner, memory
    points: Mapping[int, Sequence[Point]]  # by generation
    dimensions: Mapping[int, int]  # of the generations' vectors
    erased: Sequence[int]


class Outbox(Store):
    """The entries that wait, and their delivery."""

    def __init__(
        self, database: Database, index: CandidateIndex, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(database)
        self._index, self._clock = index, clock
        self._me = secrets.token_hex(8)

    @reads
    def waiting(self, tx: Connection) -> int:
        return int(value(tx, "SELECT count(*) FROM vector_outbox"))

    async def deliver(self, seconds: float) -> None:
        """Send what waits, for so long. Raises IndexUnavailable where the index is down; then all waits."""
        target = await self._target()
        if lost := set(target.generations) - await self._index.generations():
            again = {"generations": as_json(sorted(lost))}
            await self._database.write(lambda tx: tx.execute(_ENQUEUE, again).close())
        if not await self.waiting() or not await self._take():
            return
        end = time.monotonic() + seconds
        try:
            while await self._send_next() and time.monotonic() < end:
                pass
        finally:
            await self._give_back()

    async def rebuild(self, report: Report) -> int:
        """Make the collections again and send every memory; return how many entries were sent. If it is
        interrupted, the next call continues. Raises IndexUnavailable where the index is down."""
        target = await self._target()
        await self._wait_for_lease()
        try:
            if not (target.rebuilding and await self.waiting()):
                await self._index.drop()  # until the next line is committed, searches find them missing
                await self._set_rebuilding(True)
            total = left = await self.waiting()
            while left:
                report(total - left, total)
                if not await self._send_next():
                    await self._wait_for_lease()
                left = await self.waiting()
                total = max(total, left)
            report(total, total)
            await self._set_rebuilding(False)
            return total
        finally:
            await self._give_back()

    # ------------------------------------------------------------ steps
    async def _target(self) -> IndexTarget:
        """Return the database's record of the index; an unknown index gets all memories."""
        name = self._index.name

        def register(tx: Connection) -> IndexTarget:
            """Begin to collect entries, with all that there is.

            If others write at the same time, a memory may be seen neither here nor by a trigger. Nothing is
            sent for a while then: the first delivery for a generation makes all of its memories wait."""
            if (known := index_target(tx, name)) is None:
                _clear(tx)
                from_then = self._clock() + _SETTLE_S if tx.for_update else 0.0
                tx.execute("INSERT INTO vector_targets (name, leased_until) VALUES (?, ?)", (name, from_then))
                tx.execute(_ENQUEUE_ALL)
            return known or IndexTarget((), False)

        if found := await self._database.read(lambda tx: index_target(tx, name)):
            return found
        return await self._database.write(register)

    @writes
    def _set_rebuilding(self, tx: Connection, begins: bool) -> None:
        tx.execute("UPDATE vector_targets SET rebuilding = ? WHERE name = ?", (begins, self._index.name))
        if begins:
            tx.execute("UPDATE vector_targets SET generations = '[]' WHERE name = ?", (self._index.name,))
            tx.execute("DELETE FROM vector_outbox")
            tx.execute(_ENQUEUE_ALL)

    @writes
    def _take(self, tx: Connection) -> bool:
        """Hold the lease; False while another process does."""
        return tx.execute(_TAKE, self._lease()).rowcount > 0

    async def _wait_for_lease(self) -> None:
        while not await self._take():  # noqa: ASYNC110 - another process has it, and cannot say when it ends
            await asyncio.sleep(_WAIT_S)

    @writes
    def _give_back(self, tx: Connection) -> None:
        free = "UPDATE vector_targets SET holder = '', leased_until = 0 WHERE name = :name AND holder = :me"
        tx.execute(free, {"name": self._index.name, "me": self._me})

    async def _send_next(self) -> bool:
        """Send a portion; False if there is none, or the lease is lost."""
        portion = await self._next()
        if portion is None:
            return False
        there = await self._index.generations()
        for generation, points in portion.points.items():
            await self._index.upsert(generation, points, portion.dimensions[generation])
        # Those with a new vector leave the collection of the old one.
        for generation in there:
            others = (p.memory for g, points in portion.points.items() if g != generation for p in points)
            if erased := [*portion.erased, *others]:
                await self._index.delete(erased, [generation])
        return await self._acknowledge(portion)

    @reads
    def _next(self, tx: Connection) -> _Portion | None:
        """Return the oldest entries with the state that their memories have now."""
        entries = tx.execute(_ENTRIES, {"most": _AT_ONCE}).fetchall()
        target = index_target(tx, self._index.name)
        if not entries or target is None:
            return None
        memories = {memory for _, _, memory in entries}
        points: dict[int, list[Point]] = {}
        for generation, *values in tx.execute(_CURRENT, {"seqs": as_json(memories)}):
            points.setdefault(generation, []).append(Point(*values))
        current = {point.memory for some in points.values() for point in some}
        known = dict(tx.execute("SELECT generation, dimension FROM embeddings").fetchall())
        seen = {g: max(len(p.vector or b"") // 4 for p in some) for g, some in points.items()}
        return _Portion(target, entries, points, seen | known, sorted(memories - current))

    @writes
    def _acknowledge(self, tx: Connection, portion: _Portion) -> bool:
        if not tx.execute(_RENEW, self._lease()).rowcount:
            again = "INSERT INTO vector_outbox (owner, memory) VALUES (?, ?)"
            tx.executemany(again, [entry[1:] for entry in portion.entries])
            return False
        if new := sorted(set(portion.points) - set(portion.target.generations)):
            known = as_json(sorted({*portion.target.generations, *new}))
            tx.execute("UPDATE vector_targets SET generations = ? WHERE name = ?", (known, self._index.name))
            tx.execute(_ENQUEUE, {"generations": as_json(new)})  # before ours are deleted: they were sent
        sent = {"seqs": as_json(seq for seq, _, _ in portion.entries)}
        tx.execute(f"DELETE FROM vector_outbox WHERE seq IN {_THESE}", sent)
        return True

    def _lease(self) -> dict[str, object]:
        now = self._clock()
        return {"name": self._index.name, "me": self._me, "now": now, "until": now + _LEASE_S}


def index_target(tx: Connection, name: str) -> IndexTarget | None:
    """Return the database's record of the index, None before anything was sent to it."""
    row = tx.execute("SELECT generations, rebuilding FROM vector_targets WHERE name = ?", (name,)).fetchone()
    return None if row is None else IndexTarget(tuple(json.loads(row[0])), bool(row[1]))


async def retire(database: Database) -> None:
    """Stop collecting entries: there is no index."""
    if await database.read(lambda tx: tx.execute("SELECT 1 FROM vector_targets LIMIT 1").fetchone()):
        await database.write(_clear)


def _clear(tx: Connection) -> None:
    tx.execute("DELETE FROM vector_targets")
    tx.execute("DELETE FROM vector_outbox")


# ---------------------------------------------------------------- search
_MOST_WAITING = 2_000  # a user with more in the outbox is searched exactly
_LATEST = 1_000  # memories of a user with many that the profile is taken from
_ROWS = f"""
    SELECT m.seq, m.type, m.project, m.expires_at, 1,
           iif(v.generation IN {seqs_in(":generations")}, v.embedding, NULL), v.terms
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.owner = :owner AND m.superseded_by IS NULL AND m.archived = 0"""
# With the two memories stored before each: a memory's score has a share of theirs (exact_index.py).
_BEFORE = """(SELECT m.seq FROM memories m WHERE m.owner = :owner AND m.seq < {}.seq
    AND m.superseded_by IS NULL AND m.archived = 0 ORDER BY m.seq DESC LIMIT 1)"""
_PROPOSED = f"""
    WITH proposed (seq) AS {_THESE},
         once (seq) AS (SELECT {_BEFORE.format("proposed")} FROM proposed),
         twice (seq) AS (SELECT {_BEFORE.format("once")} FROM once)
    {_ROWS} AND m.seq IN (SELECT seq FROM proposed UNION SELECT seq FROM once UNION SELECT seq FROM twice)
    {{hidden}} ORDER BY m.seq"""
_ADMITTED = """
    SELECT count(*) FROM memories m
    WHERE m.owner = :owner AND m.superseded_by IS NULL AND m.archived = 0
    AND (m.expires_at IS NULL OR m.expires_at > :now)
    AND (:project IS NULL OR m.project IS NULL OR m.project = :project)
    AND (:types IS NULL OR m.type IN (SELECT value FROM json_each(:types)))"""
_NEWEST = _ROWS + "{hidden} ORDER BY m.seq DESC LIMIT :most"


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What to ask the index for, and what to search exactly in addition."""

    owner: Owner
    admitted: int  # how many memories the search admits, which says how rare a word is
    collections: Sequence[int]
    compared: Sequence[int]
    waiting: Sequence[int]


class Indexed:
    """The index, and from how many memories on a user is searched by it."""

    def __init__(
        self, index: CandidateIndex, *, exact_up_to: int, fell_back: Callable[[], None] = lambda: None
    ) -> None:
        """`fell_back` is called for each search that is exact because the index is down."""
        self.index = index
        self._exact_up_to, self._fell_back = exact_up_to, fell_back
        self._counts = TTLCache[tuple[Owner, str | None, frozenset[str] | None], int](1_000)

    def has_many(self, tx: Connection, owner: Owner) -> bool:
        """True for a user with too many memories to read them all in one search."""
        memories = int(value(tx, "SELECT memories FROM scopes WHERE id = ?", (owner.id,)))
        return memories > self._exact_up_to

    def plan(
        self, tx: Connection, owner: Owner, project: str | None, search: Search, compared: Sequence[int]
    ) -> IndexPlan | None:
        """Return how to search by the index; None: exactly."""
        target = index_target(tx, self.index.name) if self.has_many(tx, owner) else None
        asked = (owner.id, _MOST_WAITING + 1)
        waiting = column(tx, _WAITING, asked) if target else ()
        if target is None or not target.generations or len(waiting) > _MOST_WAITING:
            return None
        # Counted once for each version of the user's memories: of many that takes milliseconds.
        key = (owner, project, search.types)
        if (admitted := self._counts.get(key)) is None:
            types = None if search.types is None else as_json(sorted(search.types))
            wanted = {"owner": owner.id, "now": search.now, "project": project, "types": types}
            admitted = int(value(tx, _ADMITTED, wanted))
            self._counts.put(key, admitted)
        return IndexPlan(owner, admitted, target.generations, compared, waiting)

    async def propose(self, plan: IndexPlan, scope: Scope, search: Search) -> Sequence[int] | None:
        """Return the memories to look at, by number; None where the index cannot say."""
        try:
            near = await self.index.search(
                plan.owner.id, scope.project, search, compared=plan.compared, within=plan.collections
            )
        except IndexUnavailable:
            self._fell_back()
            return None
        return list({*near, *plan.waiting})


def found_among(
    tx: Connection, plan: IndexPlan, proposed: Sequence[int], project: str | None, search: Search
) -> list[Found]:
    """Return what a search finds among those proposed memories that are the user's and current."""
    owner = plan.owner
    these = {"owner": owner.id, "seqs": as_json(proposed), "generations": as_json(plan.compared)}
    rows = tx.execute(_PROPOSED.format(hidden=hidden(tx)), these).fetchall()
    ours = set(proposed)
    # Of the others only the words count.
    read = [Row(*row) if row[0] in ours else Row(*row)._replace(vector=None) for row in rows]
    index = build(read, owner.stamp, total=plan.admitted)
    return [item for item in index.search(project, search) if item.seq in ours]


def latest_index(tx: Connection, owner: Owner, compared: Sequence[int]) -> UserIndex:
    these = {"owner": owner.id, "generations": as_json(compared), "most": _LATEST}
    rows = tx.execute(_NEWEST.format(hidden=hidden(tx)), these).fetchall()
    return build([Row(*row) for row in reversed(rows)], owner.stamp)


# ---------------------------------------------------------------- memory-proxy reembed
def stamp_model(tx: Connection, model: EmbeddingModel) -> None:
    """Name the model in the store, or raise WrongModel if vectors of another one are there."""
    last = newest_model(tx)
    if last is not None and last[1:] == (model.name, model.dimension):
        return
    if last and tx.execute("SELECT 1 FROM vectors WHERE embedding IS NOT NULL LIMIT 1").fetchone():
        raise WrongModel(
            f"the memories were embedded with {last[1]} ({last[2]} dimensions), the configured model is"
            f" {model.name} ({model.dimension}): run `memory-proxy reembed` with the configuration that you"
            " serve with (it can be interrupted and continues), or set embedding.model back"
        )
    _add_model(tx, model, last)


def _add_model(tx: Connection, model: EmbeddingModel, last: tuple[int, str, int] | None) -> int:
    """Make the model the store's, after the `last`; return its generation."""
    generation = FIRST if last is None else last[0] + 1
    tx.execute("INSERT INTO embeddings VALUES (?, ?, ?)", (generation, model.name, model.dimension))
    return generation


# A user without a name is being forgotten as a whole.
_STALE = """
    FROM scopes s JOIN memories m ON m.owner = s.id JOIN vectors v ON v.memory = m.seq
    WHERE s.user IS NOT NULL AND v.generation <> :generation"""
# One user after another, so that each has memories of two kinds for as short as can be.
_NEXT = f"""
    SELECT m.owner, m.seq, m.written, m.content {_STALE}
    AND (s.id > :owner OR (s.id = :owner AND m.seq > :seq)) ORDER BY s.id, m.seq LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class Stale:
    """A memory that waits for a vector of the new model. `written` shows whether it was changed since."""

    owner: int
    seq: int
    written: int
    content: str


class SqlVectors(Store):
    """The vectors of all users, for `memory-proxy reembed`."""

    @writes
    def begin(self, tx: Connection, embedding: EmbeddingModel, *, all_again: bool = False) -> int:
        """Make the model the store's and return its generation: the last one, where it is this model's
        already and not all is to be done `all_again`."""
        last = newest_model(tx)
        if last is not None and not all_again and last[1:] == (embedding.name, embedding.dimension):
            return last[0]
        return _add_model(tx, embedding, last)

    @reads
    def count(self, tx: Connection, generation: int) -> int:
        """Return how many memories have no vector of the generation."""
        return int(value(tx, f"SELECT count(*) {_STALE}", {"generation": generation}))

    @reads
    def stale(self, tx: Connection, generation: int, after: Stale | None, limit: int) -> list[Stale]:
        """Return the next memories that have no vector of the generation, in a fixed order."""
        owner, seq = (after.owner, after.seq) if after else (-1, -1)
        asked = {"generation": generation, "owner": owner, "seq": seq, "limit": limit}
        return [Stale(*row) for row in tx.execute(_NEXT, asked)]

    async def put(self, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        """Store the vectors, durable on return, and return how many; None for what the model does not
        understand. What was changed or forgotten since it was read is left as it is.

        Raises WrongModel if the store has another model already."""
        count = await self._put(generation, made)
        await self._database.checkpoint()
        return count

    @writes
    def _put(self, tx: Connection, generation: int, made: Sequence[tuple[Stale, bytes | None]]) -> int:
        last = newest_model(tx)
        if last is None or last[0] != generation:
            raise WrongModel("the memories are being embedded with yet another model")
        raised = f"UPDATE scopes SET version = version + 1 WHERE id IN {seqs_in('?')} RETURNING id, version"
        versions = dict(tx.execute(raised, (as_json({stale.owner for stale, _ in made}),)).fetchall())
        # As if rewritten: an index that knows the memory takes its vector to be the one that it has.
        rewritten = "UPDATE memories SET changed = ?, written = ? WHERE seq = ? AND written = ?"
        filled = "UPDATE vectors SET embedding = ?, generation = ? WHERE memory = ?"
        count = 0
        for stale, vector in made:
            version = versions.get(stale.owner)
            if tx.execute(rewritten, (version, version, stale.seq, stale.written)).rowcount:
                count += 1
                tx.execute(filled, (vector, generation, stale.seq))
        return count
