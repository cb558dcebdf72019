"""Send what was written, changed and forgotten to an external index; the database stays the source of truth.

Triggers put the number of each memory that changes into `vector_outbox`, in the transaction that changes it.
One process at a time, under a lease, reads how these memories are now and sends that: current ones as
points, others as deletions. So an entry may be sent twice, or late, and a crash between commit and delivery
loses nothing. A process that lost its lease while it was sending puts its memories into the outbox again:
another one may have sent a newer state before.

A collection that is not on the list of those that were made gets all memories of its generation. So a Qdrant
that lost its data is filled again, and so is one that is named for the first time.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.storage.sql.connection import Connection, Database
from proxy.storage.sql.rows import as_json
from proxy.storage.vectors.candidates import CandidateIndex, Point

_AT_ONCE = 256
_LEASE_S = 60.0  # longer than a portion takes
_WAIT_S = 0.5
_SETTLE_S = 30.0  # longer than a write takes

_THESE = "(SELECT CAST(value AS INTEGER) FROM json_each(:seqs))"
_ENTRIES = "SELECT seq, owner, memory FROM vector_outbox ORDER BY seq LIMIT :most"
_CURRENT = f"""
    SELECT v.generation, m.seq, m.owner, m.type, m.project, m.expires_at, v.embedding, v.terms
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.seq IN {_THESE} AND m.superseded_by IS NULL AND m.archived = 0
"""
_ENQUEUE = """
    INSERT INTO vector_outbox (owner, memory)
    SELECT m.owner, m.seq FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.superseded_by IS NULL AND m.archived = 0
    AND v.generation IN (SELECT CAST(value AS INTEGER) FROM json_each(:generations))
    AND NOT EXISTS (SELECT 1 FROM vector_outbox o WHERE o.memory = m.seq)
"""
_ENQUEUE_ALL = """
    INSERT INTO vector_outbox (owner, memory)
    SELECT owner, seq FROM memories WHERE superseded_by IS NULL AND archived = 0
"""
_TAKE = """
    UPDATE vector_targets SET holder = :me, leased_until = :until
    WHERE name = :name AND (holder = :me OR leased_until < :now)
"""
_RENEW = "UPDATE vector_targets SET leased_until = :until WHERE name = :name AND holder = :me"

Report = Callable[[int, int], None]
"""Is called with how many memories were sent, and how many there are to send."""


@dataclass(frozen=True, slots=True)
class Target:
    """The index as the database knows it."""

    generations: tuple[int, ...]  # with a collection
    rebuilding: bool


@dataclass(frozen=True, slots=True)
class Portion:
    """Entries of the outbox, and what is to be sent for them."""

    target: Target
    entries: Sequence[tuple[int, int, int]]  # seq, owner, memory
    points: Mapping[int, Sequence[Point]]  # by generation
    dimensions: Mapping[int, int]  # of the generations' vectors
    erased: Sequence[int]


class Outbox:
    """The entries that wait, and the one who sends them."""

    def __init__(
        self, database: Database, index: CandidateIndex, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._index, self._clock = database, index, clock
        self._me = secrets.token_hex(8)

    async def waiting(self) -> int:
        """Return how many entries wait."""
        return await self._database.read(count)

    async def deliver(self, seconds: float) -> None:
        """Send what waits, for so long. Raises IndexUnavailable where the index is down; then all waits."""
        target = await self._target()
        await self._find_lost(target)
        if not await self._database.read(_is_waiting) or not await self._take():
            return
        end = time.monotonic() + seconds
        try:
            while await self._send_next() and time.monotonic() < end:
                pass
        finally:
            await self._give_back()

    async def rebuild(self, report: Report) -> int:
        """Make the collections again and send every memory; return how many entries were sent. Broken off, it
        continues when it is called again. Raises IndexUnavailable where the index is down."""
        target = await self._target()
        await self._wait_for_lease()
        try:
            if not (target.rebuilding and await self.waiting()):
                await self._index.drop()  # until the next line is committed, searches find them missing
                await self._database.write(lambda tx: _begin(tx, self._index.name))
            total = left = await self.waiting()
            while left:
                report(total - left, total)
                if not await self._send_next():
                    await self._wait_for_lease()
                left = await self.waiting()
                total = max(total, left)
            report(total, total)
            finish = "UPDATE vector_targets SET rebuilding = 0 WHERE name = ?"
            await self._database.write(lambda tx: _run(tx, finish, (self._index.name,)))
            return total
        finally:
            await self._give_back()

    # ------------------------------------------------------------ steps
    async def _target(self) -> Target:
        """Return what the database knows of the index; one that it does not know gets all memories."""
        name = self._index.name
        if (found := await self._database.read(lambda tx: target_of(tx, name))) is not None:
            return found
        return await self._database.write(lambda tx: _register(tx, name, self._clock()))

    async def _find_lost(self, target: Target) -> None:
        lost = set(target.generations) - await self._index.generations()
        if lost:
            generations = {"generations": as_json(sorted(lost))}
            await self._database.write(lambda tx: _run(tx, _ENQUEUE, generations))

    async def _take(self) -> bool:
        """Hold the lease; False while another process does."""
        return await self._database.write(lambda tx: tx.execute(_TAKE, self._lease()).rowcount > 0)

    async def _wait_for_lease(self) -> None:
        while not await self._take():  # noqa: ASYNC110 - another process has it, and cannot say when it ends
            await asyncio.sleep(_WAIT_S)

    async def _give_back(self) -> None:
        free = "UPDATE vector_targets SET holder = '', leased_until = 0 WHERE name = :name AND holder = :me"
        await self._database.write(lambda tx: _run(tx, free, {"name": self._index.name, "me": self._me}))

    async def _send_next(self) -> bool:
        """Send a portion; False if there is none, or the lease is lost."""
        portion = await self._database.read(lambda tx: _read(tx, self._index.name))
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
        return await self._database.write(lambda tx: self._acknowledge(tx, portion))

    def _acknowledge(self, tx: Connection, portion: Portion) -> bool:
        if not tx.execute(_RENEW, self._lease()).rowcount:
            tx.executemany(
                "INSERT INTO vector_outbox (owner, memory) VALUES (?, ?)",
                [(owner, memory) for _, owner, memory in portion.entries],
            )
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


def target_of(tx: Connection, name: str) -> Target | None:
    """Return what the database knows of the index, None before anything was sent to it."""
    row = tx.execute("SELECT generations, rebuilding FROM vector_targets WHERE name = ?", (name,)).fetchone()
    return None if row is None else Target(tuple(json.loads(row[0])), bool(row[1]))


def waiting_of(tx: Connection, owner: int, limit: int) -> list[int]:
    """Return at most so many of the user's memories that were not sent yet."""
    found = tx.execute(
        "SELECT DISTINCT memory FROM vector_outbox WHERE owner = ? LIMIT ?", (owner, limit)
    ).fetchall()
    return [memory for (memory,) in found]


