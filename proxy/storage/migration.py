"""Copy everything from one database to another of the same schema: SQLite to PostgreSQL, or the other way.

Rows are copied by primary key, in portions. Each portion is committed together with a row of the target's
`meta` that says from where the copy comes and how far each table has got, so a killed copy continues
after its last portion. A proxy does not open such a target. At the end every row of both databases is read:
each table must have the same number of rows and the same digest, a sum of the rows' hashes.

Triggers of the target count memories and documents as they arrive, so the counters in `scopes` are copied
last. `vector_targets` and `vector_outbox` are not copied: the target fills its own external index.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.domain.errors import StoreUnavailable
from proxy.storage import Refused, Report
from proxy.storage.postgres import ALIVE, database
from proxy.storage.postgres.database import PostgresConnection, Raw, connect, mapped, place_of
from proxy.storage.sql.database import Connection
from proxy.storage.sql.rows import storable
from proxy.storage.sql.stores import UNFINISHED_COPY as MARK
from proxy.storage.sqlite import database as sqlite
from proxy.storage.sqlite import living

# ---------------------------------------------------------------- engines
_COUNTED = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
Place = str | Path
"""The URL of a PostgreSQL database, or a data directory."""


class Sqlite:
    """A data directory's file. Every method, of both engines, may raise StoreUnavailable."""

    def __init__(self, path: Path, connection: sqlite.SqliteConnection) -> None:
        self.place = str(path.resolve())
        self.tx: Connection = connection
        self._connection, self._run_dir = connection, path.parent / "run"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:  # commits, or rolls back
            yield

    def counters(self) -> Mapping[str, int]:
        """Return the last number that each table has given to a row, also to one that is deleted."""
        return dict(self.tx.execute("SELECT name, seq FROM sqlite_sequence"))

    def set_counters(self, last: Mapping[str, int]) -> None:
        counted = {name for (name,) in self.tx.execute(_COUNTED)}
        self.tx.execute("DELETE FROM sqlite_sequence")
        self.tx.executemany(
            "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)",
            [(table, number) for table, number in last.items() if table in counted],
        )

    def processes(self) -> int:
        return living(self._run_dir)

    def version(self) -> tuple[int, int]:
        """Return the version of its schema, 0 if it is not ours, and the newest version."""
        (version,) = self.tx.execute("PRAGMA user_version").fetchone()
        return version if sqlite.is_ours(self._connection) else 0, sqlite.SCHEMA_VERSION

    def freeze(self) -> None:
        """Refuse every write on this connection."""
        self.tx.execute("PRAGMA query_only = ON")


class Postgres:
    """A PostgreSQL database."""

    def __init__(self, place: str, raw: Raw) -> None:
        self.place = place
        self.tx: Connection = PostgresConnection(raw)
        self._raw = raw

    def transaction(self) -> AbstractContextManager[Any]:
        return self._raw.transaction()

    def counters(self) -> Mapping[str, int]:
        last = {}
        for table, _, sequence in self._sequences():
            number, is_used = self.tx.execute(f"SELECT last_value, is_called FROM {sequence}").fetchone()
            if is_used:
                last[table] = number
        return last

    def set_counters(self, last: Mapping[str, int]) -> None:
        for table, column, sequence in self._sequences():
            (highest,) = self.tx.execute(f"SELECT max({column}) FROM {table}").fetchone()
            # SQLite has no counter for tables in which a number may be given again.
            if number := max(last.get(table, 0), highest or 0):
                self._raw.execute(b"SELECT setval(%s::text::regclass, %s)", (sequence, number))

    def processes(self) -> int:
        return int(self.tx.execute(f"SELECT count(*) FROM instances WHERE {ALIVE}").fetchone()[0])

    def version(self) -> tuple[int, int]:
        return database.version_of(self._raw, self.place), database.SCHEMA_VERSION

    def freeze(self) -> None:
        self._raw.execute(b"SET default_transaction_read_only = on")

    def _sequences(self) -> Iterable[tuple[str, str, str]]:
        """Return table, column and sequence of every number that the database gives."""
        return self._raw.execute(
            b"SELECT table_name, column_name, pg_get_serial_sequence(quote_ident(table_name), column_name)"
            b" FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'"
        ).fetchall()


