"""The pieces in which a user's data is migrated: each writes some rows of the target from some of the
source. Their order is fixed, so that a number of pieces tells how far a move has come.

The user's numbers in the target are dense, and the memories' are the last ones: lists of memories begin
there. Whatever makes replicas act on the user comes with the last piece.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from proxy.domain.core import Memory
from proxy.storage.generations import NO_MODEL
from proxy.storage.in_view import is_not_to_be_read
from proxy.storage.migrate.source import Remembered, Row, Source, User
from proxy.storage.redis import layout, library
from proxy.storage.redis.conversations import USED
from proxy.storage.redis.exchanges import silence
from proxy.storage.redis.layout import (
    AnchorRow,
    ConversationRow,
    DocumentRow,
    EventRow,
    EvidenceRow,
    ExchangeRow,
    HeldRow,
    ItemRow,
    JobRow,
    MemoryRow,
    PassageRow,
    ReceiptRow,
    SessionRow,
    StateRow,
    StoredRow,
    UnreadRow,
)
from proxy.storage.redis.queue import Queue
from proxy.storage.redis.rows import Rows, row_of
from proxy.storage.redis.unit import Unit, uid

_NUMBERED = (
    "events", "sessions", "exchanges", "anchors", "quarantine", "stored_responses", "documents", "passages",
    "receipts", "memories",
)  # fmt: skip
_ROW_BYTES = 300  # what a row takes beside its texts, about


@dataclass(frozen=True, slots=True)
class Into:
    """A unit of the target that pieces are written into."""

    unit: Unit
    rows: Rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows. `put` may be called for several attempts of a unit."""

    put: Callable[[Into], Awaitable[None]]
    size: int  # bytes, about
    memory: Memory | None = None  # that is to be read ahead for


@dataclass(frozen=True, slots=True)
class Target:
    """What the source's numbers that all users share are in the target."""

    jobs_after: int  # is added to a job's
    generations: Mapping[int, int]  # of vectors; those that are not in it are left behind


class Numbers:
    """The user's numbers in the target: by table, in the order of the source's."""

    def __init__(self, source: Source, user: User) -> None:
        self._places: dict[str, tuple[int, array[int]]] = {}
        self.last = 0
        for table in _NUMBERED:
            seqs = array("q", source.numbers(table, user.number))
            self._places[table] = self.last, seqs
            self.last += len(seqs)

    def last_of(self, table: str) -> int:
        """Return the last of a table, 0 where it has none."""
        before, seqs = self._places[table]
        return before + len(seqs) if seqs else 0

    def of(self, table: str, seq: int) -> int:
        before, seqs = self._places[table]
        return before + bisect_left(seqs, seq) + 1


def count_of(user: User) -> int:
    """Return how many pieces the user has."""
    whole = ("memories", "sessions", "exchanges", "quarantine", "stored_responses", "conversations", "items",
             "documents", "passages", "receipts")  # fmt: skip
    return sum(user.counts[table] for table in whole) + 1


