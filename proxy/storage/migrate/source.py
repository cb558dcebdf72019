"""Open the data directory that is migrated: brought to rest as at a start of the proxy, then read by us
alone.

Rows are read as they are, user by user. What a process left that died is settled by the store's own means
first, so that nothing is open and no job is running when it is read.
"""

import hashlib
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.domain.core import Memory, NewJob, Scope, SessionState
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sqlite import file, rows
from proxy.storage.sqlite.instance import alone, living
from proxy.storage.sqlite.stores import SqliteStores

Row = Mapping[str, Any]

_AT_ONCE = 200  # memories read together
_SESSIONS = "JOIN sessions n ON n.id = x.session WHERE n.owner = :owner"
_OWN = "WHERE x.owner = :owner"
# What a user has, table by table: where it is, and in which order it came.
TABLES = {
    "memories": (f"memories x {_OWN}", "x.seq"),
    "evidence": ("evidence x JOIN memories m ON m.seq = x.memory WHERE m.owner = :owner", "x.id"),
    "events": ("events x JOIN memories m ON m.seq = x.memory WHERE m.owner = :owner", "x.id"),
    "sessions": (f"sessions x {_OWN}", "x.id"),
    "exchanges": (f"exchanges x {_SESSIONS}", "x.seq"),
    "jobs": (f"jobs x {_OWN}", "x.id"),
    "anchors": (f"anchors x {_SESSIONS}", "x.seq"),
    "states": (f"states x {_SESSIONS}", "x.session"),
    "marks": (f"marks x {_SESSIONS}", "x.session, x.mark"),
    "quarantine": (f"quarantine x {_OWN}", "x.seq"),
    "responses": (f"responses x {_OWN}", "x.id"),
    "stored_responses": (f"stored_responses x {_OWN}", "x.seq"),
    "conversations": (f"conversations x {_OWN}", "x.seq"),
    "items": (
        "conversation_items x JOIN conversations c ON c.seq = x.conversation WHERE c.owner = :owner", "x.seq",
    ),
    "documents": (f"documents x {_OWN}", "x.seq"),
    "passages": ("passages x JOIN documents d ON d.seq = x.document WHERE d.owner = :owner", "x.seq"),
    "receipts": (f"receipts x {_OWN}", "x.seq"),
}  # fmt: skip
_VECTORS = """
    SELECT v.memory, v.generation, v.embedding IS NULL
    FROM vectors v JOIN memories m ON m.seq = v.memory WHERE m.owner = :owner ORDER BY v.memory
"""
# A last exchange may be gone that something still tells of.
_NAMED_EXCHANGES = f"""
    SELECT x.seq FROM exchanges x {_SESSIONS} UNION SELECT x.exchange FROM anchors x {_SESSIONS}
    UNION SELECT x.upto FROM states x {_SESSIONS} UNION SELECT x.upto FROM jobs x {_OWN} ORDER BY 1
"""


class Refused(StoreUnavailable):
    """Somebody is at work on either side, or has something there that is not to be overwritten."""


