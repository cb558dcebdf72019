"""Tell which processes are alive: each holds a lock on a file of its own, which the kernel releases at its
death.

So a death is known at once and for certain. A lease would have to run out first, and a pid can be used
again.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxy.storage.sql.connection import Connection

_SUFFIX = ".lock"


class Instance:
    """This process among those that share a data directory; alive from `Instance(…)` to `close()`."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = run_dir
        self.id = secrets.token_hex(8)
        self._fd = self._take(self.id)

    def is_dead(self, tx: Connection, instance: str) -> bool:
        """True if the process that wrote under this id is gone. Removes what is left of it."""
        return self._is_gone(instance)

    def _is_gone(self, instance: str) -> bool:
        if instance == self.id:
            return False
        path = self._dir / (instance + _SUFFIX)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(fd)

    def clean(self) -> None:
        """Remove the lock files of dead processes."""
        for path in self._dir.glob("*" + _SUFFIX):
            self._is_gone(path.name.removesuffix(_SUFFIX))

    def close(self) -> None:
        """Be dead to the others."""
        if self._fd >= 0:
            with suppress(FileNotFoundError):
                (self._dir / (self.id + _SUFFIX)).unlink()
            os.close(self._fd)
            self._fd = -1

    def _take(self, instance: str) -> int:
        path = self._dir / (instance + _SUFFIX)
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
    return sum(_is_locked(path) for path in run_dir.glob("*" + _SUFFIX))


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes, waiting for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
