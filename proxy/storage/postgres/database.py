"""Asynchronous access to a PostgreSQL database: threads with a connection each, for reads and for writes.

A write is a transaction of its own (READ COMMITTED). The rules lock the row of the user first, so that writes
about one user follow each other, whichever replica does them. A transaction that has to give way (a deadlock,
a row that another has just made) is done again. A read sees one state (REPEATABLE READ).

The threads are the bound of the pool: each opens its connection when it first needs one, and another when
that one has broken. So an error of the connection reaches the operation that met it, with its cause, and the
first operation after an outage finds the server again.

The schema is created, or brought up to date, step by step in one transaction: a process that is killed leaves
the database as it was. A database of another program is refused.

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
    user                        a reserved word: quoted"""

import asyncio
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, partial
from importlib import resources
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrDumper

from proxy import telemetry
from proxy.domain.errors import ConfigError, StoreUnavailable, UnfitStore
from proxy.domain.limits import CircuitBreaker, lower_thread_priority
from proxy.storage.sql.database import (
    DISK_FULL,
    LOCKED,
    READ_ONLY,
    UNAVAILABLE,
    Diagnosis,
    Outages,
    Side,
    Work,
    try_out,
)

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
    parts = _LITERAL.split(sql.replace("%", "%%"))
    for n, plain in enumerate(parts[::2]):  # what is outside of quotes
        plain = _BYTES.sub(r"octet_length(\1)", plain)
        plain = _ORDERED_JOIN.sub("JOIN ", plain)
        plain = _SAME.sub(lambda found: f"IS {'' if found[1] else 'NOT '}DISTINCT FROM ", plain)
        plain = _USER.sub('"user"', plain.replace("AS INTEGER", "AS BIGINT"))
        parts[2 * n] = _NAMED.sub(r"%(\1)s", plain).replace("?", "%s")
    return "".join(parts).encode()


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


def _key(path: str) -> str:
    """Return the position or the key of a quoted path such as $[0] or $.key, as `->>` takes it."""
    path = path.strip(" '\n")
    return path[2:-1] if path.startswith("$[") else f"'{path[2:]}'"


_FUNCTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "iif": lambda a: f"CASE WHEN {a[0]} THEN {a[1]} ELSE {a[2]} END",
    "instr": lambda a: f"strpos({','.join(a)})",
    "lower": lambda a: f'lower(({a[0]}) COLLATE "C")',
    "max": lambda a: f"{'max' if len(a) == 1 else 'greatest'}({','.join(a)})",  # max(a): the aggregate
    "min": lambda a: f"{'min' if len(a) == 1 else 'least'}({','.join(a)})",
    "json_extract": lambda a: f"(({a[0]})::jsonb ->> {_key(a[1])})",
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


# By the name of the SQLSTATE: an error's message may hold a value, an address or a password.
DIAGNOSIS = Diagnosis(kind_of, lambda error: type(_engine_error(error) or error).__name__, psycopg.Error)


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
    """A connection inside a transaction, as the rules need one: see sql/database.py."""

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
        # In words of ours: the error's own may hold a value or a password.
        remedy = _REMEDIES.get(type(error)) or type(error).__name__
        if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
            meanings = (meaning for words, meaning in _UNREACHED.items() if words in str(error))
            remedy = _CROWDED if _is_crowded(str(error)) else next(meanings, "the server cannot be reached")
        raise StoreUnavailable(f"{place}: {remedy}") from error
    except UnicodeEncodeError:
        # `from None`: the original error carries the text itself.
        raise StoreUnavailable(f"{place}: an identifier is not valid Unicode") from None


# ---------------------------------------------------------------- schema
SCHEMA_VERSION = 5  # schema_v1.sql … are applied in order
_LOCK = 0x6D656D70  # "memp": processes that start together take turns
_OURS = ("application", "memory-proxy")  # a row of `meta`
_VERSION = "schema"  # another