@dataclass(frozen=True, slots=True)
class User:
    """One of the users, with how many rows of each table are theirs."""

    number: int
    scope: Scope
    generation: int
    version: int
    served: int
    counts: Mapping[str, int]
    timezone: str | None = None  # the last known


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory with all that its row holds."""

    seq: int
    memory: Memory
    written: int
    vector: bytes | None
    generation: int
    events: Sequence[Row]


class Source:
    """What is read of an open database. Nobody else works on it."""

    def __init__(self, connection: sqlite3.Connection, token: str) -> None:
        self._connection = connection
        self.token = token  # tells this directory from every other

    def users(self) -> list[User]:
        """Return all users, those seen first first."""
        found = self._all(
            "SELECT id, tenant, user, generation, version, served, timezone FROM scopes ORDER BY id"
        )
        return [
            User(
                row["id"], Scope(row["tenant"], row["user"]), row["generation"], row["version"],
                row["served"], {name: self.count(name, row["id"]) for name in TABLES},
                row["timezone"],
            )
            for row in found
        ]  # fmt: skip

    def count(self, table: str, owner: int) -> int:
        (row,) = self._all(f"SELECT count(*) AS n FROM {TABLES[table][0]}", owner=owner)
        return int(row["n"])

    def of(self, table: str, owner: int, condition: str = "", **named: Any) -> Iterator[Row]:
        """Yield the user's rows of a table, narrowed by constant SQL over `x`, in their order."""
        where, order = TABLES[table]
        narrowed = f"AND {condition}" if condition else ""
        return self._each(f"SELECT x.* FROM {where} {narrowed} ORDER BY {order}", owner=owner, **named)

    def columns(self, table: str, owner: int, *names: str) -> Iterator[Row]:
        """Yield some columns of the user's rows of a table, in their order."""
        where, order = TABLES[table]
        picked = ", ".join(f"x.{name}" for name in names)
        return self._each(f"SELECT {picked} FROM {where} ORDER BY {order}", owner=owner)

    def numbers(self, table: str, owner: int) -> list[int]:
        """Return by what the user's rows of a table are ordered."""
        if table == "exchanges":
            return [row["seq"] for row in self._all(_NAMED_EXCHANGES, owner=owner)]
        where, order = TABLES[table]
        return [row["n"] for row in self._all(f"SELECT {order} AS n FROM {where} ORDER BY n", owner=owner)]

    def memories(self, owner: int) -> Iterator[Remembered]:
        """Yield the user's memories, the oldest first."""
        after = 0
        condition = f"m.owner = :owner AND m.seq > :after ORDER BY m.seq LIMIT {_AT_ONCE}"
        while found := self._memories(condition, owner, after):
            after = found[-1][0]
            yield from self._with_rows(found)

    def vectors(self, owner: int, generations: Sequence[int]) -> int:
        """Return how many vectors of these generations searches of the user's memories compare."""
        (row,) = self._all(
            "SELECT count(*) AS n FROM vectors v JOIN memories m ON m.seq = v.memory WHERE m.owner = :owner"
            " AND v.embedding IS NOT NULL AND m.superseded_by IS NULL"
            " AND v.generation IN (SELECT value FROM json_each(:generations))",
            owner=owner, generations=rows.as_json(generations),
        )  # fmt: skip
        return int(row["n"])

    def models(self) -> list[tuple[str, int]]:
        """Return the embedding models by generation."""
        found = self._all("SELECT name, dimension FROM embeddings ORDER BY generation")
        return [(row["name"], row["dimension"]) for row in found]

    def keys(self) -> list[Row]:
        """Return the proxy's own API keys, the oldest first."""
        return self._all("SELECT * FROM keys ORDER BY seq")

    def receipts(self) -> list[Row]:
        """Return ids and users of all receipts, the oldest first."""
        return self._all(
            "SELECT r.id, s.tenant, s.user FROM receipts r JOIN scopes s ON s.id = r.owner ORDER BY r.seq"
        )

    def last_job(self) -> int:
        """Return the highest number that a job has."""
        (row,) = self._all("SELECT coalesce(max(id), 0) AS n FROM jobs")
        return int(row["n"])

    def passage_vectors(self, owner: int, generations: Sequence[int]) -> int:
        """Return how many passages of the user's documents have a vector of these generations."""
        where, _ = TABLES["passages"]
        (row,) = self._all(
            f"SELECT count(*) AS n FROM {where} AND x.embedding IS NOT NULL"
            " AND x.generation IN (SELECT value FROM json_each(:generations))",
            owner=owner, generations=rows.as_json(generations),
        )  # fmt: skip
        return int(row["n"])

    def fingerprint(self, user: User) -> str:
        """Return what changes with every change of anything that the user has."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((user.generation, user.version)).encode())
        for table in TABLES:
            for row in self.of(table, user.number):
                digest.update(repr(tuple(row.values())).encode())
        for row in self._each(_VECTORS, owner=user.number):
            digest.update(repr(tuple(row.values())).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------ reading
    def _memories(self, condition: str, owner: int, after: int) -> list[tuple[int, Memory]]:
        tuples = self._connection.row_factory
        self._connection.row_factory = None
        try:
            return rows.memories_where(self._connection, condition, {"owner": owner, "after": after})
        finally:
            self._connection.row_factory = tuples

    def _with_rows(self, found: Sequence[tuple[int, Memory]]) -> Iterator[Remembered]:
        seqs = rows.as_json(seq for seq, _ in found)
        more = {
            row["seq"]: row
            for row in self._all(
                "SELECT m.seq, m.written, v.embedding, v.generation FROM memories m"
                " LEFT JOIN vectors v ON v.memory = m.seq"
                " WHERE m.seq IN (SELECT value FROM json_each(:seqs))",
                seqs=seqs,
            )
        }
        events: dict[int, list[Row]] = {}
        for row in self._each(
            "SELECT * FROM events WHERE memory IN (SELECT value FROM json_each(:seqs)) ORDER BY id", seqs=seqs
        ):
            events.setdefault(row["memory"], []).append(row)
        for seq, memory in found:
            row = more[seq]
            yield Remembered(
                seq, memory, row["written"], row["embedding"], row["generation"], events.get(seq, ())
            )

    def _each(self, query: str, **named: Any) -> Iterator[Row]:
        return iter(self._connection.execute(query, named))

    def _all(self, query: str, **named: Any) -> list[Row]:
        return list(self._each(query, **named))


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[Source]:
    """Settle the directory's database, and open it to be read.

    Raises Refused if a process works on it, StoreUnavailable if it cannot be read. A server that is started
    meanwhile waits until this is over."""
    database = data_dir / "memory.db"
    _refuse_company(data_dir)
    file.identity(database)
    await _settle(data_dir)
    with file.mapped(database), alone(database.with_suffix(".opening")):
        _refuse_company(data_dir)
        with closing(file.connect(database)) as connection:
            connection.row_factory = _row
            if connection.execute("SELECT 1 FROM forgets").fetchone():
                raise StoreUnavailable("something is still being forgotten in the directory")
            yield Source(connection, _token(connection))


async def _settle(data_dir: Path) -> None:
    """Carry out forgets that were broken off, close what died with its process, and put back its jobs."""
    stores = SqliteStores(data_dir)
    try:
        await stores.open()
        await stores.sessions.sweep(time.time(), _no_job)
        await stores.jobs.claim(time.time(), 1.0, upto_lane=0)  # there is no such lane: only puts back
    finally:
        await stores.close()


def _no_job(state: SessionState) -> NewJob | None:
    return None


def _refuse_company(data_dir: Path) -> None:
    if count := living(data_dir / "run"):
        what = "a process works" if count == 1 else f"{count} processes work"
        raise Refused(f"{what} on {data_dir}: stop the proxy first")


def _token(connection: sqlite3.Connection) -> str:
    """Return the directory's own name, made with the first move."""
    fresh = secrets.token_hex(8)
    connection.execute("INSERT INTO meta VALUES ('moved-as', ?) ON CONFLICT DO NOTHING", (fresh,))
    (row,) = connection.execute("SELECT value FROM meta WHERE key = 'moved-as'")
    return str(row["value"])


def _row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}
