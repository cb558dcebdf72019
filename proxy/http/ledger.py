"""A table of times by key, shared by the processes of one machine: a file of fixed size, mapped into each.

A key's place is one of eight slots of a bucket, both found by a hash under a secret of the file's own: what
is on the disk names nobody. A slot holds a tag of the key and one time. A key without a slot takes a free
one, or else the one whose time is the earliest; so the file never grows, and under a flood of keys those
are forgotten first that are next to nothing.

Every exchange of a time holds a lock on its bucket, among processes; the threads of one process must not
share a ledger. A lock is held for microseconds, and the kernel drops it with its process. One that was
stopped in the middle makes each of the others wait LOCK_WAIT_S at most, once a second, then they go on
without: a count may be lost that way, a request must not be.
"""

import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from proxy import telemetry

LOCK_WAIT_S = 0.1
BUCKETS = 8192
SLOTS = 8

T = TypeVar("T")

_PAUSE_S = 2e-5
_IMPATIENT_S = 1.0
_NO_FILE = -1
_MAGIC = b"memory-proxy times 1\0\0\0\0"
_SECRET_BYTES = 32
_HEADER_BYTES = 4096
_BUCKET = struct.Struct("<" + "Qd" * SLOTS)  # tag, 0 for a free slot; and the time
_SLOT = struct.Struct("<Qd")
_FILE_BYTES = _HEADER_BYTES + BUCKETS * _BUCKET.size
_PLACE = struct.Struct("<QQ")


class Ledger:
    """A time for each of the keys seen last, 0.0 for others."""

    def __init__(self, path: Path) -> None:
        """Map the file, made if need be. Where the directory does not allow it, the times are this
        process's own."""
        try:
            self._fd = _opened(path)
            self._map = mmap.mmap(self._fd, _FILE_BYTES)
        except OSError as error:
            telemetry.log.warning("limits.unshared", error=error.strerror)
            self._fd = _NO_FILE
            self._map = mmap.mmap(_NO_FILE, _FILE_BYTES)
            header = _header()
            self._map[: len(header)] = header
        self._patient_from = 0.0  # time.monotonic
        self._secret = self._map[len(_MAGIC) : len(_MAGIC) + _SECRET_BYTES]

    def exchange(self, key: str, step: Callable[[float], tuple[float, T]]) -> T:
        """Give `step` the key's time, keep the time that it returns, and return the rest. No other process
        comes between."""
        digest = hashlib.blake2b(
            key.encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret
        ).digest()
        tag, place = _PLACE.unpack(digest)
        tag = tag or 1
        bucket = _HEADER_BYTES + (place % BUCKETS) * _BUCKET.size
        locked = self._fd != _NO_FILE and self._lock(bucket)
        try:
            slots = _BUCKET.unpack_from(self._map, bucket)
            tags, times = slots[::2], slots[1::2]
            known = tag in tags
            slot = tags.index(tag) if known else times.index(min(times))
            moment, result = step(times[slot] if known else 0.0)
            _SLOT.pack_into(self._map, bucket + slot * _SLOT.size, tag, moment)
        finally:
            if locked:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, bucket)
        return result

    def close(self) -> None:
        """Let go of the file; what it holds stays for the others."""
        self._map.close()
        if self._fd != _NO_FILE:
            os.close(self._fd)

    def _lock(self, bucket: int) -> bool:
        """Lock the bucket; False if somebody else would not let go of it."""
        deadline = 0.0
        while True:  # once, as a rule
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
                return True
            except (BlockingIOError, PermissionError):  # systems differ in what they call it
                pass
            except OSError:  # a file system without locks
                return False
            now = time.monotonic()
            deadline = deadline or now + LOCK_WAIT_S
            if now < self._patient_from:
                return False
            if now >= deadline:
                self._patient_from = now + _IMPATIENT_S
                return False
            time.sleep(_PAUSE_S)  # whoever holds it may be waiting for this very processor


def _opened(path: Path) -> int:
    """Open the file; made anew, whole before it is at its path, where it is absent or not ours."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # processes that start together must come to share one file
        if not _is_ours(path):
            _make(path)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(directory)


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC and path.stat().st_size == _FILE_BYTES
    except FileNotFoundError:
        return False


def _make(path: Path) -> None:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # readable by its owner only
    # Every byte is written now: a full disk is an error here, and would be the process's end later.
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(_header().ljust(_FILE_BYTES, b"\0"))
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise


def _header() -> bytes:
    return _MAGIC + secrets.token_bytes(_SECRET_BYTES)
