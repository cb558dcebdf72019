"""Connections to PostgreSQL: the types and placeholders that the rules use, and what its errors mean.

The SQL of the rules, which SQLite runs as it is, is translated to PostgreSQL's, each statement once. What
differs, and all that may be used in the rules:

    ?, :name                    %s, %(name)s
    a IS ?, a IS :b, a IS b.c   a IS NOT DISTINCT FROM …; likewise IS NOT
    CROSS JOIN t ON …           JOIN t ON …: SQLite takes tables in this order, PostgreSQL has statistics
    iif(a, b, c)                CASE WHEN a THEN b ELSE c END
    max(a, b), min(a, b)        greatest, least: which ignore NULL, so neither argument may be NULL
    instr(a, b), lower(a)       strpos, and lower for ASCII only
    json_each(a) [name]         the elements of a JSON array as text, in the column `value`
    json_extract(a, '$[0]')     by position, or '$.key'
    json_array(a, b)            a JSON array
    length(CAST(a AS BLOB))     the bytes of a text
    CAST(a AS INTEGER)          as a 64-bit number
    user                        a reserved word: quoted
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrDumper

from proxy.domain.errors import ConfigError, StoreUnavailable
from proxy.storage.sql.database import DISK_FULL, LOCKED, READ_ONLY, UNAVAILABLE, Diagnosis

# ---------------------------------------------------------------- dialect
_LITERAL = re.compile(r"('(?:[^']|'')*')")
_COMMENT = re.compile(r"--[^\n]*")
_NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_SAME = re.compile(r"\bIS (NOT )?(?=[:?]|[a-z_]+\.)")
_ORDERED_JOIN = re.compile(r"\bCROSS JOIN (?=\w+(?: \w+)? ON\b)")
_USER = re.compile(r'(?<![.:\w"])user(?![\w"])')
_BYTES = re.compile(r"\blength\(CAST\(([\w.]+) AS BLOB\)\)")
_CALL = re.compile(r"\b(iif|instr|lower|max|min|json_each|json_extract|json_array)\(")
_ALIAS = re.compile(r"\s+(?:AS )?(?!ON\b|JOIN\b|CROSS\b|WHERE\b|GROUP\b|ORDER\b|UNION\b|AND\b)([a-z_]+)")


@lru_cache(maxsize=4096)
def translate(sql: str, missing: frozenset[str] = frozenset()) -> bytes:
    """Return the statement in PostgreSQL's dialect, with psycopg's placeholders.

    `missing`: names of parameters that are None. NULL is written in their place: PostgreSQL asks for the type
    of a parameter in `:name IS NULL`, and plans without the condition where it is NULL."""
    if missing:
        sql = _NAMED.sub(lambda found: "NULL" if found[1] in missing else found[0], sql)
    sql = _calls(_COMMENT.sub("", sql))
    parts = _LITERAL.split(sql)
    return "".join(
        part.replace("%", "%%") if n % 2 else _plain(part) for n, part in enumerate(parts)
    ).encode()


def _plain(sql: str) -> str:
    """Translate what is outside of quotes."""
    sql = _BYTES.sub(r"octet_length(\1)", sql.replace("%", "%%"))
    sql = _ORDERED_JOIN.sub("JOIN ", sql)
    sql = _SAME.sub(lambda found: "IS DISTINCT FROM " if found[1] else "IS NOT DISTINCT FROM ", sql)
    sql = _USER.sub('"user"', sql.replace("AS INTEGER", "AS BIGINT"))
    return _NAMED.sub(r"%(\1)s", sql).replace("?", "%s")


def _calls(sql: str) -> str:
    """Translate the functions, the innermost last."""
    found = _CALL.search(sql)
    if found is None:
        return sql
    end, arguments = _arguments(sql, found.end())
    name, rest = found[1], sql[end:]
    if name == "json_each":
        alias = _ALIAS.match(rest)
        rest = rest[alias.end() :] if alias else rest
        name = alias[1] if alias else "each"
        call = f"jsonb_array_elements_text(({_calls(arguments[0])})::jsonb) AS {name}(value)"
    else:
        call = _FUNCTIONS[name]([_calls(each) for each in arguments])
    return sql[: found.start()] + call + _calls(rest)


def _extract(arguments: Sequence[str]) -> str:
    path = arguments[1].strip().strip("'")
    key = path[2:-1] if path.startswith("$[") else f"'{path[2:]}'"
    return f"(({arguments[0]})::jsonb ->> {key})"


_FUNCTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "iif": lambda a: f"CASE WHEN {a[0]} THEN {a[1]} ELSE {a[2]} END",
    "instr": lambda a: f"strpos({','.join(a)})",
    "lower": lambda a: f'lower(({a[0]}) COLLATE "C")',
    "max": lambda a: f"{'max' if len(a) == 1 else 'greatest'}({','.join(a)})",  # max(a): the aggregate
    "min": lambda a: f"{'min' if len(a) == 1 else 'least'}({','.join(a)})",
    "json_extract": _extract,
    "json_array": lambda a: f"jsonb_build_array({','.join(a)})",
}


def _arguments(sql: str, start: int) -> tuple[int, list[str]]:
    """Return where the call that began before `start` ends, and its arguments."""
    arguments: list[str] = []
    depth, quoted, begun = 1, False, start
    for at in range(start, len(sql)):
        sign = sql[at]
        if sign == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            if depth == 0:
                return at + 1, [*arguments, sql[begun:at]]
        elif sign == "," and depth == 1:
            arguments.append(sql[begun:at])
            begun = at + 1
    raise ValueError(f"a call without an end: {sql}")


# ---------------------------------------------------------------- errors
# By SQLSTATE, or its class of two characters: https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_STATE = {
    "25006": READ_ONLY,  # a standby, or default_transaction_read_only
    "53100": DISK_FULL,
    "53300": LOCKED,  # too many connections
    "53": UNAVAILABLE,  # insufficient resources
    "55P03": LOCKED,  # lock_timeout
    "57014": LOCKED,  # statement_timeout
    "25P03": LOCKED,  # idle in a transaction for too long
    "25P04": LOCKED,
    "40": LOCKED,  # serialisation failure or deadlock, again and again
    "08": UNAVAILABLE,  # connection
    "57": UNAVAILABLE,  # shutdown, starting up
    "58": UNAVAILABLE,  # the server's disk
    "28": UNAVAILABLE,  # wrong user or password
    "3D": UNAVAILABLE,  # no such database
    "42501": UNAVAILABLE,  # privileges
    "XX": UNAVAILABLE,  # an internal error, or a damaged page
}
REPEATABLE = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)
"""The transaction had to give way, or met a row that another has just made: its work may be repeated."""


def _is_crowded(message: str) -> bool:
    """True if the server refused a connection since it has too many. libpq gives no SQLSTATE for that."""
    return "too many" in message or "remaining connection slots" in message


def _engine_error(error: BaseException | None) -> psycopg.Error | None:
    while error is not None and not isinstance(error, psycopg.Error):
        error = error.__cause__
    return error


def kind_of(error: BaseException) -> str | None:
    """Return the outage that the error shows; None for what is not the database's fault."""
    found = _engine_error(error)
    if found is None:
        return None
    if (state := found.sqlstate) is not None:
        return _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if not isinstance(found, psycopg.OperationalError):
        return None
    return LOCKED if _is_crowded(str(found)) else UNAVAILABLE


