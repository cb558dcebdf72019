"""The two databases of a move between engines: one connection to each, with the same methods."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from proxy.domain.errors import StoreUnavailable
from proxy.storage.postgres import schema
from proxy.storage.postgres.connection import PostgresConnection, Raw, connect, mapped, place_of
from proxy.storage.postgres.instance import ALIVE
from proxy.storage.sql.connection import Connection
from proxy.storage.sqlite import file
from proxy.storage.sqlite.instance import living

_FILE = "memory.db"
_COUNTED = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
Place = str | Path
"""The URL of a PostgreSQL database, or a data directory."""


class Engine(Protocol):
    """A database, open. Every method may raise StoreUnavailable."""

    place: str  # without a credential
    tx: Connection

    def transaction(self) -> AbstractContextManager[None]: ...

    def counters(self) -> Mapping[str, int]:
        """Return the last number that each table has given to a row, also to one that is deleted."""
        ...

    def set_counters(self, last: Mapping[str, int]) -> None: ...

    def processes(self) -> int:
        """Return how many processes work on it."""
        ...

    def version(self) -> tuple[int, int]:
        """Return the version of its schema, 0 if it is not ours, and the newest version."""
        ...

    def freeze(self) -> None:
        """Refuse every write on this connection."""
        ...


class Sqlite:
    """A data directory's file."""

    def __init__(self, path: Path, connection: file.SqliteConnection) -> None:
        self.place = str(path.resolve())
        self.tx: Connection = connection
        self._connection, self._run_dir = connection, path.parent / "run"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:  # commits, or rolls back
            yield

    def counters(self) -> Mapping[str, int]:
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
        (version,) = self.tx.execute("PRAGMA user_version").fetchone()
        return version if file.is_ours(self._connection) else 0, file.SCHEMA_VERSION

    def freeze(self) -> None:
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
            (number, is_used) = self._raw.execute(
                f"SELECT last_value, is_called FROM {sequence}".encode()
            ).fetchone() or (0, False)
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
        return schema.version_of(self._raw, self.place), schema.SCHEMA_VERSION

    def prepare(self) -> None:
        schema.prepare(self._raw, self.place)

    def freeze(self) -> None:
        self._raw.execute(b"SET default_transaction_read_only = on")

    def _sequences(self) -> Iterable[tuple[str, str, str]]:
        """Return table, column and sequence of every number that the database gives."""
        return self._raw.execute(
            b"SELECT table_name, column_name, pg_get_serial_sequence(quote_ident(table_name), column_name)"
            b" FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'"
        ).fetchall()


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


@contextmanager
def open_target(place: Place) -> Iterator[Engine]:
    """Open a database, and create its tables if there are none."""
    if isinstance(place, Path):
        file.prepare(place / _FILE, create=True)
    with _connected(place) as target:
        if isinstance(target, Postgres):
            target.prepare()
        yield target


@contextmanager
def _connected(place: Place) -> Iterator[Sqlite | Postgres]:
    if isinstance(place, Path):
        path = place / _FILE
        file.identity(path)
        with file.mapped(path), closing(file.connect(path)) as connection:
            yield Sqlite(path, connection)
        return
    name = place_of(place)
    with mapped(name), closing(connect(place)) as raw:
        yield Postgres(name, raw)
