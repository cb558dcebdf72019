"""Caches of recently active users: their search indexes, their memories as read from the rows, and the
warm-up after a start.

Both caches are bounded in bytes and brought up to date when used. Reading a row again costs more than
searching a small user's index. A cached memory is valid while its row's `changed` is the same and the user
forgot nothing. The access counter moves without changing that: it is read again, together with `changed`,
once what was read before is a minute old.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.domain.core import Memory, Scope
from proxy.domain.errors import DamagedRow, StoreUnavailable
from proxy.storage.exact_index import Row, UserIndex, build
from proxy.storage.sql import rows
from proxy.storage.sql.changes import REMEMBERED_VERSIONS
from proxy.storage.sql.database import Connection, Database
from proxy.storage.sql.erasure import hidden
from proxy.storage.sql.rows import as_json
from proxy.storage.sql.users import Name, Owner

# ---------------------------------------------------------------- indexes
_ROWS = """
    SELECT m.seq, m.type, m.project, m.expires_at, m.superseded_by IS NULL AND m.archived = 0,
           iif(v.generation IN (SELECT CAST(value AS INTEGER) FROM json_each(:generations)),
               v.embedding, NULL),
           v.terms, m.written > :version
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.owner = :owner {hidden} AND
"""
_CURRENT = _ROWS + "m.superseded_by IS NULL AND m.archived = 0 ORDER BY m.seq"
_CHANGED = _ROWS + "m.changed > :version ORDER BY m.seq LIMIT 1000"
# A row that is gone for the quota's sake cannot be seen to change. See Writer.erase.
_GONE = "SELECT memory FROM evicted WHERE owner = :owner AND version > :version LIMIT 1000"
_STRIPES = 64


class IndexCache:
    """Least recently used out first. The one used last stays even where it alone is over the bound."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._indexes: OrderedDict[int, UserIndex] = OrderedDict()
        self._names: dict[int, Name] = {}  # of the users whose index is here
        self._named: dict[Name, UserIndex] = {}
        self._bytes = 0
        self._epoch = 0
        self._lock = threading.Lock()
        # One user's index is read by one thread at a time, without making other users wait.
        self._loading = [threading.Lock() for _ in range(_STRIPES)]

    @property
    def filled(self) -> float:
        """The share of the bound that is used."""
        return self._bytes / self._limit

    def holds(self, scope: Scope) -> bool:
        """Return whether an index of the user is here, though it may be out of date."""
        return (scope.tenant, scope.user) in self._named

    def current(self, tx: Connection, owner: Owner, epoch: int, generations: Sequence[int]) -> UserIndex:
        """Return the user's index as of the transaction, or newer; `epoch` is that of the file. Vectors of
        other `generations` than these are left out."""
        with self._loading[owner.id % _STRIPES]:
            cached = self._get(owner.id, epoch)
            if cached is None:
                return self._put(owner, epoch, _load(tx, owner, generations))
            old, new = cached.stamp, owner.stamp
            # Another thread may be ahead of this transaction; what it saw forgotten must not come back.
            if (old.generation, old.version) >= (new.generation, new.version):
                return cached
            return self._put(owner, epoch, _refreshed(tx, owner, cached, generations))

    def clear(self) -> None:
        """Let go of all: what vectors are ours has changed."""
        with self._lock:
            self._empty()

    def drop(self, owner: int) -> None:
        """Let go of a user's index: what was forgotten leaves this process's memory too."""
        with self._lock:
            self._remove(owner)

    def _get(self, owner: int, epoch: int) -> UserIndex | None:
        with self._lock:
            if epoch != self._epoch:
                self._empty()
                self._epoch = epoch
            if owner in self._indexes:
                self._indexes.move_to_end(owner)
            return self._indexes.get(owner)

    def _put(self, owner: Owner, epoch: int, index: UserIndex) -> UserIndex:
        with self._lock:
            if epoch == self._epoch:
                self._remove(owner.id)
                self._indexes[owner.id] = index
                self._names[owner.id] = owner.name
                self._named[owner.name] = index
                self._bytes += index.nbytes
                while self._bytes > self._limit and len(self._indexes) > 1:
                    self._remove(next(iter(self._indexes)))
        return index

    def _remove(self, owner: int) -> None:
        if (index := self._indexes.pop(owner, None)) is not None:
            self._bytes -= index.nbytes
            self._named.pop(self._names.pop(owner), None)

    def _empty(self) -> None:
        self._indexes.clear()
        self._names.clear()
        self._named.clear()
        self._bytes = 0