Engine = Sqlite | Postgres


@contextmanager
def open_source(place: Place) -> Iterator[Engine]:
    """Open a database to read it. Raises StoreUnavailable if it does not have the newest schema."""
    with _connected(place) as source:
        found, newest = source.version()
        if found != newest:
            raise StoreUnavailable(
                f"{source.place} has schema {found}, not {newest}: start this version of the proxy on it"
                " once, and stop it"
            )
        source.freeze()
        yield source


def open_target(place: Place) -> AbstractContextManager[Engine]:
    """Open a database, and create its tables if there are none."""
    return _connected(place, create=True)


@contextmanager
def _connected(place: Place, *, create: bool = False) -> Iterator[Engine]:
    if isinstance(place, Path):
        path = place / "memory.db"
        if create:
            sqlite.prepare(path, create=True)
        sqlite.identity(path)
        with sqlite.mapped(path), closing(sqlite.connect(path)) as connection:
            yield Sqlite(path, connection)
        return
    name = place_of(place)
    with mapped(name), closing(connect(place)) as raw:
        if create:
            database.prepare(raw, name)
        yield Postgres(name, raw)


# ---------------------------------------------------------------- copy
Row = tuple[Any, ...]
Key = Sequence[Any]

# With their primary keys, in an order in which no row refers to a later table.
TABLES = {
    "meta": ("key",), "embeddings": ("generation",), "scopes": ("id",), "memories": ("seq",),
    "contradictions": ("seq",), "reviews": ("memory", "step"), "review_cursors": ("owner", "step"),
    "evicted": ("owner", "version", "memory"), "vectors": ("memory",), "evidence": ("id",), "events": ("id",),
    "entities": ("seq",), "mentions": ("memory", "key"), "unnamed": ("memory",),
    "evolution": ("owner",), "memory_uses": ("owner", "day", "memory"), "sessions": ("id",), "jobs": ("id",),
    "exchanges": ("seq",), "anchors": ("seq",), "states": ("session",), "marks": ("session", "mark"),
    "quarantine": ("seq",), "receipts": ("seq",), "forgets": ("receipt",), "keys": ("seq",),
    "responses": ("owner", "id"), "stored_responses": ("seq",), "conversations": ("seq",),
    "conversation_items": ("seq",), "documents": ("seq",), "passages": ("seq",),
}  # fmt: skip
NOT_COPIED = frozenset({"vector_targets", "vector_outbox", "instances"})
_OF_THE_DATABASE = frozenset({"application", "schema", "probe", MARK})  # keys of `meta`
_AT_ONCE = 500  # rows
_MODULUS = 2**128


@dataclass(slots=True)
class Copied:
    """Rows by table, and digests by which they were compared."""

    rows: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    resumed: bool = False


