"""Caches of recently active users: their search indexes, their memories as read from the rows, and the
warm-up after a start.

Both caches are bounded in bytes and brought up to date when used. Reading a row again costs more than
searching a small user's index. A cached memory is valid while its row's `changed` is the same and the user
forgot nothing. The access counter moves without changing that: it is read again, together with `changed`,
once what was read before is a minute old."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from proxy.domain.core import Memory, Scope, Stamp
from proxy.domain.errors import DamagedRow, StoreUnavailable
from proxy.domain.limits import TTLCache
from proxy.storage.exact_index import Row, UserIndex, build
from proxy.storage.sql import rows
from proxy.storage.sql.changes import REMEMBERED_VERSIONS
from proxy.storage.sql.database import Connection, Database, column
from proxy.storage.sql.erasure import hidden
from proxy.storage.sql.users import Owner

# ---------------------------------------------------------------- indexes
_ROWS = f"""
    SELECT m.seq, m.type, m.project, m.expires_at, m.superseded_by IS NULL AND m.archived = 0,
           iif(v.generation IN {rows.seqs_in(":generations")}, v.embedding, NULL),
           v.terms, m.written > :version
    FROM memories m JOIN vectors v ON v.memory = m.seq
    WHERE m.owner = :owner {{hidden}} AND"""
_CURRENT = _ROWS + " m.superseded_by IS NULL AND m.archived = 0 ORDER BY m.seq"
# Of those that a lack of use archived, the latest; all count as current.
_FADED = _ROWS.replace("m.superseded_by IS NULL AND m.archived = 0,", "1,") + (
    " m.archived = 1 AND m.archived_by IN ('use', 'decay') AND m.superseded_by IS NULL"
    " ORDER BY m.seq DESC LIMIT 2000"
)
_CHANGED = _ROWS + " m.changed > :version ORDER BY m.seq LIMIT 1000"
# A row that was deleted for the quota's sake cannot be seen to change. See Writer.erase.
_EVICTED = "SELECT memory FROM evicted WHERE owner = ? AND version > ? LIMIT 1000"
_STRIPES = 64


class IndexCache:
    """Indexes by user, within a bound in bytes. One that is larger than all of it is cached alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._indexes = TTLCache[int, tuple[int, UserIndex]](  # with the epoch of the database
            limit_bytes, size_of=lambda entry: min(entry[1].nbytes, limit_bytes)
        )
        # One user's index is read by one thread at a time, without making other users wait.
        self._loading = [threading.Lock() for _ in range(_STRIPES)]
        self.clear, self.pop = self._indexes.clear, self._indexes.pop

    @property
    def filled(self) -> float:
        """The share of the bound that is used."""
        return self._indexes.filled

    def __contains__(self, owner: int) -> bool:
        return owner in self._indexes

    def current(self, tx: Connection, owner: Owner, epoch: int, generations: Sequence[int]) -> UserIndex:
        """Return the user's index as of the transaction, or newer; `epoch` is that of the database. Vectors
        of other `generations` than these are left out."""
        with self._loading[owner.id % _STRIPES]:
            made_in, cached = self._indexes.get(owner.id) or (epoch, None)
            if cached is None or made_in != epoch:
                index = _load(tx, owner, generations)
            # Another thread may be ahead of this transaction; what it saw forgotten must not come back.
            elif _order(cached.stamp) >= _order(owner.stamp):
                return cached
            else:
                index = _refreshed(tx, owner, cached, generations)
            self._indexes.put(owner.id, (epoch, index))
            return index


def _order(stamp: Stamp) -> tuple[int, int]:
    return stamp.generation, stamp.version


def _read(tx: Connection, query: str, owner: int, version: int, generations: Sequence[int]) -> list[Row]:
    asked = {"owner": owner, "version": version, "generations": rows.as_json(generations)}
    return [Row._make(row) for row in tx.execute(query.format(hidden=hidden(tx)), asked)]


def _load(tx: Connection, owner: Owner, generations: Sequence[int]) -> UserIndex:
    return build(_read(tx, _CURRENT, owner.id, owner.stamp.version, generations), owner.stamp)


def faded_index(tx: Connection, owner: Owner, generations: Sequence[int]) -> UserIndex:
    """Return an index of the user's memories that were archived for lack of use."""
    return build(_read(tx, _FADED, owner.id, owner.stamp.version, generations)[::-1], owner.stamp)


