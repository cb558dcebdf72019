"""Create, open and check the database file. Every foreign error becomes StoreUnavailable here.

An operator's file is never deleted or overwritten: what is not our database is refused.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sqlite.instance import alone

SCHEMA_VERSION = 11  # schema_v1.sql … are applied in order; recorded in PRAGMA user_version
_PAGES_KB = 256  # of a connection: 2 MB, the default, made no search quicker
_SMALLEST_PAGE = 512  # bytes
_APPLICATION_ID = 0x6D656D70  # "memp": tells our file from another program's database

Identity = tuple[int, int]
"""Device and inode: whether a path is still the file that was opened."""

BUSY_TIMEOUT_MS = 5_000  # how long a write waits for another process's


class SqliteConnection(sqlite3.Connection):
    """A connection as the rules need one: see sql/connection.py."""

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


def identity(path: Path) -> Identity:
    """Return which file is at the path. Raises StoreUnavailable if there is none that we may read."""
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
            if not path.exists():  # see _check_size
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        identity(path)
        _check_size(path)
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


def is_ours(connection: SqliteConnection) -> bool:
    """True for a database that memory-proxy has made."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(application == _APPLICATION_ID)


def _check_size(path: Path) -> None:
    """Refuse what SQLite would take for an empty database and overwrite: any file of a few bytes.

    Without opening it. To close any other descriptor of a database drops the locks that this process's
    connections have on it (POSIX); another process may then remove the write-ahead log under them.
    What is larger and no database, SQLite refuses itself."""
    if 0 < path.stat().st_size < _SMALLEST_PAGE:
        raise StoreUnavailable(f"{path} is not a database: move it away, or restore a backup")


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