def prepare(connection: Raw, place: str) -> None:
    """Leave tables of the newest schema. Raises UnfitStore for a newer or a foreign database."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = version_of(connection, place)
        for step in range(version + 1, SCHEMA_VERSION + 1):
            script = resources.files(__package__).joinpath(f"schema_v{step}.sql").read_text("utf-8")
            connection.execute(script.encode())
        if version < SCHEMA_VERSION:
            keep = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            connection.execute(keep, _OURS)
            connection.execute(keep, (_VERSION, str(SCHEMA_VERSION)))


def version_of(connection: Raw, place: str) -> int:
    """Return the version of the schema, 0 where there are no tables. Raises UnfitStore as `prepare` does."""
    found = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    ).fetchall()
    if not found:
        if connection.execute("SELECT current_schema()").fetchone() == (None,):
            raise StoreUnavailable(f"{place}: no schema of the search_path exists: create it, or grant USAGE")
        return 0
    known: dict[str, str] = {}
    if ("meta",) in found and ("scopes",) in found:
        known = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    if known.get(_OURS[0]) != _OURS[1]:
        raise UnfitStore(
            f"{place} holds tables of another program: name an empty database in storage.postgres_url, or a"
            " schema of its own (…?options=-csearch_path%3Dmemory_proxy, after CREATE SCHEMA memory_proxy)"
        )
    version = int(known[_VERSION])
    if version > SCHEMA_VERSION:
        raise UnfitStore(
            f"{place} was made by a newer version of memory-proxy: schema {version}, this one knows"
            f" {SCHEMA_VERSION}. Update all replicas"
        )
    return version


# ---------------------------------------------------------------- transactions
T = TypeVar("T")

_ATTEMPTS = 8  # of a transaction that has to give way
_PAUSE_S = 0.005  # before the second, at most; doubled each time
_MOST_WAITING = 10_000  # writes; beyond that the server is stuck and memory should step aside
_QUIET_S = 0.5  # after a failed connection: the next ones fail at once instead of waiting for the network
_BEGIN_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Lost(Exception):
    """An idle connection turned out to be broken before anything was done on it."""


class PostgresDatabase:
    """Threads over one database. `open()` may be tried again after it failed; after `close()` it is over."""

    def __init__(self, url: str, *, connections: int = 8) -> None:
        self.url = url
        self.place = place_of(url)
        self.commits = 0
        self.epoch = 0  # rises with each outage: the server that answers then may have lost what was read
        self.outages = Outages(DIAGNOSIS)
        self.is_open = False
        self._closed = False
        self._waiting = 0  # writes
        self._mine = threading.local()
        self._all: set[Raw] = set()
        self._guard = threading.Lock()  # of the set, the counters and what follows
        self._breaker = CircuitBreaker(_QUIET_S)
        self._refusal = psycopg.Error()
        readers = max(1, connections // 2)
        self._readers = ThreadPoolExecutor(readers, "store-reader", initializer=lower_thread_priority)
        writers = max(1, connections - readers)
        self._writers = ThreadPoolExecutor(writers, "store-writer", initializer=lower_thread_priority)

    async def open(self) -> None:
        """Create the tables, or check them. Raises StoreUnavailable, UnfitStore for what is not ours."""
        await asyncio.wrap_future(self._writers.submit(self._open))

    async def close(self) -> None:
        """Finish the writes that wait, then end the threads and their connections."""
        self._closed = True

        def shutdown() -> None:
            self._writers.shutdown(wait=True)
            self._readers.shutdown(wait=True)
            for raw in list(self._all):
                with suppress(psycopg.Error):
                    raw.close()

        await asyncio.to_thread(shutdown)

    async def write(self, work: Work[T], *, purge: bool = False) -> T:
        """See Database. `purge`: VACUUM and the archive of the log are the server's own."""
        with self._guard:
            self._refuse_unless_open()
            if self._waiting >= _MOST_WAITING:
                raise StoreUnavailable(f"{self.place} is overloaded")
            self._waiting += 1
        future = asyncio.wrap_future(self._writers.submit(self._write, work))
        return await asyncio.shield(future)  # work whose caller is cancelled is still done

    async def read(self, work: Work[T]) -> T:
        return await self.begin_read(work)

    def begin_read(self, work: Work[T]) -> asyncio.Future[T]:
        self._refuse_unless_open()
        read = partial(self._transaction, _BEGIN_READ, work)
        return asyncio.wrap_future(self._readers.submit(self._done, "read", read))

    def _refuse_unless_open(self) -> None:
        if self._closed or not self.is_open:
            raise StoreUnavailable(f"{self.place} is {'closed' if self._closed else 'not open'}")

    async def purge_if_due(self) -> None:
        """Nothing: dead rows are the server's to remove (autovacuum)."""

    async def checkpoint(self) -> None:
        """Let other tasks run between two portions."""
        await asyncio.sleep(0)

    async def probe(self) -> None:
        self.outages.settle()
        if self.outages.current and self.is_open:
            with suppress(StoreUnavailable):
                await try_out(self)

    # ------------------------------------------------------------ in the threads
    def _open(self) -> None:
        with self._noting("write"), self._connection() as connection:
            prepare(connection, self.place)
        if not self.is_open:
            self.is_open = True
            telemetry.log.info("store.opened")

    def _write(self, work: Work[T]) -> T:
        def repeated() -> T:
            pause = _PAUSE_S
            for _ in range(_ATTEMPTS - 1):
                with suppress(*REPEATABLE):
                    return self._transaction(_BEGIN_WRITE, work)
                time.sleep(random.uniform(0, pause))
                pause *= 2
            return self._transaction(_BEGIN_WRITE, work)

        try:
            result = self._done("write", repeated)
        finally:
            with self._guard:
                self._waiting -= 1
        self.commits += 1
        return result

    def _done(self, side: Side, run: Callable[[], T]) -> T:
        """Run it, on another connection if an idle one had broken, and note how it went."""
        with self._noting(side):
            while True:
                with suppress(_Lost):
                    return run()

    @contextmanager
    def _noting(self, side: Side) -> Iterator[None]:
        with self.outages.noting(side), mapped(self.place):
            yield

    def _transaction(self, begin: bytes, work: Work[T]) -> T:
        with self._connection() as raw:
            try:
                raw.execute(begin)
            except psycopg.OperationalError as error:
                if raw.broken:
                    raise _Lost from error
                raise
            try:
                result = work(PostgresConnection(raw))
                raw.execute(b"COMMIT")
            finally:
                if not raw.closed and raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    raw.execute(b"ROLLBACK")
        return result

    # ------------------------------------------------------------ connections
    @contextmanager
    def _connection(self) -> Iterator[Raw]:
        """Give this thread's connection to the block; one that has broken, or is read-only, is closed."""
        raw: Raw | None = getattr(self._mine, "raw", None)
        if raw is None or raw.closed:
            if self._breaker.is_open:
                raise self._refusal
            try:
                raw = self._mine.raw = connect(self.url)
            except psycopg.Error as error:
                self._breaker.failed()
                self._refusal = error.with_traceback(None)
                raise
            self._breaker.succeeded()
            with self._guard:
                self._all.add(raw)
            if UNAVAILABLE in (self.outages.current, self.outages.of_reading):
                self.epoch += 1
        try:
            yield raw
        except BaseException as error:
            # After a failover the address may lead to another server, which can be written to.
            if raw.broken or raw.closed or kind_of(error) == READ_ONLY:
                with suppress(psycopg.Error):
                    raw.close()
                self._mine.raw = None
                with self._guard:
                    self._all.discard(raw)
            raise
