"""Copy what earlier versions stored in Redis into an empty SQL store, in one transaction.

The old layout. Keys begin with the prefix (`memory-proxy:`). `users` is a hash of JSON
[tenant, user] by uid. The hash `u:<uid>:owner` has the user's counters; one of them, `home`, is how often
everything was forgotten at once: the user's tables are then named `u:<uid>.<home>:…`, and the tables of
earlier homes hold what was forgotten. `receipts` and `forgets` never move. A table is a hash of JSON rows, or
of bytes; a `seq` in a row orders what came in. Sessions are named by a digest, the `sid`. Vectors are in
`points:<uid>:<generation>` as one line of JSON, then the vector; what was not indexed yet is in the table
`vectors`. Vectors in Qdrant are not read: `memory-proxy reembed` makes them again.

Not copied: indexes and counters (SQL makes its own), rate limits, and what models were found to accept.
"""

import json
import time
from base64 import b64decode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import orjson
from redis import Redis
from redis.exceptions import RedisError

from proxy.domain.core import Evidence, Memory, Receipt, Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage import Refused, Report
from proxy.storage.exact_index import pack
from proxy.storage.migration import TABLES
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection
from proxy.storage.sql.erasure import counts_from_dict, store_receipt
from proxy.storage.sql.rows import NO_MODEL
from proxy.text.words import terms

Row = Mapping[str, Any]

NO_USER = Scope("\x1f", "\x1f")  # owns the API keys
ALIVE_S = 10.0  # a replica that has sent a heartbeat since is running


@dataclass(slots=True)
class Moved:
    """What was copied: rows by table, and memories that need a new vector."""

    rows: Counter[str] = field(default_factory=Counter)
    without_vector: int = 0


class OldRedis:
    """The old layout in one Redis. Every method may raise StoreUnavailable."""

    def __init__(self, url: str, prefix: str = "memory-proxy:") -> None:
        self._client: Any = Redis.from_url(url, socket_timeout=60.0, socket_connect_timeout=5.0)
        self._prefix = prefix

    def close(self) -> None:
        self._client.close()

    def call(self, name: str, key: str, *arguments: Any) -> Any:
        with _mapped():
            return self._client.execute_command(name, self._prefix + key, *arguments)

    def hash(self, key: str) -> dict[str, bytes]:
        """Return a hash, large ones in portions."""
        with _mapped():
            found = self._client.hscan_iter(self._prefix + key, count=1000)
            return {name.decode(): value for name, value in found}

    def table(self, home: str, name: str) -> dict[str, Any]:
        return {key: orjson.loads(row) for key, row in self.hash(f"u:{home}:{name}").items()}

    def users(self) -> list[tuple[str, Scope]]:
        """Return everybody who has anything, by uid."""
        return [(uid, Scope(*orjson.loads(names))) for uid, names in sorted(self.hash("users").items())]

    def models(self) -> list[tuple[str, int]]:
        """Return name and dimension of the embedding models by generation."""
        return [tuple(orjson.loads(row)) for row in self.call("LRANGE", "models", 0, -1)]

    def refuse_unless_at_rest(self) -> None:
        """Raise Refused while replicas run, or a forget is unfinished."""
        users = self.users()
        if not users:
            raise Refused(f"no memories under {self._prefix!r} in this Redis: set --prefix")
        with _mapped():
            seconds, micros = self._client.time()
        since = seconds + micros / 1e6 - ALIVE_S
        if running := self.call("ZCOUNT", "instances", since, "+inf"):
            raise Refused(f"{running} replicas work on this Redis: stop them first")
        if any(self.call("EXISTS", f"u:{uid}:forgets") for uid, _ in users):
            raise Refused(
                "something is still being forgotten in this Redis: start the earlier version once, and stop"
                " it when its log says store.forget.resumed"
            )


@contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis: {type(error).__name__}") from error


