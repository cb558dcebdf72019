"""A cache of memories as read from their rows, for the searches to come.

Reading a row anew costs more than searching a small user's index. A kept memory is as good as its row
while the row's `changed` is the same, and nothing of the user was forgotten. The access counter moves without
telling: it is read again, together with `changed`, once what was read before is a minute old.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.domain.core import Memory
from proxy.storage.sql import rows
from proxy.storage.sql.connection import Connection
from proxy.storage.sql.owners import Owner

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