def count(tx: Connection) -> int:
    """Return how many entries wait."""
    (waiting,) = tx.execute("SELECT count(*) FROM vector_outbox").fetchone()
    return int(waiting)


async def retire(database: Database) -> None:
    """Collect nothing any more: there is no index."""
    if await database.read(lambda tx: tx.execute("SELECT 1 FROM vector_targets LIMIT 1").fetchone()):
        await database.write(_forget_targets)


def _forget_targets(tx: Connection) -> None:
    tx.execute("DELETE FROM vector_targets")
    tx.execute("DELETE FROM vector_outbox")


def _register(tx: Connection, name: str, now: float) -> Target:
    """Begin to collect entries, with all that there is.

    Where others write at the same time, a memory may be seen neither here nor by a trigger. Nothing is sent
    for a while then: what is sent first for a generation makes all of its memories wait (_acknowledge)."""
    if (known := target_of(tx, name)) is None:
        _forget_targets(tx)
        from_then = now + _SETTLE_S if tx.for_update else 0.0
        tx.execute("INSERT INTO vector_targets (name, leased_until) VALUES (?, ?)", (name, from_then))
        tx.execute(_ENQUEUE_ALL)
    return known or Target((), False)


def _begin(tx: Connection, name: str) -> None:
    tx.execute("UPDATE vector_targets SET generations = '[]', rebuilding = 1 WHERE name = ?", (name,))
    tx.execute("DELETE FROM vector_outbox")
    tx.execute(_ENQUEUE_ALL)


def _is_waiting(tx: Connection) -> bool:
    return tx.execute("SELECT 1 FROM vector_outbox LIMIT 1").fetchone() is not None


def _read(tx: Connection, name: str) -> Portion | None:
    """Return the oldest entries with the state that their memories have now."""
    entries = tx.execute(_ENTRIES, {"most": _AT_ONCE}).fetchall()
    target = target_of(tx, name)
    if not entries or target is None:
        return None
    memories = {memory for _, _, memory in entries}
    points: dict[int, list[Point]] = {}
    for generation, *values in tx.execute(_CURRENT, {"seqs": as_json(memories)}):
        points.setdefault(generation, []).append(Point(*values))
    current = {point.memory for some in points.values() for point in some}
    named = dict(tx.execute("SELECT generation, dimension FROM embeddings").fetchall())
    seen = {g: max(len(p.vector or b"") // 4 for p in some) for g, some in points.items()}
    return Portion(target, entries, points, seen | named, sorted(memories - current))


def _run(tx: Connection, statement: str, parameters: Mapping[str, object] | Sequence[object]) -> None:
    tx.execute(statement, parameters)
