"""One user's memories as arrays: exact cosine and exact BM25 over what the filters leave.

An index is a snapshot and never changes; a changed memory gives the next snapshot. The rows of the vector
matrix are appended in place behind the older snapshot's view, so that a write costs no copy of it. Words are
in an inverted index: which memories hold a term, and how often.

Caches of recently active users: their indexes, and their memories as read from the rows. Both are bounded in
bytes and brought up to date when used. Reading a row again costs more than searching a small user's index. A
cached memory is valid while its row's `changed` is the same and the user forgot nothing. The access counter
moves without changing that: it is read again, together with `changed`, once what was read before is a minute
old."""

import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from proxy.domain.core import Memory, Scope, Search, Stamp
from proxy.domain.errors import DamagedRow, StoreUnavailable, WrongModel
from proxy.domain.limits import TTLCache
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, Database, column, legible
from proxy.storage.sql.erasure import hidden
from proxy.storage.sql.rows import Owner

# ---------------------------------------------------------------- words
Ints = NDArray[np.int64]


@lru_cache(maxsize=2048)
def term_hash(term: str) -> int:
    """Return the term's 64-bit number, the same on every machine. That two of n share one: about n²/2⁶⁵."""
    digest = hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def pack(terms: Iterable[str]) -> bytes:
    """Return the terms' numbers as the bytes that the store keeps."""
    return np.fromiter((term_hash(term) for term in terms), dtype=np.int64).tobytes()


@dataclass(frozen=True, slots=True)
class Postings:
    """One entry for every (term, document), ordered by term, then document."""

    terms: Ints
    docs: NDArray[np.int32]
    counts: NDArray[np.int32]

    @classmethod
    def build(cls, terms: Ints, lengths: NDArray[np.int32], *, first: int = 0) -> "Postings":
        """Index texts as documents first, first + 1, …: the numbers of their terms, concatenated, and
        how many each text has."""
        docs = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        order = np.argsort(terms, kind="stable")  # stable keeps the documents of a term in order
        terms, docs = terms[order], docs[order]
        is_new = np.ones(len(terms), np.bool_)
        is_new[1:] = (terms[1:] != terms[:-1]) | (docs[1:] != docs[:-1])
        starts = np.flatnonzero(is_new)
        counts = np.diff(starts, append=len(terms)).astype(np.int32)
        return cls(terms[starts], docs[starts], counts)

    def merged(self, later: "Postings") -> "Postings":
        """Return both as one; the documents of `later` come after ours."""
        terms = np.concatenate([self.terms, later.terms])
        order = np.argsort(terms, kind="stable")
        docs, counts = np.concatenate([self.docs, later.docs]), np.concatenate([self.counts, later.counts])
        return Postings(terms[order], docs[order], counts[order])

    def of(self, terms: Ints) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return parallel arrays of what is held of the terms: position in `terms`, document, count."""
        starts = np.searchsorted(self.terms, terms, side="left")
        found = np.searchsorted(self.terms, terms, side="right") - starts
        which = np.repeat(np.arange(len(terms)), found)
        # Every term's entries lie together: count on from the start of each.
        at = np.arange(len(which)) + np.repeat(starts - (np.cumsum(found) - found), found)
        return which, self.docs[at], self.counts[at]

    @property
    def nbytes(self) -> int:
        return self.terms.nbytes + self.docs.nbytes + self.counts.nbytes


NO_POSTINGS = Postings(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))


# ---------------------------------------------------------------- memories
# BM25, Robertson & Zaragoza 2009. b below the usual 0.75: facts are one sentence, length says little.
_K1, _B = 1.2, 0.4
# Share of the word matches of the two memories stored before it that a memory gets. Turns of a talk often
# leave out the subject that the turns before them name; among extracted facts the share changes nothing.
_BEFORE = 0.5
_REPLACED = -1  # the seq of a position whose memory now has another
_FEW = 8  # times as many rows cost more to multiply than these to pick out
_TERM_BYTES = 8
_TAIL_SHARE = 4  # new postings are merged into the old once they are a quarter of them

_COLUMNS = ("seqs", "types", "projects", "expires", "current", "lengths", "embedded")  # of UserIndex

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Name = TypeVar("Name")


class Row(NamedTuple):
    """A memory as the index reads it. A tuple, since a hundred are made where a user is first seen."""

    seq: int
    type: str
    project: str | None
    expires_at: float | None
    current: bool  # neither superseded nor archived
    vector: bytes | None
    terms: bytes
    rewritten: bool = False  # says something else than when the index last read it


class Found(NamedTuple):
    """A memory's number and scores."""

    seq: int
    cosine: float | None  # None where either side has no vector
    bm25: float
    vector: bytes | None = None  # of those that were asked for


