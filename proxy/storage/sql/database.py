"""What the rules need of a database: a connection inside a transaction, and threads that run work on one.

The rules are written in the SQL that SQLite and PostgreSQL share, with `?` or `:name` as placeholders. SQLite
runs that text as it is; the PostgreSQL driver translates it (postgres/database.py lists how).

Reading and writing fail apart: on a full disk everything that is remembered can still be recalled. An outage
is over with the first operation of its side that works, so an idle process tries one now and then
(Database.probe). A corrupt file is the exception: it is read where it can be, and not written until a
check of all of it has passed, or another file has taken its place, since writing spreads the damage.

On a disk that is nearly full, small writes work between large ones that do not. So the log reports an outage
as over only when it has not come back for a while."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from proxy import telemetry
from proxy.domain.errors import DamagedRow as DamagedRow
from proxy.domain.errors import StoreUnavailable

P = ParamSpec("P")
S = TypeVar("S", bound="Store")
T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]
BEYOND_ALL = 2**63 - 1  # a number that no row has
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class Cursor(Protocol):
    """Rows of one statement, as tuples."""

    @property
    def rowcount(self) -> int: ...

    @property
    def description(self) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Connection(Protocol):
    """A connection inside a transaction. Both drivers' connections satisfy it."""

    @property
    def for_update(self) -> str:
        """What ends a SELECT of rows that this transaction is about to change: `FOR UPDATE` where several
        transactions write at once, nothing where there is one writer."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any: ...


Work = Callable[[Connection], T]
"""Runs in a thread, inside a transaction, and perhaps again in another one: it returns plain values, keeps no
cursor, and changes nothing but the database."""


class Database(Protocol):
    """Runs work in threads. Every method raises StoreUnavailable where the database cannot be used."""

    @property
    def outages(self) -> "Outages": ...

    @property
    def is_open(self) -> bool: ...

    epoch: int  # rises when what was read before is void: another file, or another server
    commits: int  # so far

    async def write(self, work: Work[T], *, purge: bool = False) -> T:
        """Run the work in a write transaction and return its result once it is durable.

        With `purge`, what it deleted is to be removed from the database's logs too, where the engine can."""

    async def read(self, work: Work[T]) -> T:
        """Run the work on one consistent state of the database."""

    def begin_read(self, work: Work[T]) -> asyncio.Future[T]:
        """Begin a short read at once; several begun together may share a transaction."""

    async def probe(self) -> None:
        """Try what is in trouble, so that it is known when that is over. Never raises StoreUnavailable."""

    async def close(self) -> None:
        """Finish the writes that wait, then end the threads."""

    async def purge_if_due(self) -> None:
        """Do what a `purge` has left undone."""

    async def checkpoint(self) -> None:
        """Give other writers a turn between the portions of a large change."""


async def try_out(database: Database) -> None:
    """Read and write something. Raises StoreUnavailable while that fails."""
    # Another value each time: SQLite does not write what stays the same.
    mark = "INSERT INTO meta VALUES ('probe', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    await database.read(lambda tx: tx.execute("SELECT count(*) FROM meta").fetchone())
    await database.write(lambda tx: tx.execute(mark, (str(time.time()),)).close())


class Store:
    """A store over a database. Its methods marked `reads` or `writes` run in a transaction of their own.

    `instance` is this process, None until the store is open."""

    instance: "Instance | None" = None

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _living(self) -> "Instance":
        assert self.instance is not None, "the database is open only after the instance lives"
        return self.instance


def column(tx: Connection, sql: str, parameters: Parameters = ()) -> tuple[Any, ...]:
    return tuple(row[0] for row in tx.execute(sql, parameters))


def value(tx: Connection, sql: str, parameters: Parameters = ()) -> Any:
    row = tx.execute(sql, parameters).fetchone()
    return row[0] if row else None


def reads(work: Callable[Concatenate[S, Connection, P], T]) -> "Method[S, P, T]":
    """Make a method that is given a transaction one that awaits Database.read."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda tx: work(self, tx, *args, **kwargs))

    return method


def writes(work: Callable[Concatenate[S, Connection, P], T], *, purge: bool = False) -> "Method[S, P, T]":
    """Make a method that is given a transaction one that awaits Database.write."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda tx: work(self, tx, *args, **kwargs), purge=purge)

    return method


def purges(work: Callable[Concatenate[S, Connection, P], T]) -> "Method[S, P, T]":
    """The same; what the method deletes is removed from the database's logs too."""
    return writes(work, purge=True)