def _name_of(error: BaseException) -> str:
    """Return SQLSTATE's name for the error. Its message may hold a value, an address or a password."""
    return type(_engine_error(error) or error).__name__


DIAGNOSIS = Diagnosis(kind_of, _name_of, psycopg.Error)


# ---------------------------------------------------------------- connections
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
_REMEDIES: dict[type[psycopg.Error], str] = {
    errors.InvalidPassword: _REFUSED,
    errors.InvalidAuthorizationSpecification: _REFUSED,
    errors.InvalidCatalogName: (
        "there is no such database: create it (createdb), or correct storage.postgres_url"
    ),
    errors.InsufficientPrivilege: "the user may not do this: grant CREATE and USAGE on the schema",
    errors.TooManyConnections: _CROWDED,
    errors.DiskFull: "the server's disk is full",
    errors.ReadOnlySqlTransaction: "the server is read-only: it is a standby, or was set so",
}
# Why no connection was made. libpq gives no SQLSTATE for that, only words.
_UNREACHED = {
    "password authentication failed": _REFUSED,
    "no password supplied": "the server wants a password: storage.postgres_url has none",
    "no pg_hba.conf entry": "the server does not admit this user from here (pg_hba.conf)",
    "does not exist": "there is no such user or database",
    "starting up": "the server is starting up",
    "shutting down": "the server is shutting down",
}
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
        named = parameters.items() if isinstance(parameters, dict) else ()
        missing = frozenset(name for name, value in named if value is None)
        return self.raw.execute(translate(sql, missing), parameters, binary=True)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> "psycopg.Cursor[tuple[Any, ...]]":
        cursor = self.raw.cursor()
        cursor.executemany(translate(sql), parameters)
        return cursor


def connect(url: str) -> Raw:
    """Open a connection in autocommit mode. Raises psycopg.Error."""
    given: dict[str, Any] = {**_DEFAULTS, **conninfo_to_dict(url)}
    connection = psycopg.connect(autocommit=True, prepare_threshold=_OFTEN, **given)
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
        raise ConfigError("storage.postgres_url is not a URL that PostgreSQL's libpq reads") from None
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
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        if _is_crowded(str(error)):
            return _CROWDED
        meanings = (meaning for words, meaning in _UNREACHED.items() if words in str(error))
        return next(meanings, "the server cannot be reached")
    return _REMEDIES.get(type(error)) or type(error).__name__