def move(tx: Connection, old: OldRedis, report: Report) -> Moved:
    """Copy everything, and compare the numbers of rows. Raises Refused unless the store is empty."""
    old.refuse_unless_at_rest()
    if tx.execute("SELECT 1 FROM scopes LIMIT 1").fetchone():
        raise Refused("the store that the configuration names has users already: give it an empty one")
    writer = _Writer(tx=tx)
    tx.execute("DELETE FROM embeddings")
    for generation, (name, dimension) in enumerate(old.models()):
        writer.insert("embeddings", generation=generation, name=name, dimension=dimension)
    users, issued = old.users(), list[tuple[int, Receipt]]()
    for number, (uid, scope) in enumerate(users):
        report("move", number, len(users))
        try:
            if scope == NO_USER:
                _keys(writer, old, uid)
            else:
                issued += _User(writer, old, uid, scope).copy()
        except (LookupError, TypeError, ValueError) as error:
            raise StoreUnavailable("the rows of a user in Redis are incomplete or damaged") from error
    for owner, receipt in sorted(issued, key=lambda item: item[1].at):
        store_receipt(tx, owner, receipt)
        writer.rows["receipts"] += 1
    tx.execute("UPDATE memories SET archived_by = 'user' WHERE archived = 1")  # as the schema's upgrade does
    report("move", len(users), len(users))
    for table in TABLES.keys() - {"meta"}:
        (found,) = tx.execute(f"SELECT count(*) FROM {table}").fetchone()
        if found != writer.rows[table]:
            raise Refused(f"{table}: {writer.rows[table]:,} rows were read, {found:,} arrived")
    return writer


@dataclass(slots=True, kw_only=True)
class _Writer(Moved):
    """Inserts rows, and counts them."""

    tx: Connection

    def insert(self, table: str, returning: str = "", **columns: Any) -> int:
        self.rows[table] += 1
        return int(rows.insert(self.tx, table, returning and f"RETURNING {returning}", **columns) or 0)


def _keys(writer: _Writer, old: OldRedis, uid: str) -> None:
    for digest, row in _in_order(old.table(uid, "api-keys")):
        sealed = row["upstream_key"]
        writer.insert(
            "keys", digest=bytes.fromhex(digest), rights=json.dumps(row["rights"]),
            upstream_key=None if sealed is None else b64decode(sealed),
            **_same(row, "id name tenant user created_at revoked_at"),
        )  # fmt: skip


