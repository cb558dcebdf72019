"""A cache of the search indexes of recently active users, bounded in bytes and brought up to date when
used.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from proxy.domain.core import Scope
from proxy.storage.sql.changes import REMEMBERED_VERSIONS
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.forgetting.pending import hidden
from proxy.storage.sql.owners import Name, Owner
from proxy.storage.sql.rows import as_json
from proxy.storage.vectors.exact.index import Row, UserIndex, build

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
