"""All stores of a data directory, in one SQLite file that the processes of one machine may share.

Each process holds a lock on a file of its own, which the kernel releases at its death. So a death is known at
once and for certain. A lease would have to run out first, and a pid can be used again.
"""

import asyncio
import fcntl
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.storage.sql.database import Connection
from proxy.storage.sql.rows import newest_model
from proxy.storage.sql.stores import SqlStores, StoreOptions, forms_in
from proxy.storage.sqlite.database import (
    SCHEMA_VERSION,
    SqliteDatabase,
    check,
    connect,
    is_ours,
    mapped,
)

# ---------------------------------------------------------------- processes
_SUFFIX = ".lock"


class SqliteInstance:
    """This process among those that share a data directory; alive from `SqliteInstance(…)` to `close()`."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = run_dir
        self.id = secrets.token_hex(8)
        path = self._path_of(self.id)
        while True:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            # Another process may have found the file unlocked, taken us for dead and removed it.
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(self._fd).st_ino:
                    return
            os.close(self._fd)

    def is_dead(self, tx: Connection, instance: str) -> bool:
        """True if the process that wrote under this id has ended. Removes what is left of it."""
        return instance != self.id and _has_ended(self._path_of(instance))

    def clean(self) -> None:
        """Remove the lock files of dead processes."""
        for path in self._dir.glob("*" + _SUFFIX):
            _has_ended(path)

    def close(self) -> None:
        """Be dead to the others."""
        if self._fd >= 0:
            self._path_of(self.id).unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _path_of(self, instance: str) -> Path:
        return self._dir / (instance + _SUFFIX)


def living(run_dir: Path) -> int:
    """Return how many processes work on the data directory now."""
    return sum(not _has_ended(path) for path in run_dir.glob("*" + _SUFFIX))


def _has_ended(path: Path) -> bool:
    """True if the process that locked the file has ended; the file is then deleted."""
    try:
        with path.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True


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
    with mapped(database), closing(connect(database)) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        newest = "SELECT count(*), max(updated_at), (SELECT max(at) FROM exchanges) FROM memories"
        (memories, stored_at, said_at) = connection.execute(newest).fetchone()
        model = newest_model(connection)
        size, log = database.stat().st_size, database.with_name(database.name + "-wal")
        # Copies that were set aside are as private as the database; the log and its index have its mode.
        files = [path for path in sorted(database.parent.glob(database.name + "*")) if path.is_file()]
        own = [path for path in files if not path.name.endswith(("-wal", "-shm"))]
        exposed = tuple(path.name for path in own if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
        is_sound = True if size <= MOST_CHECKED_BYTES else None
        try:
            if is_sound:
                check(database)
        except StoreUnavailable:
            is_sound = False
        return Survey(
            bytes=size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            free_bytes=shutil.disk_usage(database.parent).free,
            exposed=exposed,
            schema=schema,
            model=model and model[1],
            memories=memories,
            newest_at=max((at for at in (stored_at, said_at) if at is not None), default=None),
            forms=forms_in(connection),
            is_sound=is_sound,
        )


# ---------------------------------------------------------------- stores
class SqliteStores(SqlStores):
    """The stores over `<data_dir>/memory.db`, which may be shared by the processes of one machine."""

    def __init__(
        self, data_dir: Path, *, allow_network: bool = False, **options: Unpack[StoreOptions]
    ) -> None:
        self.path = data_dir / "memory.db"
        self.place = str(self.path)
        self._allow_network = allow_network
        self._run_dir = data_dir / "run"
        self._database = SqliteDatabase(self.path)
        super().__init__(self._database, **options)

    async def _open(self) -> None:
        kind = await asyncio.to_thread(network_file_system, self.path.parent)
        if kind and not self._allow_network:
            raise UnfitStore(
                f"{self.path.parent} is on a network file system ({kind}): SQLite's locks do not hold there,"
                " and the database can be damaged. Use a local disk or a block volume, or a database server;"
                " if one machine alone uses the directory and its locks work, set"
                " storage.allow_network_filesystem"
            )
        try:
            await self._live_as(self._live)
            await self._database.open()
            await self._refuse_unfinished_copy()
            await self.memories.resume_forgets()
        except UnfitStore:
            raise
        except StoreUnavailable as error:
            if why := await asyncio.to_thread(obstacle, self.path.parent):
                raise StoreUnavailable(why) from error
            raise

    def _live(self) -> SqliteInstance:
        with mapped(self._run_dir):
            self._run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return SqliteInstance(self._run_dir)