def copy(source: Engine, target: Engine, report: Report) -> Copied:
    """Copy, or finish a copy that was broken off, and verify. Raises Refused, StoreUnavailable."""
    for each in (source, target):
        if each.processes():
            raise Refused(f"a proxy works on {each.place}: stop all of them first")
    if _mark_of(source, lock=False) is not None:
        raise Refused(f"{source.place} is itself a copy that is not finished")
    with target.transaction():
        mark = _mark_of(target)
        if mark is not None and mark["from"] != source.place:
            raise Refused(f"{target.place} holds an unfinished copy of {mark['from']}: empty it")
        if mark is None:
            if any(_count(target, table) for table in TABLES):
                raise Refused(f"{target.place} is not empty: name an empty database")
            begun = json.dumps({"from": source.place, "upto": {}})
            target.tx.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (MARK, begun))
    copied = Copied(resumed=mark is not None)
    total = sum(_count(source, table) for table in TABLES)
    done = sum(_count(target, table) for table in TABLES) if copied.resumed else 0
    for table in TABLES:
        for rows in _copied(source, target, table):
            done += rows
            report("copy", done, total)
    # The counters of the users, which triggers have raised, and the last numbers of the tables.
    columns = _columns(source, "scopes")
    update = f"UPDATE scopes SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"
    at = columns.index("id")
    for _, found in _portions(source, "scopes", columns):
        with target.transaction():
            target.tx.executemany(update, [(*row, row[at]) for row in found])
    with target.transaction():
        target.set_counters(source.counters())
    seen = 0
    for table in TABLES:
        count, digest = _digest(source, source, table)
        if (count, digest) != _digest(source, target, table):
            raise Refused(
                f"{table} in {target.place} is not what it is in {source.place}: one of them has been changed"
                " since the copy began. Empty the target, and run this again"
            )
        copied.rows[table], copied.digests[table] = count, f"{digest:032x}"
        seen += count
        report("verify", seen, total)
    with target.transaction():
        target.tx.execute("DELETE FROM meta WHERE key = ?", (MARK,))
    target.tx.execute("ANALYZE")
    return copied


def _mark_of(database: Engine, *, lock: bool = True) -> dict[str, Any] | None:
    query = f"SELECT value FROM meta WHERE key = ?{database.tx.for_update if lock else ''}"
    found = database.tx.execute(query, (MARK,)).fetchone()
    return None if found is None else dict(json.loads(found[0]))


def _count(database: Engine, table: str) -> int:
    if table == "meta":
        return sum(len(rows) for _, rows in _portions(database, table, ("key",)))
    return int(database.tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _copied(source: Engine, target: Engine, table: str) -> Iterator[int]:
    """Copy the table from after the last row that has arrived, and yield the rows of each portion."""
    columns = _columns(source, table)
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    upto = (_mark_of(target, lock=False) or {"upto": {}})["upto"].get(table)
    for key, rows in _portions(source, table, columns, upto):
        with target.transaction():
            mark = _mark_of(target)
            if mark is None or mark["upto"].get(table) != upto:
                raise Refused(f"another process copies into {target.place}")
            target.tx.executemany(insert, rows)
            mark["upto"][table] = upto = key
            target.tx.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(mark), MARK))
        yield len(rows)


def _columns(database: Engine, table: str) -> list[str]:
    return [each[0] for each in database.tx.execute(f"SELECT * FROM {table} LIMIT 0").description]


def _portions(
    database: Engine, table: str, columns: Sequence[str], upto: Key | None = None
) -> Iterator[tuple[Key, list[Row]]]:
    """Yield the rows after the key in portions, each with the key of its last row."""
    key, after = ", ".join(TABLES[table]), ""
    at = [columns.index(name) for name in TABLES[table]]
    while True:
        if upto is not None:
            after = f"WHERE ({key}) > ({', '.join('?' * len(upto))})"
        query = f"SELECT {', '.join(columns)} FROM {table} {after} ORDER BY {key} LIMIT {_AT_ONCE}"
        found = database.tx.execute(query, tuple(upto or ())).fetchall()
        if not found:
            return
        upto = [found[-1][n] for n in at]
        rows = (row for row in found if table != "meta" or row[0] not in _OF_THE_DATABASE)
        yield upto, [tuple(storable(v) if isinstance(v, str) else v for v in row) for row in rows]


def _digest(source: Engine, database: Engine, table: str) -> tuple[int, int]:
    """Return the number of rows and the sum of their hashes: the engines sort texts in different orders."""
    count = total = 0
    for _, rows in _portions(database, table, _columns(source, table)):
        count += len(rows)
        for row in rows:
            hashed = hashlib.blake2b(repr(row).encode(), digest_size=16).digest()
            total = (total + int.from_bytes(hashed)) % _MODULUS
    return count, total
