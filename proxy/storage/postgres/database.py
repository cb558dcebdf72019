"""Asynchronous access to a PostgreSQL database: threads with a connection each, for reads and for writes.

A write is a transaction of its own (READ COMMITTED). The rules lock the row of the user first, so that writes
about one user follow each other, whichever replica does them. A transaction that has to give way (a deadlock,
a row that another has just made) is done again. A read sees one state (REPEATABLE READ).

The threads are the bound of the pool: each opens its connection when it first needs one, and another when
that one has broken. So an error of the connection reaches the operation that met it, with its cause, and the
first operation after an outage finds the server again.

The schema is created, or brought up to date, step by step in one transaction: a process that is killed leaves
the database as it was. A database of another program is refused.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib import resources
from typing import TypeVar

import psycopg

from proxy import telemetry
from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.domain.limits import CircuitBreaker, lower_thread_priority
from proxy.storage.postgres.connection import (
    DIAGNOSIS,
    REPEATABLE,
    PostgresConnection,
    Raw,
    connect,
    kind_of,
    mapped,
    place_of,
)
from proxy.storage.sql.database import READ_ONLY, UNAVAILABLE, Outages, Side, Work, try_out

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
        await asyncio.to_thread(self._shutdown)

    async def write(self, work: Work[T], *, purge: bool = False) -> T:
        """See sql/connection.py. `purge`: VACUUM and the archive of the log are the server's own."""
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
        try:
            result = self._done("write", partial(self._repeated, work))
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

    def _repeated(self, work: Work[T]) -> T:
        pause = _PAUSE_S
        for _ in range(_ATTEMPTS - 1):
            with suppress(*REPEATABLE):
                return self._transaction(_BEGIN_WRITE, work)
            time.sleep(random.uniform(0, pause))
            pause *= 2
        return self._transaction(_BEGIN_WRITE, work)

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
            raw = self._mine.raw = self._connect()
        try:
            yield raw
        except BaseException as error:
            # After a failover the address may lead to another server, which can be written to.
            if raw.broken or raw.closed or kind_of(error) == READ_ONLY:
                self._discard(raw)
            raise

    def _connect(self) -> Raw:
        if self._breaker.is_open:
            raise self._refusal
        try:
            raw = connect(self.url)
        except psycopg.Error as error:
            self._breaker.failed()
            self._refusal = error.with_traceback(None)
            raise
        self._breaker.succeeded()
        with self._guard:
            self._all.add(raw)
        if UNAVAILABLE in (self.outages.current, self.outages.of_reading):
            self.epoch += 1
        return raw

    def _discard(self, raw: Raw) -> None:
        with suppress(psycopg.Error):
            raw.close()
        self._mine.raw = None
        with self._guard:
            self._all.discard(raw)

    def _shutdown(self) -> None:
        self._writers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        for raw in list(self._all):
            with suppress(psycopg.Error):
                raw.close()