def _refreshed(tx: Connection, owner: Owner, cached: UserIndex, generations: Sequence[int]) -> UserIndex:
    """Read what has changed; all of it after a forget, since a deleted row cannot be seen to change."""
    old, new = cached.stamp, owner.stamp
    if old.generation == new.generation and new.version - old.version <= REMEMBERED_VERSIONS:
        changed = _read(tx, _CHANGED, owner.id, old.version, generations)
        for seq in column(tx, _EVICTED, (owner.id, old.version)):
            changed.append(Row(seq, "", None, None, current=False, vector=None, terms=b""))
        if (index := cached.changed(changed, new)) is not None:
            return index
    return _load(tx, owner, generations)


# ---------------------------------------------------------------- rows
_STATES = f"""
    SELECT seq, changed, access_count, last_accessed, weight, uses, used_at
    FROM memories WHERE seq IN {rows.seqs_in("?")}"""
_COUNTED = ("access_count", "last_accessed", "weight", "uses", "used_at")  # change without `changed`
_OVERHEAD_BYTES = 800  # of a Memory without its texts, 700 measured, and its place in the last look
_EVIDENCE_BYTES = 300
_FRESH_S = 60.0  # access counts may be so old: they are used by the day

_Row = tuple[int, Memory]
"""A row's `changed`, and what it says."""


@dataclass(frozen=True, slots=True)
class _UserRows:
    """One user's memories by seq, and what was last asked for: at which version of the user, when (steady
    seconds), and what it was."""

    validity: tuple[int, int]  # the database's epoch and the user's generation
    memories: Mapping[int, _Row]
    nbytes: int
    seqs: Sequence[int]
    version: int
    at: float
    found: Mapping[int, Memory]


class RowCache:
    """Memories by user, within a bound in bytes."""

    def __init__(self, limit_bytes: int, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._users = TTLCache[int, _UserRows](limit_bytes, size_of=lambda user: user.nbytes)
        self.pop = self._users.pop

    @property
    def filled(self) -> float:
        """The share of the bound that is used."""
        return self._users.filled

    def memories(self, tx: Connection, owner: Owner, epoch: int, seqs: Sequence[int]) -> Mapping[int, Memory]:
        """Return those of the user's memories under these numbers that the transaction sees. Access counts
        may be a minute old."""
        validity, version, now = (epoch, owner.stamp.generation), owner.stamp.version, self._steady()
        cached = self._users.get(owner.id)
        if cached and cached.validity != validity:
            cached = None
        if cached and cached.version == version and cached.seqs == seqs and now - cached.at < _FRESH_S:
            return cached.found
        known = cached.memories if cached else {}
        found, renewed = _renewed(tx, known, seqs)
        size = sum(_size(memory) for _, memory in renewed.values())
        size -= sum(_size(known[seq][1]) for seq in renewed if seq in known)
        nbytes = size + (cached.nbytes if cached else 0)
        user = _UserRows(validity, {**known, **renewed}, nbytes, seqs, version, now, found)
        self._users.put(owner.id, user)
        return found


def _renewed(
    tx: Connection, known: Mapping[int, _Row], seqs: Sequence[int]
) -> tuple[Mapping[int, Memory], Mapping[int, _Row]]:
    """Return the memories that exist under the numbers, and what of them is not known, or no longer."""
    states = tx.execute(_STATES, (rows.as_json(seqs),)).fetchall() if known else ()
    found, renewed = dict[int, Memory](), dict[int, _Row]()
    unknown = [] if known else list(seqs)
    for seq, changed, *used in states:
        cached = known.get(seq)
        if cached is None or cached[0] != changed:
            unknown.append(seq)
            continue
        memory = cached[1]
        if [getattr(memory, name) for name in _COUNTED] != used:
            memory = replace(memory, **dict(zip(_COUNTED, used, strict=True)))
            renewed[seq] = (changed, memory)  # making one again costs as much as ranking it
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
    WHERE user IS NOT NULL AND memories BETWEEN 1 AND ? ORDER BY served DESC, id DESC"""


class Prefetch:
    """Loads users of at most `few` memories into the caches after a start, so that their first question does
    not wait for their rows: first those with the last extracted sessions. It continues a little at a time,
    until the caches are mostly full: it must not evict what requests have loaded."""

    def __init__(
        self,
        database: Database,
        load: Callable[[Connection, Scope], object],
        has_room: Callable[[], bool],
        few: int,
    ) -> None:
        self._database = database
        self._load, self._has_room, self._few = load, has_room, few
        self._steady = time.monotonic
        self._waiting: deque[Scope] | None = None  # None: not looked up yet

    async def step(self) -> None:
        """Load the next few; stop for good if the store cannot be read."""
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
        with suppress(DamagedRow):  # a request for it will report it
            self._load(tx, scope)
