"""Connections to PostgreSQL, with the types and the placeholders that the rules use."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrDumper

from proxy.domain.errors import ConfigError, StoreUnavailable
from proxy.storage.postgres.dialect import translate
from proxy.storage.postgres.trouble import is_crowded

Raw = psycopg.Connection[tuple[Any, ...]]

# A server that disappears silently is noticed after 10 s, unless the URL says otherwise.
_DEFAULTS = {
    "application_name": "memory-proxy",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "10000",
}
_SETTINGS = (
    ("statement_timeout", "30s"),  # a statement that is stuck must not hold its user's lock for good
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("jit", "off"),  # compiling takes longer than any of our statements
)
_REFUSED = "the server refuses the user or the password of storage.postgres_url"
_CROWDED = "the server has too many connections: raise max_connections, or lower storage.postgres_connections"
_PREPARED = 500  # statements of a connection: the rules have some 300
_OFTEN = 2  # times that a statement is run before it is prepared


class _Integer(Dumper):
    """Numbers and truth values, all of one type, so that a statement is prepared once."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: Any) -> bytes:
        return b"%d" % obj


class _Sum(NumericBinaryLoader):
    """Sums of 64-bit numbers, which PostgreSQL returns as `numeric`."""

    def load(self, data: Any) -> Any:
        value: Decimal = super().load(data)
        return int(value) if value == value.to_integral_value() else float(value)


@dataclass(frozen=True, slots=True)
class PostgresConnection:
    """A connection inside a transaction, as the rules need one: see sql/connection.py."""

    raw: Raw
    for_update: str = field(default=" FOR UPDATE", init=False)

    def execute(self, sql: str, parameters: Any = (), /) -> "psycopg.Cursor[tuple[Any, ...]]":
        missing: frozenset[str] = frozenset()
        if isinstance(parameters, dict):
            missing = frozenset(name for name, value in parameters.items() if value is None)
        return self.raw.execute(translate(sql, missing), parameters, binary=True)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> "psycopg.Cursor[tuple[Any, ...]]":
        cursor = self.raw.cursor()
        cursor.executemany(translate(sql), parameters)
        return cursor


def connect(url: str) -> Raw:
    """Open a connection in autocommit mode. Raises psycopg.Error."""
    given = conninfo_to_dict(url)
    missing: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=_OFTEN, **missing)
    connection.prepared_max = _PREPARED
    for kind in (int, bool):
        connection.adapters.register_dumper(kind, _Integer)
    connection.adapters.register_dumper(str, StrDumper)
    connection.adapters.register_loader("numeric", _Sum)
    chosen = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS)
    connection.execute(f"SELECT {chosen}".encode())
    return connection


def place_of(url: str) -> str:
    """Return where the URL points to, without user and password."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its message repeats the URL
        raise ConfigError("storage.postgres_url is no URL that PostgreSQL's libpq reads") from None
    host, port, name = (str(given.get(key) or "") for key in ("host", "port", "dbname"))
    return f"postgresql://{host or 'localhost'}{':' + port if port else ''}/{name}"


@contextmanager
def mapped(place: str) -> Iterator[None]:
    """Raise StoreUnavailable, without any content, for what PostgreSQL refuses."""
    try:
        yield
    except psycopg.Error as error:
        raise StoreUnavailable(f"{place}: {_remedy(error)}") from error
    except UnicodeEncodeError:
        # `from None`: the original error carries the text itself.
        raise StoreUnavailable(f"{place}: an identifier is not valid Unicode") from None


def _remedy(error: psycopg.Error) -> str:
    """Return what happened in words of ours: the error's own may hold a value or a password."""
    match error:
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return _REFUSED
        case errors.InvalidCatalogName():
            return "there is no such database: create it (createdb), or correct storage.postgres_url"
        case errors.InsufficientPrivilege():
            return "the user may not do this: grant CREATE and USAGE on the schema"
        case errors.TooManyConnections():
            return _CROWDED
        case errors.DiskFull():
            return "the server's disk is full"
        case errors.ReadOnlySqlTransaction():
            return "the server is read-only: it is a standby, or was set so"
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return _unreached(str(error))
    return type(error).__name__


def _unreached(message: str) -> str:
    """Return why no connection was made. libpq gives no SQLSTATE for that, only words."""
    if is_crowded(message):
        return _CROWDED
    for words, meaning in (
        (
            "password authentication failed",
            "the server refuses the user or the password of storage.postgres_url",
        ),
        ("no password supplied", "the server wants a password: storage.postgres_url has none"),
        ("no pg_hba.conf entry", "the server does not admit this user from here (pg_hba.conf)"),
        ("does not exist", "there is no such user or database"),
        ("starting up", "the server is starting up"),
        ("shutting down", "the server is shutting down"),
    ):
        if words in message:
            return meaning
    return "the server cannot be reached"
