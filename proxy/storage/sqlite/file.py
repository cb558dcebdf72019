"""Create, open, check and inspect the database file. Every foreign error becomes StoreUnavailable here.

An operator's file is never deleted or overwritten: what is not our database is refused. The messages are for
operators: they name the directory and what to change.
"""

import fcntl
import os
import pwd
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.embeddings import newest_model
from proxy.storage.sql.shared_state import forms_in

SCHEMA_VERSION = 15  # schema_v1.sql … are applied in order; recorded in PRAGMA user_version
_PAGES_KB = 256  # of a connection: 2 MB, the default, made no search quicker
_SMALLEST_PAGE = 512  # bytes
_APPLICATION_ID = 0x6D656D70  # "memp": distinguishes our file from another program's database

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


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes, waiting for it."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


# ---------------------------------------------------------------- the directory
_MOUNTS = Path("/proc/self/mountinfo")  # Linux; elsewhere no file system is known
# SQLite's write-ahead log needs shared memory and locks that hold: https://sqlite.org/wal.html
_NETWORK = frozenset(
    "afs beegfs ceph cifs davfs fuse.blobfuse fuse.blobfuse2 fuse.ceph fuse.davfs fuse.gcsfuse fuse.glusterfs"
    " fuse.goofys fuse.mount-s3 fuse.rclone fuse.s3fs fuse.seaweedfs fuse.sshfs glusterfs lustre ncpfs nfs"
    " nfs4 smb3 smbfs".split()
)


def obstacle(data_dir: Path) -> str:
    """Return why this process cannot write its data in the directory and what to do, "" where it can."""
    there = _nearest(data_dir)
    if not there.is_dir():
        return f"{there} is not a directory: name another data directory (--data-dir)"
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        return (
            f"{there} is on a read-only file system: mount it writable (Docker: without `:ro`), or name"
            " another data directory (--data-dir)"
        )
    names = ("memory.db", "memory.db-wal", "memory.db-shm", "memory.opening", "run")
    inside = [there / name for name in names] if there == data_dir.absolute() else []
    for path in (there, *inside):
        wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
        if path.exists() and not os.access(path, wanted, effective_ids=True):
            return _not_ours(path, data_dir)
    return ""


def network_file_system(data_dir: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the network file system that the directory is on, "" for a local one."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    there, found, longest = _nearest(data_dir).resolve(), "", -1
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) < 5:
            continue
        point = Path(fields[4].replace("\\040", " "))
        # A later mount hides an earlier one at the same place.
        if there.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = kind, len(point.parts)
    return found if found in _NETWORK else ""


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    path = path.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _not_ours(path: Path, data_dir: Path) -> str:
    found, us, group = path.stat(), os.geteuid(), os.getegid()
    owner = (
        f"belongs to {_name(found.st_uid)}, mode {found.st_mode & 0o777:o}; memory-proxy runs as {_name(us)}"
    )
    if path != data_dir.absolute() and data_dir.absolute().is_relative_to(path):
        make = f"`mkdir -p {data_dir} && chown {us}:{group} {data_dir}`"
        return f"{data_dir} cannot be made: {path} {owner}. Run {make} as root, or name another (--data-dir)"
    if found.st_uid == us:
        return f"{path} cannot be written to: it {owner}. Run `chmod -R u+rwX {data_dir}`"
    return (
        f"{path} cannot be written to: it {owner}. Run `chown -R {us}:{group} {data_dir}` as root (of a bind"
        f" mount: on the host), or run memory-proxy as its owner (Docker: `-u {found.st_uid}:{found.st_gid}`)"
    )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


# ---------------------------------------------------------------- inspection
MOST_CHECKED_BYTES = 4 * 2**30  # some ten seconds of reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found."""

    bytes: int
    log_bytes: int  # of the write-ahead log
    free_bytes: int  # of its disk
    exposed: tuple[str, ...]  # names of files that others than their owner may read or write
    schema: int
    model: str | None  # that made the vectors
    memories: int
    newest_at: float | None  # the last thing that was said or stored
    forms: Mapping[str, str]  # what models were found to take, as upstream/forms.py writes it
    is_sound: bool | None  # None: too large to be read for this


def older_schema(database: Path) -> int | None:
    """Return the schema of a database that an older version has made, None for any other, without changing
    it. Raises StoreUnavailable."""
    with mapped(database), closing(connect(database)) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        return schema if 0 < schema < SCHEMA_VERSION and is_ours(connection) else None


def survey(database: Path) -> Survey:
    """Look at the database. Raises StoreUnavailable where that is not possible."""
    with mapped(database), closing(connect(database)) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        newest = "SELECT count(*), max(updated_at), (SELECT max(at) FROM exchanges) FROM memories"
        (memories, stored_at, said_at) = connection.execute(newest).fetchone()
        model = newest_model(connection)
        size, log = database.stat().st_size, database.with_name(database.name + "-wal")
        return Survey(
            bytes=size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            free_bytes=shutil.disk_usage(database.parent).free,
            exposed=_exposed(database),
            schema=schema,
            model=model and model[1],
            memories=memories,
            newest_at=max((at for at in (stored_at, said_at) if at is not None), default=None),
            forms=forms_in(connection),
            is_sound=_is_sound(database) if size <= MOST_CHECKED_BYTES else None,
        )


def _is_sound(database: Path) -> bool:
    try:
        check(database)
    except StoreUnavailable:
        return False
    return True


def _exposed(database: Path) -> tuple[str, ...]:
    """Return what others could read: copies that were set aside are as private as the database."""
    others = stat.S_IRWXG | stat.S_IRWXO
    files = (path for path in sorted(database.parent.glob(database.name + "*")) if path.is_file())
    # The log and its index have the mode of their file.
    own = (path for path in files if not path.name.endswith(("-wal", "-shm")))
    return tuple(path.name for path in own if path.stat().st_mode & others)
