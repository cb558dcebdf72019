"""Write and erase a user's memory rows together with everything that has to agree with them: counters,
lists, words, uniqueness of what is said, and what the index has to hold. Every such change goes through
`Rows`.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from proxy.domain.core import Evidence, Memory, MemoryFilter, Scope, with_children
from proxy.storage.redis import anchors, lapsing, order, weakest, words
from proxy.storage.redis.indexing import OWN_S
from proxy.storage.redis.layout import EvidenceRow, MemoryRow, said_key, storable, summaries_key, summary_key
from proxy.storage.redis.unit import Unit
from proxy.text import terms

_AT_ONCE = 1000  # memories that are read together to be erased


# ---------------------------------------------------------------- values
def row_of(memory: Memory, *, seq: int, version: int, vector: int | None, generation: int) -> MemoryRow:
    """Return the row of a new memory."""
    m, content = memory, storable(memory.content)
    return MemoryRow(
        seq=seq, project=m.scope.project and storable(m.scope.project), type=storable(m.type),
        content=content, source=m.source, created_at=m.created_at, updated_at=m.updated_at,
        valid_from=m.valid_from, valid_to=m.valid_to,
        superseded_by=m.superseded_by and storable(m.superseded_by), expires_at=m.expires_at,
        archived=m.archived, importance=m.importance, weight=m.weight, confidence=m.confidence,
        tags=[storable(tag) for tag in m.tags], evidence=with_evidence([], m.evidence),
        access_count=m.access_count, last_accessed=m.last_accessed, terms=terms_of(content),
        written=version, vector=vector, generation=generation,
    )  # fmt: skip


def memory_of(scope: Scope, memory_id: str, row: MemoryRow) -> Memory:
    """Return the memory of the scope's user that the row holds."""
    return Memory(
        id=memory_id, scope=Scope(scope.tenant, scope.user, row["project"]), type=row["type"],
        content=row["content"], source=row["source"], created_at=row["created_at"],
        updated_at=row["updated_at"], valid_from=row["valid_from"], valid_to=row["valid_to"],
        superseded_by=row["superseded_by"], expires_at=row["expires_at"], archived=row["archived"],
        importance=row["importance"], weight=row["weight"], confidence=row["confidence"],
        tags=tuple(row["tags"]),
        evidence=tuple(Evidence(e["session_id"], e["exchange_id"], e["span"]) for e in row["evidence"]),
        access_count=row["access_count"], last_accessed=row["last_accessed"],
    )  # fmt: skip


def with_evidence(known: Sequence[EvidenceRow], more: Iterable[Evidence]) -> list[EvidenceRow]:
    """Return where a memory comes from; what is known already is not doubled."""
    found = list(known)
    for each in more:
        row = EvidenceRow(
            session_id=storable(each.session_id),
            exchange_id=storable(each.exchange_id),
            span=storable(each.span),
        )
        if row not in found:
            found.append(row)
    return found


def terms_of(content: str) -> str:
    return " ".join(map(storable, terms.terms(content)))


def size_of(row: MemoryRow) -> int:
    """Return what the memory counts towards the quota."""
    return len(row["content"].encode())


def key_of(row: MemoryRow) -> str:
    return said_key(row["project"], row["type"], row["content"])


def matches(row: MemoryRow, where: MemoryFilter, *, inactive: bool) -> bool:
    """Return whether the filter, its tenant and user aside, lets the memory through; `inactive` admits the
    past too."""
    if where.project is not None and row["project"] != storable(where.project):
        return False
    if where.type is not None and row["type"] not in with_children((where.type,)) | {where.type}:
        return False
    if not inactive:
        if row["superseded_by"] is not None or words.has_expired(row, where.now):
            return False
        if row["archived"] and not where.include_archived:
            return False
    return where.text is None or terms.fold(storable(where.text)) in terms.fold(row["content"])


async def touch(unit: Unit, ids: Sequence[str], at: float) -> None:
    """Count an access of those of the user's memories that still exist, as often as each id is given. No
    search finds anything else."""
    table, times = unit.table("memories"), Counter(map(storable, ids))
    found: dict[str, MemoryRow] = await table.many(times)
    for memory_id, row in found.items():
        count = row["access_count"] + times[memory_id]
        used: MemoryRow = {**row, "access_count": count, "last_accessed": at}
        table.put(memory_id, used)
        weakest.follow(unit, memory_id, row, used)