class _User:
    """Copies all that one user has."""

    def __init__(self, writer: _Writer, old: OldRedis, uid: str, scope: Scope) -> None:
        self._writer, self._old, self._uid, self._scope = writer, old, uid, scope
        found = old.hash(f"u:{uid}:owner").items()
        self._numbers = {name: int(value) for name, value in found if name not in ("tenant", "user")}
        home = self._numbers.get("home", 0)
        self._home = f"{uid}.{home}" if home else uid
        self._owner = rows.ensure_owner(writer.tx, scope).id
        writer.rows["scopes"] += 1
        self._session_ids: dict[str, int] = {}
        self._exchange_seqs: dict[int, int] = {}  # numbers of exchanges by their old ones, rising

    def copy(self) -> list[tuple[int, Receipt]]:
        """Copy everything but the receipts; return those, by the owner."""
        self._memories()
        self._sessions()
        self._exchanges()
        self._jobs()
        self._notes()
        for held_id, row in _in_order(self._table("held")):
            columns = {name: value for name, value in row.items() if name != "seq"}
            columns |= {"id": held_id, "owner": self._owner, "tags": json.dumps(row["tags"])}
            self._writer.insert("quarantine", **columns)
        self._responses()
        self._conversations()
        for document_id, row in _in_order(self._table("documents")):
            self._document(document_id, row)
        # The user's counters last: nothing that is copied may raise them further.
        self._writer.tx.execute(
            "UPDATE scopes SET generation = ?, version = ?, served = ?, timezone = ? WHERE id = ?",
            (*(self._numbers.get(name, 0) for name in ("generation", "version", "served")),
             self._table("user").get("timezone"), self._owner),
        )  # fmt: skip
        found, user = list[tuple[int, Receipt]](), {"tenant": self._scope.tenant, "user": self._scope.user}
        for receipt_id, row in _in_order(self._old.table(self._uid, "receipts")):
            same = _same(row, "project type memory_id by at") | user
            counts = counts_from_dict(row["counts"], receipt_id)
            found.append((self._owner, Receipt(id=receipt_id, counts=counts, **same)))
        return found

    def _table(self, name: str) -> dict[str, Any]:
        return self._old.table(self._home, name)

    # ------------------------------------------------------------ memories
    def _memories(self) -> None:
        writer, history, written = self._writer, self._table("events"), self._table("memories")
        # By memory and by the number that its row gives to its vector.
        vectors: dict[tuple[str, int], bytes] = {}
        for generation in range(len(self._old.models())):
            for memory_id, value in self._old.hash(f"points:{self._uid}:{generation}").items():
                head, _, found = value.partition(b"\n")
                vector_of = orjson.loads(head)[5]
                if found and vector_of is not None:
                    vectors[memory_id, vector_of] = found
        for memory_id, value in self._old.hash(f"u:{self._home}:vectors").items():
            if memory_id in written:
                vectors[memory_id, written[memory_id]["vector"]] = value
        for memory_id, row in _in_order(written):
            said_in = [Evidence(e["session_id"], e["exchange_id"], e["span"]) for e in row["evidence"]]
            same = {each.name: row[each.name] for each in fields(Memory) if each.name in row}
            same |= {"id": memory_id, "tags": tuple(row["tags"]), "evidence": tuple(said_in)}
            memory = Memory(**same, scope=Scope(self._scope.tenant, self._scope.user, row["project"]))
            digest = rows.digest(memory.content)
            seq = rows.insert_memory(writer.tx, self._owner, memory, digest, row["written"])
            if seq is None:
                raise Refused("two current memories of a user say the same, which the store does not take")
            writer.rows["memories"] += 1
            writer.rows["evidence"] += len(set(memory.evidence))
            vector = vectors.get((memory_id, row["vector"]))
            missing = vector is None and row["vector"] is not None
            writer.without_vector += missing and row["superseded_by"] is None
            writer.insert(
                "vectors", memory=seq, embedding=vector, terms=pack(terms(memory.content)),
                generation=NO_MODEL if missing else row["generation"],
            )  # fmt: skip
            writer.insert("unnamed", memory=seq)
            for event in history.get(memory_id, ()):
                writer.insert("events", memory=seq, owner=self._owner, **_same(event, "at action by content"))

    # ------------------------------------------------------------ sessions
    def _sessions(self) -> None:
        for sid, row in _in_order(self._table("sessions")):
            self._session_ids[sid] = self._writer.insert(
                "sessions", "id", owner=self._owner,
                **_same(row, "project name last_at unsummarised ended stateful retold"),
            )  # fmt: skip
        for response_id, made in self._table("made").items():
            sid, _, exchange = made.partition(" ")
            if sid in self._session_ids:
                self._writer.insert(
                    "responses", id=response_id, owner=self._owner, session=self._session_ids[sid],
                    exchange=exchange or None,
                )  # fmt: skip

    def _exchanges(self) -> None:
        unread = {entry["seq"]: entry for each in self._table("unread").values() for entry in each}
        tables = {sid: self._table(f"exchanges:{sid}") for sid in self._session_ids}
        found = [(sid, row) for sid, table in tables.items() for row in table.values()]
        for sid, row in sorted(found, key=lambda item: int(item[1]["seq"])):
            entry = unread.get(row["seq"])
            extraction = "pending" if row["open"] or entry else "done"
            self._exchange_seqs[row["seq"]] = self._writer.insert(
                "exchanges", "seq", session=self._session_ids[sid], recalled=rows.as_json(row["recalled"]),
                state="open" if row["open"] else "done", timezone=row.get("timezone", "UTC"),
                extraction="dead" if entry and entry["dead"] else extraction,
                at_work=int(bool(entry and entry.get("at_work"))), dated=row.get("dated"),
                **_same(row, "id key generation model said answer at whole explicit personal instance"
                             " holders"),
            )  # fmt: skip

    def _upto(self, seq: int) -> int:
        """Return the number of the last exchange up to the old number, 0 if none is left."""
        known = [*self._exchange_seqs]
        place = bisect_right(known, seq)
        return self._exchange_seqs[known[place - 1]] if place else 0

    def _jobs(self) -> None:
        numbers: dict[str, int] = {}
        for job_id, row in _in_order(self._table("jobs") | self._table("dead")):
            numbers[job_id] = self._writer.insert(
                "jobs", "id", session=self._session_ids[row["sid"]], owner=self._owner,
                upto=self._upto(row["upto"]),
                **_same(row, "lane state attempts due_at leased_until instance created_at reason closing"),
            )  # fmt: skip
        unread = (entry for entries in self._table("unread").values() for entry in entries)
        of_job = [(numbers[e["job"]], self._exchange_seqs[e["seq"]]) for e in unread if e["job"] in numbers]
        self._writer.tx.executemany("UPDATE exchanges SET job = ? WHERE seq = ?", of_job)

    def _notes(self) -> None:
        """Copy standing instructions and states. Its exchange may have been deleted: number 0."""
        for sid, session in self._session_ids.items():
            for _, row in _in_order(self._table(f"anchors:{sid}")):
                self._writer.insert(
                    "anchors", session=session, exchange=self._exchange_seqs.get(row["exchange"], 0),
                    **_same(row, "exchange_id slot content at holds"),
                )  # fmt: skip
        for sid, row in self._table("states").items():
            session, content = self._session_ids[sid], json.dumps(row["content"], ensure_ascii=False)
            upto = self._upto(row["upto"])
            self._writer.insert("states", session=session, upto=upto, content=content, at=row["at"])
            for mark in row["marks"]:
                self._writer.insert("marks", session=session, mark=mark)

    # ------------------------------------------------------------ responses
    def _responses(self) -> None:
        bodies = self._old.hash(f"u:{self._home}:bodies")
        for response_id, row in _in_order(self._table("stored")):
            texts = [None if row["deleted"] else bodies[f"{response_id} {part}"] for part in "ri"]
            self._writer.insert(
                "stored_responses", id=response_id, owner=self._owner, recalled=rows.as_json(row["recalled"]),
                response=texts[0], input_items=texts[1],
                **_same(row, "project session previous_id conversation_id created_at expires_at"),
            )  # fmt: skip

    def _conversations(self) -> None:
        found = self._table("conversations").items()
        for conversation_id, row in sorted(found, key=lambda item: (item[1]["created_at"], item[0])):
            seq = self._writer.insert(
                "conversations", "seq", id=conversation_id, owner=self._owner,
                metadata=row["metadata"].encode(), **_same(row, "project created_at"),
                used_at=row.get("used_at", time.time()),  # rows of early versions: from now on
            )  # fmt: skip
            items = self._table(f"items:{conversation_id}")
            for item_id in row["items"]:
                item = items[item_id]
                self._writer.insert(
                    "conversation_items", conversation=seq, id=item_id, item=item["item"].encode(),
                    **_same(item, "project session"),
                )  # fmt: skip

    # ------------------------------------------------------------ documents
    def _document(self, document_id: str, row: Row) -> None:
        generations = row["generations"]
        seq = self._writer.insert(
            "documents", "seq", id=document_id, owner=self._owner, digest=bytes.fromhex(row["digest"]),
            passages=len(generations),
            **_same(row, "project name version characters sections created_at updated_at"),
        )  # fmt: skip
        passages = self._table(f"passages:{document_id}")
        words = self._old.hash(f"u:{self._home}:passage-terms:{document_id}")
        vectors = self._old.hash(f"u:{self._home}:passage-vectors:{document_id}")
        for number, generation in enumerate(generations, row["first"]):
            passage, vector = passages[str(number)], vectors.get(str(number))
            # Four bytes before the terms are their section, four before the vector its generation.
            self._writer.insert(
                "passages", document=seq, headings=json.dumps(passage["headings"]), generation=generation,
                terms=words[str(number)][4:], embedding=None if vector is None else vector[4:],
                **_same(passage, "section start lead tile"),
            )  # fmt: skip


def _in_order(table: Mapping[str, Row]) -> list[tuple[str, Row]]:
    return sorted(table.items(), key=lambda item: int(item[1]["seq"]))


def _same(row: Row, names: str) -> dict[str, Any]:
    """Return the columns that are as they were; truth values as numbers."""
    found = {name: row[name] for name in names.split()}
    return {name: int(value) if isinstance(value, bool) else value for name, value in found.items()}