def _load(tx: Connection, owner: Owner, generations: Sequence[int]) -> UserIndex:
    ours = {
        "owner": owner.id,
        "version": owner.stamp.version,
        "generations": as_json(generations),
    }
    rows = tx.execute(_CURRENT.format(hidden=hidden(tx)), ours).fetchall()
    return build([Row._make(row) for row in rows], owner.stamp)


def _refreshed(tx: Connection, owner: Owner, cached: UserIndex, generations: Sequence[int]) -> UserIndex:
    """Read what has changed; all of it after a forget, since a row that is gone cannot be seen to change."""
    old, new = cached.stamp, owner.stamp
    if old.generation == new.generation and new.version - old.version <= REMEMBERED_VERSIONS:
        since = {"owner": owner.id, "version": old.version, "generations": as_json(generations)}
        rows = [Row._make(row) for row in tx.execute(_CHANGED.format(hidden=hidden(tx)), since)]
        rows += [_gone(seq) for (seq,) in tx.execute(_GONE, since)]
        if (index := cached.changed(rows, new)) is not None:
            return index
    return _load(tx, owner, generations)


def _gone(seq: int) -> Row:
    """Return what an index should make of a memory that is no longer there."""
    return Row(seq, "", None, None, current=False, vector=None, terms=b"")


# ---------------------------------------------------------------- rows
_STATES = """
    SELECT seq, changed, access_count, last_accessed FROM memories
    WHERE seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?))
"""
_OVERHEAD_BYTES = 800  # of a Memory beside its texts, 700 measured, and its place in the last look
_EVIDENCE_BYTES = 300
_FRESH_S = 60.0  # so old may be what is known of accesses, which tell apart days

Validity = tuple[int, int]
"""The file's epoch and the user's generation."""
_Row = tuple[int, Memory]
"""A row's `changed`, and what it says."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What was last asked for, at which version of the user, when (steady seconds), and what it was."""

    seqs: Sequence[int]
    version: int
    at: float
    found: Mapping[int, Memory]

    def is_of(self, seqs: Sequence[int], version: int) -> bool:
        """True if the same was asked for, and no row has changed since."""
        return self.version == version and self.seqs == seqs


@dataclass(slots=True)
class _Kept:
    """One user's memories by seq, each with its row's `changed`."""

    validity: Validity
    memories: dict[int, _Row] = field(default_factory=dict)
    nbytes: int = 0
    last: _Look | None = None


