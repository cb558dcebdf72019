"""All stores of a data directory, in one SQLite file that the processes of one machine may share.

Each process holds a lock on a file of its own, which the kernel releases at its death. So a death is known at
once and for certain. A lease would have to run out first, and a pid can be used again.
"""

import asyncio
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.storage.sql.database import Connection
from proxy.storage.sql.stores import SqlStores, StoreOptions
from proxy.storage.sqlite import file
from proxy.storage.sqlite.database import SqliteDatabase

# ---------------------------------------------------------------- processes
_SUFFIX = ".lock"


class SqliteInstance:
    """This process among those that share a data directory; alive from `SqliteInstance(…)` to `close()`."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = run_dir
        self.id = secrets.token_hex(8)
        self._fd = self._take(self._path_of(self.id))

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

    def _take(self, path: Path) -> int:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Another process may have found the file unlocked, taken us for dead and removed it.
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(fd).st_ino:
                    return fd
            os.close(fd)


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
        kind = await asyncio.to_thread(file.network_file_system, self.path.parent)
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
            if why := await asyncio.to_thread(file.obstacle, self.path.parent):
                raise StoreUnavailable(why) from error
            raise

    def _live(self) -> SqliteInstance:
        with file.mapped(self._run_dir):
            self._run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return SqliteInstance(self._run_dir)