class Instance(Protocol):
    """This process among those that share the database."""

    @property
    def id(self) -> str: ...

    def is_dead(self, tx: Connection, instance: str) -> bool:
        """True if the process with this id has ended."""

    def clean(self) -> None:
        """Remove what dead processes have left."""

    def close(self) -> None:
        """Be dead to the others."""


# ---------------------------------------------------------------- damaged rows
@contextmanager
def legible() -> Iterator[None]:
    """Raise DamagedRow, without any content, where rows cannot be made into values in here.

    For one whole read, not for each of its rows, and for nothing else: it would hide other errors."""
    try:
        yield
    except (ValueError, TypeError) as error:
        # `from None`: the original error carries what the row says.
        raise DamagedRow(f"a row is damaged ({type(error).__name__}): restore a backup") from None


# ---------------------------------------------------------------- outages
Side = Literal["read", "write"]

CORRUPT = "store_corrupt"
DISK_FULL = "store_disk_full"
READ_ONLY = "store_read_only"
LOCKED = "store_locked"  # too many at once: locks, connections, or statements that take too long
UNAVAILABLE = "store_unavailable"  # missing, unreadable, or the disk fails

REMIND_S = 60.0  # between two log lines about the same outage
HOLD_S = 10.0  # without a failure until it is over; longer than a write waits for a lock


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the errors of one database engine mean."""

    kind_of: Callable[[BaseException], str | None]  # the outage that an error shows, None for another fault
    name_of: Callable[[BaseException], str]  # the engine's name for an error: no content, path or password
    engine_error: type[Exception]


@dataclass(slots=True)
class _Outage:
    operation: Side
    since: float
    logged_at: float = float("-inf")
    over_at: float | None = None  # None: it lasts


class Outages:
    """What is wrong with one database now. May be called from the threads that use it."""

    def __init__(self, diagnosis: Diagnosis, steady: Callable[[], float] = time.monotonic) -> None:
        self._diagnosis, self._steady = diagnosis, steady
        self._now: dict[Side, str] = {}
        self._open: dict[str, _Outage] = {}  # as the log has it, by kind
        self._seldom = telemetry.ThrottledLog(steady)

    @property
    def current(self) -> str:
        """What is wrong with reading, else with writing; "" for nothing."""
        return self._now.get("read") or self._now.get("write") or ""

    @property
    def of_reading(self) -> str:
        """What is wrong with reading; "" for nothing."""
        return self._now.get("read", "")

    @property
    def is_corrupt(self) -> bool:
        """True while the file must not be written."""
        return CORRUPT in self._now.values()

    def failed(self, side: Side, error: BaseException) -> None:
        if isinstance(error, DamagedRow):  # no outage: it would end with the next sound row
            self._seldom.error("store.row_damaged", operation=side)
        kind, name = self._diagnosis.kind_of(error), self._diagnosis.name_of(error)
        if kind is None and isinstance(error.__cause__, self._diagnosis.engine_error):
            self._seldom.error("store.failed", operation=side, error=name)  # the statement's fault
        if kind is None or (self.is_corrupt and kind != CORRUPT):
            return
        if self._now.get(side) != kind:
            self._end(side)
            self._now[side] = kind
        self.settle()
        now = self._steady()
        outage = self._open.setdefault(kind, _Outage(side, now))
        outage.over_at = None
        if now - outage.logged_at >= REMIND_S:
            outage.logged_at = now
            telemetry.log.error("store.trouble", kind=kind, operation=side, error=name)

    @contextmanager
    def noting(self, side: Side) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as error:
            self.failed(side, error)
            raise
        self.worked(side)

    def worked(self, side: Side) -> None:
        """Record an operation that worked: nothing is wrong with its side, unless the file is corrupt."""
        if side in self._now and not self.is_corrupt:
            self._end(side)

    def repaired(self) -> None:
        """The file is another now, or was checked and is sound."""
        for side in tuple(self._now):
            self._end(side)

    def settle(self) -> None:
        """Log what has been over for a while. To be called now and then."""
        for kind, outage in tuple(self._open.items()):
            over_at = outage.over_at
            if over_at is None or self._steady() - over_at < HOLD_S:
                continue
            if self._open.pop(kind, None) is not None:  # not by another thread
                seconds, operation = round(over_at - outage.since, 1), outage.operation
                telemetry.log.warning("store.recovered", kind=kind, operation=operation, seconds=seconds)

    def _end(self, side: Side) -> None:
        kind = self._now.pop(side, "")
        outage = self._open.get(kind)
        if outage is not None and outage.over_at is None and kind not in self._now.values():
            outage.over_at = self._steady()
        self.settle()
