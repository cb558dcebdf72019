"""Asynchronous access to one SQLite file: a writer thread that commits in groups, and reader threads.

Writes wait in a list. The writer takes all that have gathered while it was busy and runs them in one
transaction, each in a savepoint of its own: one fsync serves them all, and work that raises undoes only
itself. A caller resumes after the commit. Every thread has its own connection; sharing one would mix
their transactions. Several processes may use the file: the write lock is SQLite's own.

The short reads of a request, begun at one time, are done together as well: to hand one to a thread, and to
begin and end its transaction, costs several times what it reads.

Before any work the path is compared with the file that was opened. Work on a file that was moved away or
made unreadable would succeed on a ghost; here it is StoreUnavailable until the file is back.

An operator's file is never deleted or overwritten: what is not our database is refused. Every foreign error
becomes StoreUnavailable here."""

import asyncio
import errno
import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from proxy import telemetry
from proxy.domain.errors import StoreUnavailable
from proxy.domain.limits import lower_thread_priority
from proxy.storage.sql.database import (
    CORRUPT,
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

# ---------------------------------------------------------------- the file
SCHEMA_VERSION = 15  # schema_v1.sql … are applied in order; recorded in PRAGMA user_version
_PAGES_KB = 256  # of a connection: 2 MB, the default, made no search quicker
_SMALLEST_PAGE = 512  # bytes
_APPLICATION_ID = 0x6D656D70  # "memp": distinguishes our file from another program's database

BUSY_TIMEOUT_MS = 5_000  # how long a write waits for another process's


class SqliteConnection(sqlite3.Connection):
    """A connection as the rules need one: see sql/database.py."""

    for_update = ""  # one writer at a time has the whole file


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """Raise StoreUnavailable, without any content, for what SQLite or the system refuses."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        raise StoreUnavailable(f"{path}: {name}") from error
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        # Of a damaged schema SQLite says which words it does not understand, and Python cannot read that.
        raise StoreUnavailable(f"{path}: SQLITE_CORRUPT") from error
    except UnicodeEncodeError:
        # `from None`: the original error carries the text itself.
        raise StoreUnavailable(f"{path}: an identifier is not valid Unicode") from None


def identity(path: Path) -> tuple[int, int]:
    """Return device and inode of the file. Raises StoreUnavailable if there is none that we may read."""
    with mapped(path):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(f"{path} is not a regular file")
    # By the mode bits, since they do not bind a process that runs as root.
    if not found.st_mode & stat.S_IRUSR:
        raise StoreUnavailable(f"{path} is not readable")
    return found.st_dev, found.st_ino


def prepare(path: Path, *, create: bool) -> None:
    """Leave a readable database of the newest schema at the path, making file and directory if asked to."""
    with mapped(path):
        if create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        identity(path)
        # SQLite would take any file of a few bytes for an empty database, and overwrite it; what is larger
        # and no database, it refuses itself. Not opened for that: to close any other descriptor of a database
        # drops the locks that this process's connections have on it (POSIX), and another process may then
        # remove the write-ahead log under them.
        if 0 < path.stat().st_size < _SMALLEST_PAGE:
            raise StoreUnavailable(f"{path} is not a database: move it away, or restore a backup")
        # Not by SQLite's own locks: changing to WAL fails at once where another process is doing the same.
        with alone(path.with_suffix(".opening")), closing(connect(path)) as connection:
            _migrate(connection, path)


def check(path: Path) -> None:
    """Raise StoreUnavailable if the file's structure is broken. Reads the whole file."""
    with mapped(path), closing(connect(path)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreUnavailable(f"{path} is corrupt: restore a backup")


def connect(path: Path) -> SqliteConnection:
    """Open an existing database in autocommit mode, with the settings that our guarantees rest on."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",  # rw: a missing file is an error, not a new database
        uri=True,
        isolation_level=None,
        check_same_thread=False,  # a handle's lock guards it; close() comes from another thread
        cached_statements=256,
        factory=SqliteConnection,
    )
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA synchronous = FULL")  # an acknowledged commit survives a power cut
        connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten with zeros
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # no text in temporary files
        # The system keeps the pages, once for all; five connections fill what they may keep for hours.
        # What a transaction has changed stays in memory until it is committed, however much that is.
        connection.execute(f"PRAGMA cache_size = -{_PAGES_KB}")
        connection.execute("PRAGMA cache_spill = OFF")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except (sqlite3.Error, UnicodeDecodeError):  # see mapped
        connection.close()
        raise
    return connection


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes, waiting for it."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_ours(connection: SqliteConnection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(application == _APPLICATION_ID)


def _migrate(connection: SqliteConnection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and not is_ours(connection):
        raise StoreUnavailable(f"{path} is another program's database: name another data directory")
    if version > SCHEMA_VERSION:
        raise StoreUnavailable(f"{path} was made by a newer version: schema {version}, not {SCHEMA_VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")
    for step in range(version + 1, SCHEMA_VERSION + 1):
        script = resources.files(__package__).joinpath(f"schema_v{step}.sql").read_text("utf-8")
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {_APPLICATION_ID};"
            f"PRAGMA user_version = {step}; COMMIT;"
        )


# ---------------------------------------------------------------- errors
_BY_CODE = {
    sqlite3.SQLITE_CORRUPT: CORRUPT,
    sqlite3.SQLITE_NOTADB: CORRUPT,
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_IOERR: UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: UNAVAILABLE,
    sqlite3.SQLITE_PERM: UNAVAILABLE,
}
_BY_ERRNO = {errno.ENOSPC: DISK_FULL, errno.EDQUOT: DISK_FULL, errno.EFBIG: DISK_FULL, errno.EROFS: READ_ONLY}
_PRIMARY = 0xFF  # of an extended result code


def kind_of(error: BaseException) -> str | None:
    """Return the outage that the error shows; None if the file is not at fault."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, sqlite3.Error):
            return _BY_CODE.get(getattr(found, "sqlite_errorcode", 0) & _PRIMARY)
        if isinstance(found, UnicodeDecodeError):
            return CORRUPT  # see mapped
        if isinstance(found, OSError):
            return _BY_ERRNO.get(found.errno or 0, UNAVAILABLE)
        found = found.__cause__
    return None


def _name_of(error: BaseException) -> str:
    cause = error.__cause__ or error
    name = getattr(cause, "sqlite_errorname", None)
    return str(name or getattr(cause, "strerror", None) or type(cause).__name__)


DIAGNOSIS = Diagnosis(kind_of, _name_of, sqlite3.Error)


# ---------------------------------------------------------------- threads
T = TypeVar("T")

_READERS = 2
_PURGE_WAIT_MS = 50
_TURN_MS, _TURNS = 20, 3  # how long to wait at a time, and how many times the busy timeout in all
_PURGE_AGAIN_S = 1.0
_CHECK_PAUSE = 20  # times what the last check of a corrupt file took
_MOST_TOGETHER = 4  # reads in one transaction; none waits for more than these
_MOST_WAITING = 10_000  # writes; beyond that the disk is stuck and memory should step aside


@dataclass(slots=True)
class _Handle:
    """One thread's connection. The lock lets another thread close it between two uses."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: SqliteConnection | None = None

    def discard(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@dataclass(slots=True)
class _Entry:
    """Work that waits for a thread, and its result."""

    work: Work[Any]
    future: asyncio.Future[Any]
    purge: bool = False
    result: Any = None
    error: BaseException | None = None


class SqliteDatabase:
    """Threads over one file. `open()` may be tried again after it failed; after `close()` it is over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits = 0  # group commits so far
        self.epoch = 0  # rises when another file is found at the path: what was read before is void
        self.outages = Outages(DIAGNOSIS)
        self._identity: tuple[int, int] | None = None  # of the file that was opened
        self._check_due = 0.0  # time.monotonic
        self._opening = threading.Lock()
        self._queue_lock = threading.Lock()  # of the next two
        self._begun: list[_Entry] = []  # reads that no thread has taken yet
        self._waiting: list[_Entry] = []  # writes
        self._closed = False
        # time.monotonic of the next try; due at the start: a crash may have come between commit and purge.
        self._purge_due: float | None = 0.0
        self._write_handle = _Handle()
        self._copy_handle = _Handle()
        self._handles = [self._write_handle, self._copy_handle]
        self._mine = threading.local()
        self._writer = ThreadPoolExecutor(1, "store-writer", initializer=lower_thread_priority)
        self._copier = ThreadPoolExecutor(1, "store-copier", initializer=lower_thread_priority)
        self._readers = ThreadPoolExecutor(_READERS, "store-reader", initializer=self._add_reader)

    @property
    def is_open(self) -> bool:
        return self._identity is not None

    async def open(self) -> None:
        """Make or check the file. Raises StoreUnavailable, with the file untouched, if it is not ours."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._open)

    async def close(self) -> None:
        """Finish the writes that wait, then end the threads."""
        with self._queue_lock:
            self._closed = True
        await asyncio.to_thread(self._shutdown)

    async def write(self, work: Work[T], *, purge: bool = False) -> T:
        """See Database. With `purge`, the write-ahead log is emptied. A cancelled caller's work is done."""
        entry = _Entry(work, asyncio.get_running_loop().create_future(), purge)
        with self._queue_lock:
            if self._closed or len(self._waiting) >= _MOST_WAITING:
                raise StoreUnavailable(f"{self.path} is {'closed' if self._closed else 'overloaded'}")
            self._waiting.append(entry)
            if len(self._waiting) == 1:
                self._writer.submit(self._drain)
        result: T = await entry.future
        return result

    async def read(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")

        def run() -> T:
            with self.outages.noting("read"), self._reading() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    def begin_read(self, work: Work[T]) -> asyncio.Future[T]:
        """Begin a short read, in one transaction with what else is begun now."""
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._queue_lock:
            self._begun.append(_Entry(work, future))
            if len(self._begun) % _MOST_TOGETHER == 1:  # so that there is a turn for every few of them
                self._readers.submit(self._read_begun)
        return future

    async def purge_if_due(self) -> None:
        """Empty the write-ahead log, if that was put off, or not done since the start."""
        if self._is_purge_due():
            await self.write(lambda tx: None, purge=True)

    async def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, so that the commit after a large change need not wait."""
        await asyncio.get_running_loop().run_in_executor(self._copier, self._checkpoint)

    async def probe(self) -> None:
        self.outages.settle()
        with suppress(StoreUnavailable):
            if self.outages.is_corrupt:
                await asyncio.get_running_loop().run_in_executor(self._copier, self._check_again)
            elif self.outages.current:
                await try_out(self)

    # ------------------------------------------------------------ in the threads
    def _check_again(self) -> None:
        """Read all of a file that was found corrupt; if that was a temporary fault, keep using it."""
        began = time.monotonic()
        if began < self._check_due:
            return
        try:
            self._check()  # whether it was replaced
            check(self.path)
        except StoreUnavailable:
            self._check_due = time.monotonic() + _CHECK_PAUSE * (time.monotonic() - began)
            raise
        self.outages.repaired()

    def _checkpoint(self) -> None:
        with self._connection(self._copy_handle) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _read_begun(self) -> None:
        """Do the first few of what was begun. The rest has a turn of its own, after other reads."""
        with self._queue_lock:
            group, self._begun = self._begun[:_MOST_TOGETHER], self._begun[_MOST_TOGETHER:]
        if not group:
            return  # they went with an earlier turn
        with self._answering("read", group), self._reading() as connection:
            for entry in group:
                self._look(connection, entry)

    def _look(self, connection: SqliteConnection, entry: _Entry) -> None:
        """Run one piece of work. What the file or the system refuses, the others need not try either."""
        if entry.future.cancelled():
            return
        try:
            entry.result = entry.work(connection)
        except StoreUnavailable as error:
            entry.error = error
            self.outages.failed("read", error)
        except (sqlite3.Error, OSError, UnicodeError):
            raise
        except Exception as error:  # noqa: BLE001 - handed to the caller, as an executor would
            entry.error = error

    def _drain(self) -> None:
        with self._queue_lock:
            group, self._waiting = self._waiting, []
        with self._answering("write", group), self._connection(self._write_handle) as connection:
            if self.outages.is_corrupt:
                raise StoreUnavailable(f"{self.path} is corrupt: it is not written to")
            self._commit(connection, group)

    @contextmanager
    def _answering(self, side: Side, group: Sequence[_Entry]) -> Iterator[None]:
        """Settle the entries of the group; an error in the block is the error of each that has none yet."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - handed to every caller, as an executor would
            self.outages.failed(side, error)
            for entry in group:
                entry.error = entry.error or error
        else:
            # Work that failed by itself has been noted: the commit of the others says nothing about it.
            if not any(entry.error is not None and kind_of(entry.error) for entry in group):
                self.outages.worked(side)
        # Wake the callers: one call into each event loop.
        by_loop: dict[asyncio.AbstractEventLoop, list[_Entry]] = {}
        for entry in group:
            by_loop.setdefault(entry.future.get_loop(), []).append(entry)
        for loop, entries in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, entries)

    def _commit(self, connection: SqliteConnection, group: Sequence[_Entry]) -> None:
        _begin(connection)
        try:
            for entry in group:
                self._run(connection, entry)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self.commits += 1
        if self._is_purge_due() or any(entry.purge for entry in group):
            # The write-ahead log still holds the pages as they were. Our own readers end at once; another
            # process may read for minutes, and we do not wait for that: a commit after that tries again.
            connection.execute(f"PRAGMA busy_timeout = {_PURGE_WAIT_MS}")
            emptied = _empty_log(connection)
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            self._purge_due = None if emptied else time.monotonic() + _PURGE_AGAIN_S
            if not emptied:
                telemetry.log.warning("store.purge.delayed")

    def _run(self, connection: SqliteConnection, entry: _Entry) -> None:
        """Run one piece of work in its savepoint; its failure stays its own."""
        connection.execute("SAVEPOINT work")
        try:
            with mapped(self.path):
                entry.result = entry.work(connection)
        except Exception as error:  # noqa: BLE001 - handed to the caller, as an executor would
            entry.error = error
            self.outages.failed("write", error)
            # Where SQLite gave the whole transaction up (disk full), this raises and the group fails.
            connection.execute("ROLLBACK TO work")
        connection.execute("RELEASE work")

    def _is_purge_due(self) -> bool:
        return self._purge_due is not None and time.monotonic() >= self._purge_due

    # ------------------------------------------------------------ connections
    @contextmanager
    def _reading(self) -> Iterator[SqliteConnection]:
        """Give this reader's connection to the block, on one state of the file."""
        with self._connection(self._mine.handle) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _add_reader(self) -> None:
        lower_thread_priority()
        self._mine.handle = _Handle()
        self._handles.append(self._mine.handle)

    @contextmanager
    def _connection(self, handle: _Handle) -> Iterator[SqliteConnection]:
        self._check()
        with mapped(self.path), handle.lock:
            if handle.connection is None:
                handle.connection = connect(self.path)
            try:
                yield handle.connection
            except (sqlite3.Error, UnicodeDecodeError):  # see mapped
                handle.discard()  # it may be the file that broke: the next use opens it again
                raise

    def _open(self) -> None:
        with self._opening:
            if self._identity is None:
                prepare(self.path, create=True)
                self._identity = identity(self.path)
                telemetry.log.info("store.opened")

    def _check(self) -> None:
        if self._identity is None:
            raise StoreUnavailable(f"{self.path} is not open")
        if identity(self.path) != self._identity:
            self._reopen()

    def _reopen(self) -> None:
        """Change over to the file that is now at the path, once no connection to the old one is left."""
        with self._opening:
            found = identity(self.path)
            if found == self._identity:
                return
            # What the log holds is brought into the file that was opened, wherever that is now. The log is
            # found by its name: opening the new file would read it into that one, and delete it.
            emptied = False
            for handle in list(self._handles):
                with handle.lock, suppress(sqlite3.Error):
                    if not emptied and handle.connection is not None:
                        emptied = _empty_log(handle.connection)
            for handle in list(self._handles):
                with handle.lock:
                    handle.discard()
            prepare(self.path, create=False)
            check(self.path)
            self._identity = found
            self.epoch += 1
            self.outages.repaired()
            telemetry.log.warning("store.replaced")

    def _shutdown(self) -> None:
        for threads in (self._writer, self._copier, self._readers):
            threads.shutdown()
        for handle in self._handles:
            with handle.lock, mapped(self.path):
                handle.discard()


def _begin(connection: SqliteConnection) -> None:
    """Take the write lock when other processes release it."""
    # SQLite's own wait asks ever more seldom, and loses to processes that write without a pause.
    ends_at = time.monotonic() + _TURNS * BUSY_TIMEOUT_MS / 1000
    connection.execute(f"PRAGMA busy_timeout = {min(_TURN_MS, BUSY_TIMEOUT_MS)}")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_at:
                    raise
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _empty_log(connection: SqliteConnection) -> bool:
    """Empty the write-ahead log; return whether it is: it is not while another reads from it."""
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _settle(group: Sequence[_Entry]) -> None:
    for entry in group:
        if entry.future.cancelled():
            continue
        if entry.error is not None:
            entry.future.set_exception(entry.error)
        else:
            entry.future.set_result(entry.result)
