"""Count and sum up what either side of a migration holds: nothing here knows how it was moved."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from proxy.domain.documents import path_of
from proxy.domain.errors import StoreUnavailable
from proxy.storage.generations import NO_MODEL
from proxy.storage.migrate.source import Source, User
from proxy.storage.redis import order
from proxy.storage.redis.layout import (
    ConversationRow,
    ExchangeRow,
    MemoryRow,
    PassageRow,
    SessionRow,
    StateRow,
    storable,
)
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.vector_index import IndexUnavailable, VectorIndex

COUNTED = (
    "memories", "events", "evidence", "vectors", "sessions", "exchanges", "jobs", "anchors", "states",
    "marks", "quarantine", "responses", "stored_responses", "conversations", "items", "documents",
    "passages", "passage_vectors", "receipts",
)  # fmt: skip
DIGESTED = ("memories", "exchanges", "bodies", "passages")
_AT_ONCE = 1000
_BODIES_AT_ONCE = 50
_MASK = 2**64 - 1


@dataclass(slots=True)
class Tally:
    """Rows by table, and digests of what they say. Digests are sums: the order in which they came is all one,
    and those of users add up."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    digests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DIGESTED, 0))

    def see(self, what: str, *parts: str | bytes | float | None) -> None:
        """Add a row's content to the digest."""
        digest = hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=8).digest()
        self.digests[what] = (self.digests[what] + int.from_bytes(digest)) & _MASK

    def add(self, other: "Tally") -> None:
        for name, count in other.counts.items():
            self.counts[name] += count
        for name, digest in other.digests.items():
            self.digests[name] = (self.digests[name] + digest) & _MASK

    def as_row(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {"counts": dict(self.counts), "digests": {n: f"{d:016x}" for n, d in self.digests.items()}}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Tally":
        return cls(dict(row["counts"]), {name: int(digest, 16) for name, digest in row["digests"].items()})


def of_source(source: Source, user: User, generations: Mapping[int, int]) -> Tally:
    """Count what the directory has of the user, as far as it is to be moved."""
    tally = Tally({name: user.counts.get(name, 0) for name in COUNTED})
    number = user.number
    for row in source.columns("memories", number, "id", "content", "created_at", "superseded_by"):
        tally.see("memories", row["id"], row["content"], row["created_at"], row["superseded_by"])
    for row in source.columns("exchanges", number, "id", "said", "answer"):
        tally.see("exchanges", row["id"], row["said"], row["answer"])
    for row in source.of("stored_responses", number, "x.response IS NOT NULL"):
        tally.see("bodies", row["id"], row["response"], row["input_items"])
    for row in source.of("items", number):
        tally.see("bodies", row["id"], row["item"])
    for row in source.of("passages", number):
        titles = map(storable, json.loads(row["headings"]))  # orjson takes no lone surrogates
        tally.see("passages", path_of([*titles]), row["tile"])
    tally.counts["vectors"] = source.vectors(number, list(generations))
    tally.counts["passage_vectors"] = source.passage_vectors(number, list(generations))
    return tally


async def of_target(units: Units, index: VectorIndex, user: User) -> Tally:
    """Count what the target has of the user. Raises StoreUnavailable where the index cannot be asked."""
    tally = Tally()
    await units.glance(user.scope, lambda unit: _count_tables(unit, tally))
    async for memories in order.walk(units, user.scope, oldest_first=True):
        await _see_memories(units, index, user, memories, tally)
    await units.glance(user.scope, lambda unit: _see_conversations(unit, tally))
    for ours, seqs in await units.glance(user.scope, _seqs):
        await units.glance(user.scope, partial(_see_exchanges, ours=ours, seqs=seqs, tally=tally))
    for ids in await units.glance(user.scope, _stored):
        await units.glance(user.scope, partial(_see_bodies, ids=ids, tally=tally))
    for document_id in await units.glance(user.scope, _documents):
        await units.glance(user.scope, partial(_see_passages, document_id=document_id, tally=tally))
    return tally


async def _count_tables(unit: Unit, tally: Tally) -> None:
    names = ("sessions", "jobs", "dead", "states", "held", "made", "stored", "conversations", "receipts")
    tables = {name: unit.table(name) for name in names}
    await unit.fetch(*((table, None) for table in tables.values()))
    found = {name: await table.all() for name, table in tables.items()}
    states: dict[str, StateRow] = found["states"]
    tally.counts |= {
        "sessions": len(found["sessions"]), "jobs": len(found["jobs"]) + len(found["dead"]),
        "states": len(states), "marks": sum(len(row["marks"]) for row in states.values()),
        "quarantine": len(found["held"]), "responses": len(found["made"]),
        "stored_responses": len(found["stored"]), "conversations": len(found["conversations"]),
        "receipts": len(found["receipts"]),
    }  # fmt: skip
    anchors = [unit.table(f"anchors:{ours}") for ours in found["sessions"]]
    await unit.fetch(*((table, None) for table in anchors))
    tally.counts["anchors"] = sum([len(await table.all()) for table in anchors])


async def _see_memories(
    units: Units, index: VectorIndex, user: User, rows: Mapping[str, MemoryRow], tally: Tally
) -> None:
    events = await units.glance(user.scope, lambda unit: unit.table("events").many(rows))
    tally.counts["memories"] += len(rows)
    tally.counts["events"] += sum(len(each) for each in events.values())
    tally.counts["evidence"] += sum(len(row["evidence"]) for row in rows.values())
    with_vector: dict[int, list[str]] = {}
    for id_, row in rows.items():
        tally.see("memories", id_, row["content"], row["created_at"], row["superseded_by"])
        if row["vector"] is not None and row["superseded_by"] is None and row["generation"] != NO_MODEL:
            with_vector.setdefault(row["generation"], []).append(id_)
    for generation, ids in with_vector.items():
        tally.counts["vectors"] += await _indexed(units, index, user, generation, ids)


async def _indexed(units: Units, index: VectorIndex, user: User, generation: int, ids: list[str]) -> int:
    """Return how many of the vectors are where searches find them."""
    owner = await units.glance(user.scope, _uid)
    try:
        return len(await index.vectors(generation, owner, ids))
    except IndexUnavailable as error:
        raise StoreUnavailable(f"the index of vectors cannot be asked: {error}") from error


async def _uid(unit: Unit) -> str:
    return unit.uid


async def _seqs(unit: Unit) -> list[tuple[str, list[int]]]:
    """Return the exchanges of each session, some at a time."""
    sessions: dict[str, SessionRow] = await unit.table("sessions").all()
    return [
        (ours, row["seqs"][start : start + _AT_ONCE])
        for ours, row in sessions.items()
        for start in range(0, len(row["seqs"]), _AT_ONCE)
    ]


async def _see_exchanges(unit: Unit, *, ours: str, seqs: Iterable[int], tally: Tally) -> None:
    rows: dict[str, ExchangeRow] = await unit.table(f"exchanges:{ours}").many(map(str, seqs))
    tally.counts["exchanges"] += len(rows)
    for row in rows.values():
        tally.see("exchanges", row["id"], row["said"], row["answer"])


async def _stored(unit: Unit) -> list[list[str]]:
    """Return the ids of stored responses, some at a time: they may be large."""
    ids = list(await unit.table("stored").all())
    return [ids[start : start + _BODIES_AT_ONCE] for start in range(0, len(ids), _BODIES_AT_ONCE)]


async def _see_bodies(unit: Unit, *, ids: Sequence[str], tally: Tally) -> None:
    bodies = await unit.blobs("bodies").many(name for id_ in ids for name in (f"{id_} r", f"{id_} i"))
    for id_ in ids:
        if f"{id_} r" in bodies:
            tally.see("bodies", id_, bodies[f"{id_} r"], bodies[f"{id_} i"])


async def _see_conversations(unit: Unit, tally: Tally) -> None:
    conversations: dict[str, ConversationRow] = await unit.table("conversations").all()
    for id_, conversation in conversations.items():
        items = await unit.table(f"items:{id_}").many(conversation["items"])
        tally.counts["items"] += len(items)
        for name, item in items.items():
            tally.see("bodies", name, item["item"].encode())


async def _documents(unit: Unit) -> list[str]:
    return list(await unit.table("documents").all())


async def _see_passages(unit: Unit, *, document_id: str, tally: Tally) -> None:
    passages, vectors = unit.table(f"passages:{document_id}"), unit.blobs(f"passage-vectors:{document_id}")
    await unit.fetch((passages, None), (vectors, None))
    rows: dict[str, PassageRow] = await passages.all()
    tally.counts["documents"] += 1
    tally.counts["passages"] += len(rows)
    tally.counts["passage_vectors"] += len(await vectors.all())
    for row in rows.values():
        tally.see("passages", path_of(row["headings"]), row["tile"])