@dataclass(frozen=True, slots=True)
class UserIndex:
    """Arrays of equal length, a position for each memory."""

    stamp: Stamp
    seqs: NDArray[np.int64]
    types: NDArray[np.int16]  # positions in type_names
    projects: NDArray[np.int32]  # positions in project_names
    expires: NDArray[np.float64]  # infinity: never
    current: Bools
    lengths: NDArray[np.int32]  # in terms
    embedded: Bools
    matrix: Floats  # a row of zeros where there is no vector
    buffer: Floats  # the matrix and any room behind it
    postings: Postings
    tail: Postings  # of the latest positions
    type_names: tuple[str, ...]
    project_names: tuple[str | None, ...]
    total: int = 0  # where these are only some of the memories that a search admits: how many those are

    @property
    def nbytes(self) -> int:
        """Memory held, names aside."""
        arrays = (*_COLUMNS, "buffer", "postings", "tail")
        return sum(getattr(self, name).nbytes for name in arrays)

    # ------------------------------------------------------------ search
    def search(self, project: str | None, search: Search) -> list[Found]:
        """Return the best `search.limit` by cosine and the best by BM25, each with both scores."""
        eligible = self._eligible(project, search)
        scores = self._bm25(search.terms, eligible)
        cosines = self._cosines(search.vector, eligible)
        if cosines is not None:  # without its own vector a memory has to share a word
            before = np.zeros_like(scores)
            before[1:] += scores[:-1]
            before[2:] += scores[:-2]
            scores = np.asarray(scores + _BEFORE * before * (eligible & self.embedded))
        best = _top(scores, np.flatnonzero(scores > 0), search.limit)
        if cosines is not None:
            nearest = _top(cosines, np.flatnonzero(eligible & self.embedded), search.limit)
            best = np.union1d(best, nearest)
        near = [None] * len(best) if cosines is None else cosines[best].tolist()
        columns = (self.seqs[best].tolist(), near, self.embedded[best].tolist(), scores[best].tolist())
        found = [
            Found(seq, cosine if embedded else None, bm25)
            for seq, cosine, embedded, bm25 in zip(*columns, strict=True)
        ]
        if cosines is not None and search.vectors:
            of_these = _top(cosines[best], np.flatnonzero(self.embedded[best]), search.vectors)
            for at in of_these.tolist():
                found[at] = found[at]._replace(vector=self.matrix[best[at]].tobytes())
        return found

    def _eligible(self, project: str | None, search: Search) -> Bools:
        eligible = self.current & (self.expires > search.now)
        if search.types is not None:
            eligible &= np.array([name in search.types for name in self.type_names], np.bool_)[self.types]
        if project is not None:
            wanted = [name is None or name == project for name in self.project_names]
            eligible &= np.array(wanted, np.bool_)[self.projects]
        return eligible

    def _cosines(self, vector: bytes | None, eligible: Bools) -> Floats | None:
        """Return the cosines, right for who is eligible and anything for the rest; None without vectors."""
        if vector is None or not self.embedded.any():
            return None
        query = np.frombuffer(vector, np.float32)
        if len(query) != self.matrix.shape[1]:
            raise WrongModel(f"a query of {len(query)} dimensions, memories of {self.matrix.shape[1]}")
        few = np.flatnonzero(eligible)
        if len(few) * _FEW > len(eligible):
            cosines: Floats = self.matrix @ query
            return cosines
        cosines = np.zeros(len(eligible), np.float32)
        cosines[few] = self.matrix[few] @ query
        return cosines

    def _bm25(self, terms: Sequence[str], eligible: Bools) -> Floats:
        scores = np.zeros(len(self.seqs), np.float32)
        total = max(self.total, int(np.count_nonzero(eligible)))
        if not total or not terms:
            return scores
        numbers = np.array([*{term_hash(term) for term in terms}], np.int64)
        which, docs, counts = self.postings.of(numbers)
        if len(self.tail.terms):
            others, later, more = self.tail.of(numbers)
            which, docs, counts = np.append(which, others), np.append(docs, later), np.append(counts, more)
        wanted = eligible[docs]
        which, docs, tf = which[wanted], docs[wanted], counts[wanted].astype(np.float32)
        if not len(docs):
            return scores
        holding = np.bincount(which)  # of each term: how many eligible memories hold it
        idf = np.log1p((total - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        mean = max(float(self.lengths[eligible].mean()), 1.0)
        norm = _K1 * (1 - _B) + (_K1 * _B / mean) * self.lengths[docs]
        weights = idf[which] * (_K1 + 1) * tf / (tf + norm)
        return np.bincount(docs, weights=weights, minlength=len(scores)).astype(np.float32)

    # ------------------------------------------------------------ change
    def changed(self, rows: Sequence[Row], stamp: Stamp) -> "UserIndex | None":
        """Return the next snapshot, with these rows as they are now. None: better read everything again."""
        if len(rows) > 256 or _dimension(rows) not in (0, self.matrix.shape[1]):
            return None
        seqs, expires, current = self.seqs.copy(), self.expires.copy(), self.current.copy()
        new = []
        for row in rows:
            at = np.flatnonzero(seqs == row.seq)
            if len(at) and not row.rewritten:
                expires[at], current[at] = math.inf if row.expires_at is None else row.expires_at, row.current
                continue
            seqs[at], current[at] = _REPLACED, False
            if row.current:
                new.append(row)
        if 2 * np.count_nonzero(current) < len(current):
            return None
        known = replace(self, stamp=stamp, seqs=seqs, expires=expires, current=current)
        return known._appended(new) if new else known

    def _appended(self, rows: Sequence[Row]) -> "UserIndex":
        added = build(rows, self.stamp, known=self, first=len(self.seqs))
        tail, postings = self.tail.merged(added.postings), self.postings
        if len(tail.terms) * _TAIL_SHARE > len(postings.terms):
            postings, tail = postings.merged(tail), NO_POSTINGS
        buffer, size = self.buffer, len(self.seqs) + len(rows)
        if size > len(buffer):
            # With room for some rows more: the system maps them only when they are written.
            buffer = np.zeros((size + size // 4 + 8, self.matrix.shape[1]), np.float32)
            buffer[: len(self.seqs)] = self.matrix
        buffer[len(self.seqs) : size] = added.matrix
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(added, name)]) for name in _COLUMNS
        }
        return replace(added, matrix=buffer[:size], buffer=buffer, postings=postings, tail=tail, **columns)


def build(
    rows: Sequence[Row], stamp: Stamp, *, known: UserIndex | None = None, first: int = 0, total: int = 0
) -> UserIndex:
    """Index the rows at positions first, first + 1, …, with the names of `known` and new ones after them.

    Raises DamagedRow for terms that are not numbers."""
    seqs, types, projects, expires, current, vectors, terms, _ = zip(*rows, strict=True) if rows else [()] * 8
    type_names = tuple(dict.fromkeys((*(known.type_names if known else ()), *types)))
    project_names = tuple(dict.fromkeys((*(known.project_names if known else ()), *projects)))
    dimension = known.matrix.shape[1] if known else _dimension(rows)
    # Rows of another dimension cannot come through `apply`; one that did would be found by its words.
    embedded = [vector is not None and len(vector) == 4 * dimension for vector in vectors]
    none = bytes(4 * dimension)
    whole = b"".join([vector if has else none for vector, has in zip(vectors, embedded, strict=True)])
    matrix = np.frombuffer(whole, np.float32).reshape(len(rows), dimension)
    with legible():
        held, sizes = b"".join(terms), [len(text) for text in terms]
        if any(size % _TERM_BYTES for size in sizes):
            raise ValueError
    lengths = np.array(sizes, np.int32) // _TERM_BYTES
    type_at = {name: at for at, name in enumerate(type_names)}
    project_at = {name: at for at, name in enumerate(project_names)}
    return UserIndex(
        stamp=stamp,
        seqs=np.array(seqs, np.int64),
        types=np.array([type_at[name] for name in types], np.int16),
        projects=np.array([project_at[name] for name in projects], np.int32),
        expires=np.array([math.inf if at is None else at for at in expires], np.float64),
        current=np.array(current, np.bool_),
        lengths=lengths,
        embedded=np.array(embedded, np.bool_),
        matrix=matrix,
        buffer=matrix,  # room is made with the first memory that is added: most users are only read
        postings=Postings.build(np.frombuffer(held, np.int64), lengths, first=first),
        tail=NO_POSTINGS,
        type_names=type_names,
        project_names=project_names,
        total=total,
    )


def _top(values: Floats, positions: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Return those of the positions with the highest values; among equals the latest memory wins."""
    if len(positions) <= limit:
        return positions
    if limit <= 0:
        return positions[:0]
    ours = values[positions]
    floor = np.partition(ours, len(ours) - limit)[len(ours) - limit]
    above, level = positions[ours > floor], positions[ours == floor]
    return np.concatenate([above, level[len(level) - (limit - len(above)) :]])


def _dimension(rows: Sequence[Row]) -> int:
    return next((len(row.vector) // 4 for row in rows if row.vector is not None), 0)


# ---------------------------------------------------------------- the cache of indexes
REMEMBERED_VERSIONS = 1000  # an index older than that is read again
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
        self.by_user = TTLCache[int, tuple[int, UserIndex]](  # with the epoch of the database
            limit_bytes, size_of=lambda entry: min(entry[1].nbytes, limit_bytes)
        )
        # One user's index is read by one thread at a time, without making other users wait.
        self._loading = [threading.Lock() for _ in range(_STRIPES)]
        self.clear, self.pop = self.by_user.clear, self.by_user.pop

    def __contains__(self, owner: int) -> bool:
        return owner in self.by_user

    def current(self, tx: Connection, owner: Owner, epoch: int, generations: Sequence[int]) -> UserIndex:
        """Return the user's index as of the transaction, or newer; `epoch` is that of the database. Vectors
        of other `generations` than these are left out."""
        with self._loading[owner.id % _STRIPES]:
            made_in, cached = self.by_user.get(owner.id) or (epoch, None)
            new, index = owner.stamp, None
            if cached is not None and made_in == epoch:
                old = cached.stamp
                # Another thread may be ahead of this transaction; what it saw forgotten must not come back.
                if (old.generation, old.version) >= (new.generation, new.version):
                    return cached
                # All is read again after a forget, since a deleted row cannot be seen to change.
                if old.generation == new.generation and new.version - old.version <= REMEMBERED_VERSIONS:
                    changed = _read(tx, _CHANGED, owner.id, old.version, generations)
                    evicted = column(tx, _EVICTED, (owner.id, old.version))
                    changed += [Row(seq, "", None, None, False, vector=None, terms=b"") for seq in evicted]
                    index = cached.changed(changed, new)
            index = index or build(_read(tx, _CURRENT, owner.id, new.version, generations), new)
            self.by_user.put(owner.id, (epoch, index))
            return index


def _read(tx: Connection, query: str, owner: int, version: int, generations: Sequence[int]) -> list[Row]:
    asked = {"owner": owner, "version": version, "generations": rows.as_json(generations)}
    return [Row._make(row) for row in tx.execute(query.format(hidden=hidden(tx)), asked)]


def faded_index(tx: Connection, owner: Owner, generations: Sequence[int]) -> UserIndex:
    """Return an index of the user's memories that were archived for lack of use."""
    return build(_read(tx, _FADED, owner.id, owner.stamp.version, generations)[::-1], owner.stamp)


# ---------------------------------------------------------------- the cache of rows
_STATES = f"""
    SELECT seq, changed, access_count, last_accessed, weight, uses, used_at
    FROM memories WHERE seq IN {rows.seqs_in("?")}"""
_USED = ("access_count", "last_accessed", "weight", "uses", "used_at")  # change without `changed`
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
        self.by_user = TTLCache[int, _UserRows](limit_bytes, size_of=lambda user: user.nbytes)
        self.pop = self.by_user.pop

    def memories(self, tx: Connection, owner: Owner, epoch: int, seqs: Sequence[int]) -> Mapping[int, Memory]:
        """Return those of the user's memories under these numbers that the transaction sees. Access counts
        may be a minute old."""
        validity, version, now = (epoch, owner.stamp.generation), owner.stamp.version, self._steady()
        cached = self.by_user.get(owner.id)
        if cached and cached.validity != validity:
            cached = None
        if cached and cached.version == version and cached.seqs == seqs and now - cached.at < _FRESH_S:
            return cached.found
        known = cached.memories if cached else {}
        states = tx.execute(_STATES, (rows.as_json(seqs),)).fetchall() if known else ()
        found, renewed = dict[int, Memory](), dict[int, _Row]()
        unknown = [] if known else list(seqs)
        for seq, changed, *used in states:
            row = known.get(seq)
            if row is None or row[0] != changed:
                unknown.append(seq)
                continue
            memory = row[1]
            if [getattr(memory, name) for name in _USED] != used:
                memory = replace(memory, **dict(zip(_USED, used, strict=True)))
                renewed[seq] = (changed, memory)  # making one again costs as much as ranking it
            found[seq] = memory
        if unknown:
            read = rows.memories_by_seq(tx, unknown)
            renewed |= read
            found |= {seq: memory for seq, (_, memory) in read.items()}
        size = sum(_size(memory) for _, memory in renewed.values())
        size -= sum(_size(known[seq][1]) for seq in renewed if seq in known)
        nbytes = size + (cached.nbytes if cached else 0)
        user = _UserRows(validity, {**known, **renewed}, nbytes, seqs, version, now, found)
        self.by_user.put(owner.id, user)
        return found


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
                asked = (AT_MOST, self._few)
                latest = await self._database.read(lambda tx: tx.execute(_LATEST, asked).fetchall())
                self._waiting = deque(Scope(*name) for name in latest)
            end = self._steady() + STEP_S
            while self._waiting and self._has_room() and self._steady() < end:
                await self._database.read(partial(self._one, self._waiting.popleft()))
        except StoreUnavailable:
            self._waiting = deque()

    def _one(self, scope: Scope, tx: Connection) -> None:
        with suppress(DamagedRow):  # a request for it will report it
            self._load(tx, scope)