# ---------------------------------------------------------------- the user's own
class Rows:
    """The memories of a unit's user. Rows are values: a changed one is put as a new one."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.changed: set[str] = set()  # what may not be any more as it is committed
        self._due = time.time() + OWN_S  # until then it is the business of who wrote it
        self._ids = unit.redis.key(f"ids:{storable(unit.scope.tenant)}")
        self._memories = unit.table("memories")
        self._said = unit.table("said")
        self._successions, self._cited = unit.table("successions"), unit.table("cited")
        self._unindexed, self._obsolete = unit.table("unindexed"), unit.table("obsolete")
        self._vectors = unit.blobs("vectors")

    async def fetch(self, ids: Iterable[str], new: Iterable[Memory] = ()) -> None:
        """Read what changing these memories and adding new ones needs, in a few round trips."""
        unit, new, ids = self.unit, list(new), list(ids)
        keys = [said_key(m.scope.project and storable(m.scope.project), m.type, m.content) for m in new]
        tables = (self._memories, ids), (self._said, keys), (self._successions, ids)
        await unit.fetch(*tables, (unit.table("events"), ids), (self._unindexed, ids))
        rows: Mapping[str, MemoryRow] = await self._memories.many(ids)
        said = [said_key(row["project"], row["type"], row["content"]) for row in rows.values()]
        wanted = {term for row in rows.values() for term in row["terms"].split()}
        wanted |= {term for memory in new for term in terms_of(memory.content).split()}
        seqs = {order.name_of(seq) for seq in (unit.number("last") + 1, *(r["seq"] for r in rows.values()))}
        sources = {source for row in rows.values() for source in _sources(row)}
        sources |= {storable(e.exchange_id) for memory in new for e in memory.evidence}
        await unit.fetch(
            (self._said, said),
            (unit.table("groups"), None),
            (unit.table("words"), wanted),
            (unit.table("order"), seqs),
            (unit.table("lapsing"), (lapsing.DAYS,)),
            (self._cited, sources),
        )

    async def get(self, memory_id: str) -> MemoryRow | None:
        row: MemoryRow | None = await self._memories.get(memory_id)
        return row

    async def many(self, ids: Iterable[str]) -> dict[str, MemoryRow]:
        """Return those of the memories that there are."""
        return await self._memories.many(ids)

    async def twin(self, key: str) -> str | None:
        """Return the id of the memory that says this and is neither superseded nor archived."""
        found: str | None = await self._said.get(key)
        return found

    async def superseded_by(self, memory_id: str) -> dict[str, MemoryRow]:
        """Return the memories whose `superseded_by` it is, also if it is no longer there itself."""
        found: dict[str, MemoryRow] = await self._memories.many(await self._successions.get(memory_id) or ())
        return found

    async def put(self, memory_id: str, row: MemoryRow) -> None:
        """Write a memory."""
        old = await self.get(memory_id)
        self._memories.put(memory_id, row)
        await self._follow(memory_id, old, row)
        if old is None:
            self.unit.share("HSETNX", self._ids, memory_id, self.unit.uid)
            await order.add(self.unit, row["seq"], memory_id)
        if row["superseded_by"] is not None:
            if old is not None and old["superseded_by"] is None:
                self._unlist(memory_id)
        elif old is None or _listed(old) != _listed(row):
            self._list(memory_id)

    async def erase(self, ids: Collection[str]) -> None:
        """Erase memories with their events, what only they kept alive, and their places in the index."""
        names = list(dict.fromkeys(ids))
        for start in range(0, len(names), _AT_ONCE):
            await self._erase(names[start : start + _AT_ONCE])

    async def _erase(self, ids: Sequence[str]) -> None:
        await self.fetch(ids)
        rows = await self.many(ids)
        if not rows:
            return
        sources = {e["exchange_id"] for row in rows.values() for e in row["evidence"]}
        await self.unit.fetch((self.unit.table("anchored"), sources))
        for memory_id, row in rows.items():
            self._memories.drop(memory_id)
            self.unit.table("events").drop(memory_id)
            await self._follow(memory_id, row, None)
            await order.remove(self.unit, row["seq"])
            self._unlist(memory_id)
        holders = await self.unit.redis.call("HMGET", self._ids, *rows)
        ours = [each for each, held in zip(rows, holders, strict=True) if held == self.unit.uid.encode()]
        if ours:
            self.unit.share("HDEL", self._ids, *ours)
        await anchors.sources_gone(self.unit, sources)

    def add_vector(self, memory_id: str, vector: bytes | None, generation: int) -> None:
        """Keep the vector until the index has it; None: there is none."""
        if vector is None:
            self._vectors.drop(memory_id)
        else:
            self._vectors.put(memory_id, vector)
            self.unit.share("SADD", self.unit.redis.key("embedded"), generation)

    async def claim(self, memory_id: str) -> bool:
        """Return whether the id is the user's own among the tenant's, and from now on nobody else's."""
        asked = ("HSETNX", self._ids, memory_id, self.unit.uid), ("HGET", self._ids, memory_id)
        _, holder = await self.unit.redis.pipeline(asked)
        return bool(holder == self.unit.uid.encode())

    async def record(self, memory_id: str, at: float, action: str, by: str, content: str) -> None:
        """Add a line to the memory's history."""
        table = self.unit.table("events")
        event = {"seq": self.unit.next(), "at": at, "action": action, "by": storable(by)}
        event["content"] = storable(content)
        table.put(memory_id, [*(await table.get(memory_id) or ()), event])

    async def move_events(self, old_id: str, new_id: str) -> None:
        """Give the history of one memory to another one."""
        table = self.unit.table("events")
        both = [*(await table.get(old_id) or ()), *(await table.get(new_id) or ())]
        table.put(new_id, sorted(both, key=lambda event: int(event["seq"])))
        table.drop(old_id)

    # ------------------------------------------------------------ what has to agree
    async def _follow(self, memory_id: str, old: MemoryRow | None, new: MemoryRow | None) -> None:
        self.changed.add(memory_id)
        self._count(old, -1)
        self._count(new, +1)
        weakest.follow(self.unit, memory_id, old, new)
        await self._link(memory_id, old and old["superseded_by"], new and new["superseded_by"])
        await self._cite(memory_id, _sources(old), _sources(new))
        self._expire(memory_id, old and old["expires_at"], new and new["expires_at"])
        was, is_ = _counted(old), _counted(new)
        if was is not None and is_ is not None and _read(was) == _read(is_):
            return
        if was is not None:
            await words.count(self.unit, was, -1)
            if await self._said.get(key_of(was)) == memory_id:
                self._said.drop(key_of(was))
            if was["expires_at"] is not None:
                await lapsing.remove(self.unit, memory_id, was["expires_at"])
        if is_ is not None:
            await words.count(self.unit, is_, +1)
            self._said.put(key_of(is_), memory_id)
            if is_["expires_at"] is not None:
                await lapsing.add(self.unit, memory_id, is_["expires_at"])

    def _count(self, row: MemoryRow | None, sign: int) -> None:
        if row is None:
            return
        unit, generation = self.unit, row["generation"]
        counters = {"memories": 1, "content_bytes": size_of(row), f"of:{generation}": 1}
        if row["superseded_by"] is None:
            counters[f"in:{generation}"] = 1
        for name, more in counters.items():
            unit.set_number(name, unit.number(name) + sign * more)

    async def _link(self, memory_id: str, old: str | None, new: str | None) -> None:
        if old == new:
            return
        if old is not None:
            left = [each for each in await self._successions.get(old) or () if each != memory_id]
            if left:
                self._successions.put(old, left)
            else:
                self._successions.drop(old)
        if new is not None:
            self._successions.put(new, [*(await self._successions.get(new) or ()), memory_id])

    async def _cite(self, memory_id: str, old: set[str], new: set[str]) -> None:
        """Let exchanges lead to the memories that came from them."""
        for source in sorted(old ^ new):
            ids = [each for each in await self._cited.get(source) or () if each != memory_id]
            if source in new:
                ids.append(memory_id)
            if ids:
                self._cited.put(source, ids)
            else:
                self._cited.drop(source)

    def _expire(self, memory_id: str, old: float | None, new: float | None) -> None:
        expiring, member = self.unit.redis.key("expiring"), f"{self.unit.uid} {memory_id}"
        if new is not None and new != old:
            self.unit.share("ZADD", expiring, new, member)
        elif new is None and old is not None:
            self.unit.share("ZREM", expiring, member)

    # ------------------------------------------------------------ the index
    def _list(self, memory_id: str) -> None:
        """Have the index hold what the row says."""
        self._unindexed.put(memory_id, self._due)
        self._obsolete.drop(memory_id)
        self._remind()

    def _unlist(self, memory_id: str) -> None:
        """Have the index let go of the memory."""
        self._unindexed.drop(memory_id)
        self._vectors.drop(memory_id)
        self._obsolete.put(memory_id, {"due": self._due, "again": False})
        self._remind()

    def _remind(self) -> None:
        self.unit.share("ZADD", self.unit.redis.key("unindexed"), "LT", self._due, self.unit.uid)


def _read(row: MemoryRow) -> tuple[object, ...]:
    """Return what the counts and lists of current memories depend on."""
    return row["project"], row["type"], row["content"], row["terms"], row["expires_at"]


def _listed(row: MemoryRow) -> tuple[object, ...]:
    """Return what the index depends on."""
    return row["written"], row["archived"], row["superseded_by"]


def _sources(row: MemoryRow | None) -> set[str]:
    """Return what a memory came from: exchanges, and the session whose summary it is."""
    if row is None:
        return set()
    found = {e["exchange_id"] for e in row["evidence"]}
    if row["source"] == "summary":
        found |= {summary_key(row["project"], e["session_id"]) for e in row["evidence"]}
        found |= {summaries_key(e["session_id"]) for e in row["evidence"]}
    return found


def _counted(row: MemoryRow | None) -> MemoryRow | None:
    return row if row is not None and words.is_counted(row) else None
