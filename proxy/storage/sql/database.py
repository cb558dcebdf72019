"""What the rules need of a database: a connection inside a transaction, and threads that run work on one.

The rules are written in the SQL that SQLite and PostgreSQL share, with `?` or `:name` as placeholders. SQLite
runs that text as it is; the PostgreSQL driver translates it (postgres/connection.py lists how).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from proxy.domain.errors import DamagedRow as DamagedRow

if TYPE_CHECKING:
    from proxy.storage.sql.outages import Outages

P = ParamSpec("P")
S = TypeVar("S", bound="Store")
T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


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
        ...

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
        ...

    async def read(self, work: Work[T]) -> T:
        """Run the work on one consistent state of the database."""
        ...

    def begin_read(self, work: Work[T]) -> asyncio.Future[T]:
        """Begin a short read at once; several begun together may share a transaction."""
        ...

    async def probe(self) -> None:
        """Try what is in trouble, so that it is known when that is over. Never raises StoreUnavailable."""
        ...

    async def purge_if_due(self) -> None:
        """Do what a `purge` has left undone."""
        ...

    async def checkpoint(self) -> None:
        """Give other writers a turn between the portions of a large change."""
        ...


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


def reads(
    work: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that is given a transaction one that awaits Database.read."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda tx: work(self, tx, *args, **kwargs))

    return method


def writes(
    work: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that is given a transaction one that awaits Database.write."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda tx: work(self, tx, *args, **kwargs))

    return method


def purges(
    work: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The same; what the method deletes is removed from the database's logs too."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda tx: work(self, tx, *args, **kwargs), purge=True)

    return method


class Instance(Protocol):
    """This process among those that share the database."""

    @property
    def id(self) -> str: ...

    def is_dead(self, tx: Connection, instance: str) -> bool:
        """True if the process with this id has ended."""
        ...

    def clean(self) -> None:
        """Remove what dead processes have left."""
        ...


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
