"""A replica's cache of users' documents: each user's passages as arrays, at one version of them.

A document that has not changed is not read again for the next state, and of one that was given vectors only
these are.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import orjson

from proxy.domain.documents import Look
from proxy.storage.exact.library import FoundPassage, Key, LibraryIndex, PassageRow, build_library
from proxy.storage.redis import library
from proxy.storage.redis.connection import Redis, pairs
from proxy.storage.redis.layout import DocumentRow
from proxy.storage.redis.unit import key_of

_AT_ONCE = 2000  # passages: so many are read in one round trip, and searched without a thread
_ROW_BYTES = 200  # that a row takes beside its terms and its vector, about


@dataclass(frozen=True, slots=True)
class State:
    """Whose library it is and as of when, by what the user's numbers say."""

    uid: str
    home: str
    version: int  # counts up with every change of the user's documents
    generations: tuple[int, ...]  # of the vectors that may be compared


@dataclass(frozen=True, slots=True)
class _Volume:
    """A document as it was read."""

    row: DocumentRow
    passages: tuple[PassageRow, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """All documents of one user."""

    state: State
    index: LibraryIndex
    volumes: Mapping[str, _Volume]  # by document id, ordered by their passages' numbers
    firsts: tuple[int, ...]  # the first number of each
    nbytes: int  # of memory held, nearly

    @classmethod
    def of(cls, state: State, index: LibraryIndex, volumes: Mapping[str, _Volume]) -> "Library":
        """Return the library of these documents."""
        rows = (row for volume in volumes.values() for row in volume.passages)
        nbytes = sum(_ROW_BYTES + len(row.terms) + len(row.vector or b"") for row in rows)
        firsts = tuple(volume.row["first"] for volume in volumes.values())
        return cls(state, index, volumes, firsts, index.nbytes + nbytes)

    async def search(self, project: str | None, look: Look) -> dict[str, list[FoundPassage]]:
        """Return the passages found, by document id."""
        if len(self.index.section_of) > _AT_ONCE:
            hits = await asyncio.to_thread(self.index.search, project, look)
        else:
            hits = self.index.search(project, look)
        ids, found = tuple(self.volumes), dict[str, list[FoundPassage]]()
        for hit in hits:
            found.setdefault(ids[bisect_right(self.firsts, hit.seq) - 1], []).append(hit)
        return found


class Libraries:
    """The libraries that were searched last, within a bound in bytes."""

    def __init__(self, redis: Redis, limit_bytes: int) -> None:
        self._redis, self._limit, self._bytes = redis, limit_bytes, 0
        self._held: OrderedDict[str, Library] = OrderedDict()
        self._reading: dict[str, asyncio.Task[Library]] = {}
        self._tasks: set[asyncio.Task[Library]] = set()

    async def current(self, state: State) -> Library:
        """Return the library as of this state or a later one.

        Who asks may give up before a large one is read. It is read on: the next who asks will find it."""
        while True:
            held = self._held.get(state.uid)
            # What is held of a later state may be of one that Redis lost in a failover.
            if held is not None and held.state == state:
                self._held.move_to_end(state.uid)
                return held
            reading = self._reading.get(state.uid)
            if reading is None:
                reading = self._begin(state, held)
            read = await asyncio.shield(reading)
            if _is_as_good(read.state, state):
                return read

    def let_go(self, uid: str) -> None:
        """Drop what is held of a user, and do not keep what is being read."""
        self._reading.pop(uid, None)
        self._remove(uid)

    async def close(self) -> None:
        """End what is being read."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, state: State, held: Library | None) -> asyncio.Task[Library]:
        reading = asyncio.create_task(self._read(state, held))
        self._reading[state.uid] = reading
        self._tasks.add(reading)
        reading.add_done_callback(lambda done: self._is_read(state.uid, done))
        return reading

    def _is_read(self, uid: str, done: "asyncio.Task[Library]") -> None:
        self._tasks.discard(done)
        failed = done.cancelled() or done.exception() is not None  # whoever waits for it is told
        if self._reading.get(uid) is not done:
            return  # it was let go of
        del self._reading[uid]
        if not failed:
            self._keep(done.result())

    def _keep(self, read: Library) -> None:
        """Hold the library; the least recently used go, but never the one used last."""
        self._remove(read.state.uid)
        self._held[read.state.uid] = read
        self._bytes += read.nbytes
        while self._bytes > self._limit and len(self._held) > 1:
            self._remove(next(iter(self._held)))

    def _remove(self, uid: str) -> None:
        if (held := self._held.pop(uid, None)) is not None:
            self._bytes -= held.nbytes

    # ------------------------------------------------------------ reading
    async def _read(self, state: State, before: Library | None) -> Library:
        """Return the library as it is now. Its version is what was asked for: what is later is read again."""
        if before is not None and before.state.generations != state.generations:
            before = None
        stored = await self._redis.hash(key_of(self._redis, state.home, "documents"))
        rows: dict[str, DocumentRow] = {id_: orjson.loads(row) for id_, row in stored.items()}
        volumes = await self._volumes(state, rows, before.volumes if before else {})
        if before is not None and volumes == before.volumes:
            return replace(before, state=state)
        passages = [passage for volume in volumes.values() for passage in volume.passages]
        key = Key(0, state.version, state.generations)
        index = await asyncio.to_thread(build_library, key, passages)
        return Library.of(state, index, volumes)

    async def _volumes(
        self, state: State, rows: Mapping[str, DocumentRow], before: Mapping[str, _Volume]
    ) -> dict[str, _Volume]:
        """Return all documents in order, those that are known taken from `before`."""
        found: dict[str, _Volume] = {}
        unread: dict[str, DocumentRow] = {}
        for id_, row in rows.items():
            known = before.get(id_)
            if known is None or known.row["first"] != row["first"]:
                unread[id_] = row
            elif known.row == row:
                found[id_] = known
            else:
                found[id_] = await self._with_vectors(state, id_, row, known)
        for portion in _portions(unread):
            found |= await self._whole(state, portion)
        return dict(sorted(found.items(), key=lambda each: each[1].row["first"]))

    async def _whole(self, state: State, rows: Mapping[str, DocumentRow]) -> dict[str, _Volume]:
        tables = [f"passage-{name}:{id_}" for id_ in rows for name in ("terms", "vectors")]
        answers = await self._redis.pipeline([("HGETALL", self._key(state, table)) for table in tables])
        found: dict[str, _Volume] = {}
        for (id_, row), terms, vectors in zip(rows.items(), answers[::2], answers[1::2], strict=True):
            words, made = pairs(terms), pairs(vectors)
            passages = (_passage(row, number, words, made, state) for number in library.numbers_of(row))
            found[id_] = _Volume(row, tuple(passage for passage in passages if passage is not None))
        return found

    async def _with_vectors(self, state: State, id_: str, row: DocumentRow, known: _Volume) -> _Volume:
        """Return the same document with the vectors that it was given since."""
        before = dict(zip(library.numbers_of(row), known.row["generations"], strict=True))
        now = zip(library.numbers_of(row), row["generations"], strict=True)
        names = [str(number) for number, generation in now if generation != before[number]]
        answer = await self._redis.call("HMGET", self._key(state, f"passage-vectors:{id_}"), *names)
        made = {name: vector for name, vector in zip(names, answer, strict=True) if vector is not None}
        passages = (
            replace(p, vector=_comparable(made.get(str(p.seq)), state)) if str(p.seq) in names else p
            for p in known.passages
        )
        return _Volume(row, tuple(passages))

    def _key(self, state: State, table: str) -> str:
        return key_of(self._redis, state.home, table)


def _is_as_good(held: State, asked: State) -> bool:
    return held.version >= asked.version and held.generations == asked.generations


def _passage(
    row: DocumentRow, number: int, words: Mapping[str, bytes], made: Mapping[str, bytes], state: State
) -> PassageRow | None:
    """Return a passage as the index reads it; None if it is gone: the document was replaced just now."""
    if (terms := words.get(str(number))) is None:
        return None
    section, hashes = library.unpacked(terms)
    vector = _comparable(made.get(str(number)), state)
    return PassageRow(number, row["first"], section, row["project"], vector, hashes)


def _comparable(stored: bytes | None, state: State) -> bytes | None:
    """Return the vector, None unless it is of one of the generations."""
    if stored is None:
        return None
    generation, vector = library.unpacked(stored)
    return vector if generation in state.generations else None


def _portions(rows: Mapping[str, DocumentRow]) -> Iterator[dict[str, DocumentRow]]:
    """Yield the documents, as many at a time as may be read together."""
    portion, size = dict[str, DocumentRow](), 0
    for id_, row in _by_size(rows):
        portion[id_] = row
        size += len(row["generations"])
        if size >= _AT_ONCE:
            yield portion
            portion, size = {}, 0
    if portion:
        yield portion


def _by_size(rows: Mapping[str, DocumentRow]) -> Iterable[tuple[str, DocumentRow]]:
    return sorted(rows.items(), key=lambda each: len(each[1]["generations"]))