class RowCache:
    """Whole users leave, the least recently used first, when the bound in bytes is passed."""

    def __init__(self, limit_bytes: int, steady: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit_bytes
        self._steady = steady
        self._users: OrderedDict[int, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def filled(self) -> float:
        """The share of the bound that is used."""
        return self._bytes / self._limit

    def memories(self, tx: Connection, owner: Owner, epoch: int, seqs: Sequence[int]) -> Mapping[int, Memory]:
        """Return those of the user's memories under these numbers that the transaction sees, as it does; what
        it tells of accesses may be a minute old."""
        validity, now = (epoch, owner.stamp.generation), self._steady()
        kept = self._known(owner.id, validity)
        last = kept.last if kept else None
        if last and last.is_of(seqs, owner.stamp.version) and now - last.at < _FRESH_S:
            return last.found
        found, renewed = _read(tx, kept.memories if kept else {}, seqs)
        self._keep(owner.id, validity, renewed, _Look(seqs, owner.stamp.version, now, found))
        return found

    def drop(self, owner: int) -> None:
        """Let go of a user's memories: what was forgotten leaves this process's memory too."""
        with self._lock:
            self._remove(owner)

    def _known(self, owner: int, validity: Validity) -> _Kept | None:
        """Return what is kept of the user. Only `_keep` adds to it; a reader may look at it meanwhile."""
        with self._lock:
            kept = self._users.get(owner)
            if kept is None:
                return None
            if kept.validity != validity:
                self._remove(owner)
                return None
            self._users.move_to_end(owner)
            return kept

    def _keep(self, owner: int, validity: Validity, read: Mapping[int, _Row], last: _Look) -> None:
        with self._lock:
            kept = self._users.get(owner)
            if kept is None or kept.validity != validity:
                self._remove(owner)
                kept = self._users[owner] = _Kept(validity)
            size = sum(_size(memory) for _, memory in read.values())
            size -= sum(_size(kept.memories[seq][1]) for seq in read if seq in kept.memories)
            kept.memories |= read
            kept.nbytes += size
            kept.last = last
            self._bytes += size
            while self._bytes > self._limit:
                self._remove(next(iter(self._users)))

    def _remove(self, owner: int) -> None:
        if (kept := self._users.pop(owner, None)) is not None:
            self._bytes -= kept.nbytes


def _read(
    tx: Connection, known: Mapping[int, _Row], seqs: Sequence[int]
) -> tuple[Mapping[int, Memory], Mapping[int, _Row]]:
    """Return the memories that exist under the numbers, and what of them is not known, or no longer."""
    states = tx.execute(_STATES, (rows.as_json(seqs),)).fetchall() if known else ()
    found, renewed = dict[int, Memory](), dict[int, _Row]()
    unknown = [] if known else list(seqs)
    for seq, changed, access_count, last_accessed in states:
        kept = known.get(seq)
        if kept is None or kept[0] != changed:
            unknown.append(seq)
            continue
        memory = kept[1]
        if memory.access_count != access_count or memory.last_accessed != last_accessed:
            memory = replace(memory, access_count=access_count, last_accessed=last_accessed)
            renewed[seq] = (changed, memory)  # making one anew costs as much as ranking it
        found[seq] = memory
    if unknown:
        read = rows.memories_by_seq(tx, unknown)
        renewed |= read
        found |= {seq: memory for seq, (_, memory) in read.items()}
    return found, renewed


def _size(memory: Memory) -> int:
    """Return about how many bytes the memory holds. A character counts four at most, mostly one."""
    texts = len(memory.content) + sum(len(e.span) for e in memory.evidence)
    return _OVERHEAD_BYTES + 2 * texts + _EVIDENCE_BYTES * len(memory.evidence)


# ---------------------------------------------------------------- warm-up
AT_MOST = 2_000  # users are looked up; the caches hold fewer, unless these have few memories
STEP_S = 0.5  # of each round of upkeep
_LATEST = """
    SELECT tenant, user FROM (
        SELECT id, tenant, user, served, memories FROM scopes ORDER BY served DESC, id DESC LIMIT ?
    ) latest
    WHERE user IS NOT NULL AND memories BETWEEN 1 AND ? ORDER BY served DESC, id DESC
"""

BringIn = Callable[[Connection, Scope], object]
"""Reads a user's memories into the caches."""


class Prefetch:
    """Who is to be brought in, one by one."""

    def __init__(
        self,
        database: Database,
        bring_in: BringIn,
        has_room: Callable[[], bool],
        few: int,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._bring_in, self._has_room = bring_in, has_room
        self._steady = steady
        self._few = few  # who has more memories than these is left out
        self._waiting: deque[Scope] | None = None  # None: not looked up yet

    async def step(self) -> None:
        """Bring in the next few; where the store cannot be read, nobody any more."""
        try:
            if self._waiting is None:
                self._waiting = await self._database.read(self._latest)
            end = self._steady() + STEP_S
            while self._waiting and self._has_room() and self._steady() < end:
                await self._database.read(partial(self._one, self._waiting.popleft()))
        except StoreUnavailable:
            self._waiting = deque()

    def _latest(self, tx: Connection) -> deque[Scope]:
        return deque(Scope(*name) for name in tx.execute(_LATEST, (AT_MOST, self._few)))

    def _one(self, scope: Scope, tx: Connection) -> None:
        with suppress(DamagedRow):  # whoever asks for it will be told
            self._bring_in(tx, scope)