class Pieces:
    """The pieces of one user."""

    def __init__(self, source: Source, user: User, target: Target) -> None:
        self._source, self._user, self._target = source, user, target
        self.numbers = Numbers(source, user)
        self._uid = uid(user.scope)
        self._shown = {
            row["id"] for kind in ("memories", "documents") for row in source.columns(kind, user.number, "id")
        }
        self._next: dict[str, list[str]] = {}
        for row in source.columns("stored_responses", user.number, "id", "previous_id"):
            if row["previous_id"] is not None:
                self._next.setdefault(row["previous_id"], []).append(row["id"])

    def __iter__(self) -> Iterator[Piece]:
        for remembered in self._source.memories(self._user.number):
            yield self._memory(remembered)
        for session in self._of("sessions"):
            yield from self._session(session)
        for row in self._of("quarantine"):
            yield self._rows({"held": {row["id"]: self._held(row)}})
        for row in self._of("conversations"):
            yield from self._conversation(row)
        for row in self._of("stored_responses"):
            yield self._stored(row)
        for row in self._of("documents"):
            yield from self._document(row)
        for row in self._of("receipts"):
            yield self._rows({"receipts": {row["id"]: self._receipt(row)}})
        yield self._last()

    def _of(self, table: str, condition: str = "", **named: Any) -> Iterator[Row]:
        return self._source.of(table, self._user.number, condition, **named)

    def _rows(self, tables: Mapping[str, Mapping[str, Any]]) -> Piece:
        """Return what writes these rows."""

        async def put(into: Into) -> None:
            for name, rows in tables.items():
                for key, row in rows.items():
                    into.unit.table(name).put(key, row)

        return Piece(put, len(orjson.dumps(tables)))

    # ------------------------------------------------------------ memories
    def _memory(self, known: Remembered) -> Piece:
        generation = self._generation(known.generation)
        vector = None if generation == NO_MODEL else known.vector
        row: MemoryRow = {
            **row_of(
                known.memory, seq=self.numbers.of("memories", known.seq), version=known.written,
                vector=None if vector is None else known.written, generation=generation,
            ),
            "evidence": [
                EvidenceRow(session_id=e.session_id, exchange_id=e.exchange_id, span=e.span)
                for e in known.memory.evidence
            ],
        }  # fmt: skip
        events = [self._event(event) for event in known.events]

        async def put(into: Into) -> None:
            await into.rows.put(known.memory.id, {**row})
            into.unit.table("events").put(known.memory.id, events)
            if row["superseded_by"] is None:  # what is not, is not looked for
                into.rows.add_vector(known.memory.id, vector, generation)

        size = _ROW_BYTES + 3 * len(row["content"].encode()) + len(vector or b"")
        return Piece(put, size + sum(len(event["content"].encode()) for event in events), known.memory)

    def _event(self, row: Row) -> EventRow:
        return {
            "seq": self.numbers.of("events", row["id"]), "at": row["at"], "action": row["action"],
            "by": row["by"], "content": row["content"],
        }  # fmt: skip

    # ------------------------------------------------------------ sessions
    def _session(self, row: Row) -> Iterator[Piece]:
        """Yield the session with what hangs on it, then its exchanges."""
        ours, mine = layout.sid(row["project"], row["name"]), {"session": row["id"]}
        session: SessionRow = {
            "seq": self.numbers.of("sessions", row["id"]), "project": row["project"], "name": row["name"],
            "last_at": row["last_at"], "seqs": [], "open": [], "ended": bool(row["ended"]),
            "stateful": bool(row["stateful"]), "retold": bool(row["retold"]),
            "unsummarised": row["unsummarised"],
        }  # fmt: skip
        anchors = [self._anchor(anchor) for anchor in self._of("anchors", "x.session = :session", **mine)]
        made = self._of("responses", "x.session = :session", **mine)
        yield self._rows({
            "sessions": {ours: session},
            f"anchors:{ours}": {str(anchor["seq"]): anchor for anchor in anchors},
            "anchored": {anchor["exchange_id"]: ours for anchor in anchors},
            "states": self._states(ours, row["id"]),
            "made": {each["id"]: " ".join(filter(None, (ours, each["exchange"]))) for each in made},
        })  # fmt: skip
        for exchange in self._of("exchanges", "x.session = :session", **mine):
            yield self._exchange(ours, exchange)

    def _anchor(self, row: Row) -> AnchorRow:
        return {
            "seq": self.numbers.of("anchors", row["seq"]), "exchange_id": row["exchange_id"],
            "exchange": self.numbers.of("exchanges", row["exchange"]), "slot": row["slot"],
            "content": row["content"], "holds": bool(row["holds"]), "at": row["at"],
        }  # fmt: skip

    def _states(self, ours: str, session: int) -> dict[str, StateRow]:
        """Return the session's state, where it has one."""
        states: dict[str, StateRow] = {}
        marks = [row["mark"] for row in self._of("marks", "x.session = :session", session=session)]
        for row in self._of("states", "x.session = :session", session=session):
            states[ours] = {
                "upto": self.numbers.of("exchanges", row["upto"]), "content": orjson.loads(row["content"]),
                "at": row["at"], "marks": marks,
            }  # fmt: skip
        return states

    def _exchange(self, ours: str, row: Row) -> Piece:
        seq = self.numbers.of("exchanges", row["seq"])
        recalled = orjson.loads(row["recalled"])
        exchange: ExchangeRow = {
            "seq": seq, "id": row["id"], "key": row["key"], "generation": row["generation"],
            "model": row["model"], "said": row["said"], "answer": row["answer"], "recalled": recalled,
            "at": row["at"], "open": False, "whole": bool(row["whole"]), "explicit": bool(row["explicit"]),
            "personal": bool(row["personal"]), "instance": row["instance"], "holders": row["holders"],
            "timezone": row["timezone"], "dated": row["dated"],
        }  # fmt: skip
        unread: UnreadRow | None = None
        if row["extraction"] in ("pending", "dead"):
            unread = {
                "seq": seq, "explicit": exchange["explicit"], "personal": exchange["personal"],
                "job": None if row["job"] is None else self._job_id(row["job"]),
                "dead": row["extraction"] == "dead", "at_work": bool(row["at_work"]),
            }  # fmt: skip

        async def put(into: Into) -> None:
            unit = into.unit
            unit.table(f"exchanges:{ours}").put(str(seq), exchange)
            unit.table(f"keys:{ours}").put(row["key"], seq)
            unit.table("where").put(row["id"], [ours, seq])
            for shown in self._shown.intersection(recalled):
                unit.table(f"shown:{shown}").put(f"{ours} {seq}", 1)
            await _append(unit, "unread", ours, unread)
            session: SessionRow = await unit.table("sessions").get(ours)
            unit.table("sessions").put(ours, {**session, "seqs": [*session["seqs"], seq]})
            if is_not_to_be_read(recalled):
                await silence(unit, ours, seq)

        return Piece(put, _ROW_BYTES + len((row["said"] + row["answer"]).encode()))

    # ------------------------------------------------------------ jobs
    def _job_id(self, number: int) -> str:
        return f"{self._uid}.{self._target.jobs_after + number}"

    def _job(self, sid: str, row: Row) -> JobRow:
        queued = row["state"] == "queued"
        return {
            "seq": self._target.jobs_after + row["id"], "sid": sid,
            "upto": self.numbers.of("exchanges", row["upto"]), "lane": row["lane"], "state": row["state"],
            "attempts": row["attempts"], "due_at": row["due_at"], "delayed": queued and row["due_at"] > 0,
            "leased_until": None, "instance": None, "created_at": row["created_at"],
            "reason": row["reason"], "closing": bool(row["closing"]),
        }  # fmt: skip

    def _last(self) -> Piece:
        """Return the jobs, and what makes known what is to be done for the user's sessions."""
        number, sids, oldest = self._user.number, dict[int, str](), dict[str, float]()
        for row in self._of("sessions"):
            sids[row["id"]] = ours = layout.sid(row["project"], row["name"])
            oldest[ours] = row["last_at"]
        for row in self._source.columns("exchanges", number, "session", "at"):
            ours = sids[row["session"]]
            oldest[ours] = min(oldest[ours], row["at"])
        jobs = {self._job_id(row["id"]): self._job(sids[row["session"]], row) for row in self._of("jobs")}
        return Piece(partial(_make_known, jobs=jobs, oldest=oldest), _ROW_BYTES)

    # ------------------------------------------------------------ what is held, kept, proved
    def _held(self, row: Row) -> HeldRow:
        return {
            "seq": self.numbers.of("quarantine", row["seq"]), "project": row["project"], "type": row["type"],
            "content": row["content"], "reason": row["reason"], "source": row["source"],
            "confidence": row["confidence"], "importance": row["importance"],
            "tags": orjson.loads(row["tags"]), "replaces": row["replaces"],
            "observed_at": row["observed_at"], "expires_at": row["expires_at"],
            "session_id": row["session_id"], "exchange_id": row["exchange_id"], "span": row["span"],
            "at": row["at"],
        }  # fmt: skip

    def _conversation(self, row: Row) -> Iterator[Piece]:
        mine = {"conversation": row["seq"]}
        ids, size = list[str](), 0
        for item in self._of("items", "x.conversation = :conversation", **mine):
            ids.append(item["id"])
            size += len(item["item"])
        conversation: ConversationRow = {
            "project": row["project"], "metadata": row["metadata"].decode(),
            "created_at": row["created_at"], "items": ids, "used_at": row["used_at"],
            "size": size,
        }  # fmt: skip

        async def put(into: Into) -> None:
            into.unit.table("conversations").put(row["id"], conversation)
            if row["used_at"] is not None:
                member = f"{into.unit.uid} {row['id']}"
                into.unit.share("ZADD", into.unit.redis.key(USED), row["used_at"], member)

        yield Piece(put, _ROW_BYTES)
        for item in self._of("items", "x.conversation = :conversation", **mine):
            kept: ItemRow = {
                "project": item["project"], "session": item["session"], "item": item["item"].decode(),
            }  # fmt: skip
            yield self._rows({f"items:{row['id']}": {item["id"]: kept}})

    def _stored(self, row: Row) -> Piece:
        id_, previous = row["id"], row["previous_id"]
        stored: StoredRow = {
            "seq": self.numbers.of("stored_responses", row["seq"]), "project": row["project"],
            "session": row["session"], "previous_id": previous, "conversation_id": row["conversation_id"],
            "created_at": row["created_at"], "expires_at": row["expires_at"],
            "recalled": orjson.loads(row["recalled"]), "deleted": row["response"] is None,
            "size": len(row["response"] or b"") + len(row["input_items"] or b""),
        }  # fmt: skip
        bodies = {f"{id_} r": row["response"], f"{id_} i": row["input_items"]}

        async def put(into: Into) -> None:
            unit = into.unit
            unit.table("stored").put(id_, stored)
            if previous is not None:
                unit.table("next").put(previous, self._next[previous])
            if not stored["deleted"]:
                for name, body in bodies.items():
                    unit.blobs("bodies").put(name, body)
            if stored["expires_at"] is not None:
                member = f"{unit.uid} {id_}"
                unit.share("ZADD", unit.redis.key("expiring-responses"), stored["expires_at"], member)

        return Piece(put, _ROW_BYTES + sum(len(body or b"") for body in bodies.values()))

    # ------------------------------------------------------------ documents
    def _document(self, row: Row) -> Iterator[Piece]:
        """Yield the document, then its passages."""
        id_, mine = row["id"], {"document": row["seq"]}
        passages = self._of("passages", "x.document = :document", **mine)
        numbered = [(passage["seq"], self._generation(passage["generation"])) for passage in passages]
        document: DocumentRow = {
            "seq": self.numbers.of("documents", row["seq"]), "project": row["project"], "name": row["name"],
            "version": row["version"], "digest": row["digest"].hex(), "characters": row["characters"],
            "sections": row["sections"], "first": self.numbers.of("passages", numbered[0][0]),
            "generations": [generation for _, generation in numbered], "created_at": row["created_at"],
            "updated_at": row["updated_at"],
        }  # fmt: skip

        async def put(into: Into) -> None:
            library.put_document(into.unit, id_, document)

        yield Piece(put, _ROW_BYTES + 3 * len(numbered))
        for passage in self._of("passages", "x.document = :document", **mine):
            yield self._passage(id_, passage)

    def _passage(self, document_id: str, row: Row) -> Piece:
        number, generation = self.numbers.of("passages", row["seq"]), self._generation(row["generation"])
        titles: list[str] = json.loads(row["headings"])  # orjson takes no lone surrogates
        passage: PassageRow = {
            "headings": [layout.storable(title) for title in titles], "section": row["section"],
            "tile": row["tile"], "start": row["start"], "lead": row["lead"],
        }  # fmt: skip
        vector = None if generation == NO_MODEL else row["embedding"]

        async def put(into: Into) -> None:
            words = library.with_section(row["section"], row["terms"])
            library.put_passage(into.unit, document_id, number, passage, words)
            if vector is not None:
                library.put_vector(into.unit, document_id, number, vector, generation)

        return Piece(put, _ROW_BYTES + len(row["tile"].encode()) + len(row["terms"]) + len(vector or b""))

    def _generation(self, old: int) -> int:
        return self._target.generations.get(old, NO_MODEL)

    def _receipt(self, row: Row) -> ReceiptRow:
        return {
            "seq": self.numbers.of("receipts", row["seq"]), "project": row["project"], "type": row["type"],
            "memory_id": row["memory_id"], "by": row["by"], "at": row["at"],
            "counts": orjson.loads(row["counts"]),
        }  # fmt: skip


async def _append(unit: Unit, table: str, name: str, entry: UnreadRow | None) -> None:
    if entry is not None:
        unit.table(table).put(name, [*(await unit.table(table).get(name) or ()), entry])


async def _make_known(into: Into, *, jobs: Mapping[str, JobRow], oldest: Mapping[str, float]) -> None:
    unit = into.unit
    for id_, job in jobs.items():
        dead = job["state"] == "dead"
        unit.table("dead" if dead else "jobs").put(id_, job)
        if dead:
            unit.share("ZADD", unit.redis.key("jobs:dead"), job["seq"], id_)
    for ours, at in oldest.items():
        unit.share("ZADD", unit.redis.key("oldest"), at, f"{unit.uid} {ours}")
    queue = await Queue.of(unit)
    queue.announce_all()
    for ours in oldest:
        queue.touch(ours)
    await queue.settle()
