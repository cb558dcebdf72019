"""Backups: a copy of the database as it was at one moment, proved before it gets its name.

    the database file of one moment ‖ a trailer of 4 kB: what it holds, in JSON, and the SHA-256 of the rest

One file, so that what is copied, piped and renamed is always whole; SQLite ignores what follows its last
page, so `sqlite3 FILE` still opens it. The copy is read in one transaction: writers continue, and the
copy neither starts over nor sees half of what they do.
"""

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from proxy import __version__
from proxy.domain.errors import StoreUnavailable
from proxy.storage import Report
from proxy.storage.sql.embeddings import newest_model
from proxy.storage.sqlite import file

TRAILER_BYTES = 4096
_FORMAT = 1
_NAMES_MODELS = 2  # the first schema with a table of embedding models
_PAGES_AT_ONCE = 2_000
_READ_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A backup's description of itself."""

    made_at: float
    version: str  # of memory-proxy
    schema: int
    model: str | None  # that made the vectors; None: none was ever named
    dimension: int | None
    counts: Mapping[str, int]  # rows of every table
    bytes: int  # of the database, without the trailer
    sha256: str  # of the same


def write(source: Path, target: Path, report: Report, *, now: float) -> Manifest:
    """Back up the database at `source`, which may be in use; return the backup's description.

    It replaces `target` once it is whole, verified and on the disk. Raises StoreUnavailable if it cannot."""
    if target.exists() and os.path.samefile(source, target):
        raise StoreUnavailable(f"{target} is the database itself: name another file")
    with file.mapped(target), _partial(target) as partial:
        file.identity(source)
        with file.mapped(source), closing(file.connect(source)) as database:
            database.execute("BEGIN")
            if not file.is_ours(database):
                raise StoreUnavailable(f"{source} is not a database of memory-proxy")
            counts = _copy(database, partial, report)
            (schema,) = database.execute("PRAGMA user_version").fetchone()
            model = newest_model(database) if schema >= _NAMES_MODELS else None
            database.execute("ROLLBACK")
        report("verify", 0, 1)
        verify(partial, counts, f"the copy of {source}")
        with partial.open("r+b") as copy:
            size = copy.seek(0, os.SEEK_END)
            manifest = Manifest(
                made_at=now,
                version=__version__,
                schema=schema,
                model=model and model[1],
                dimension=model and model[2],
                counts=counts,
                bytes=size,
                sha256=_digest(copy, size),
            )
            trailer = json.dumps({"memory_proxy_backup": _FORMAT, **asdict(manifest)}).encode()
            copy.seek(size)
            copy.write(trailer.ljust(TRAILER_BYTES - 1) + b"\n")
        report("verify", 1, 1)
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    return manifest


def read_manifest(backup: BinaryIO, name: str) -> Manifest:
    """Return the description of an intact backup. Raises StoreUnavailable, naming it, for any other file."""
    size = backup.seek(0, os.SEEK_END)
    backup.seek(max(0, size - TRAILER_BYTES))
    try:
        report = json.loads(backup.read())
        if report.pop("memory_proxy_backup") != _FORMAT:
            raise StoreUnavailable(f"{name} was made by a newer version of memory-proxy")
        manifest = Manifest(**report)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreUnavailable(f"{name} is not a whole backup: it does not end as one") from None
    if manifest.bytes != size - TRAILER_BYTES or manifest.sha256 != _digest(backup, manifest.bytes):
        raise StoreUnavailable(f"{name} is damaged: its bytes are not those that were backed up")
    if manifest.schema > file.SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{name} was made by a newer version ({manifest.version}, schema {manifest.schema}); this one"
            f" reads schemas up to {file.SCHEMA_VERSION}"
        )
    return manifest


def verify(database: Path, counts: Mapping[str, int], name: str) -> None:
    """Raise StoreUnavailable, naming it, unless the file is ours, sound, and has these rows."""
    url = f"file:{quote(str(database))}?mode=ro&immutable=1"  # no one else has it open
    with (
        file.mapped(database),
        closing(sqlite3.connect(url, uri=True, factory=file.SqliteConnection)) as copy,
    ):
        (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok" or copy.execute("PRAGMA foreign_key_check").fetchone():
            raise StoreUnavailable(f"{name} is corrupt")
        if not file.is_ours(copy) or _counts(copy) != dict(counts):
            raise StoreUnavailable(f"{name} does not hold the rows that it should")


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk: a rename may else not survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _copy(database: file.SqliteConnection, target: Path, report: Report) -> dict[str, int]:
    """Copy what the open read transaction sees; return how many rows that is, table by table."""
    counts = _counts(database)
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # Until it has its name, it need not survive a crash: one fsync at the end.
        copy.execute("PRAGMA synchronous = OFF")
        with file.mapped(target):
            database.backup(
                copy,
                pages=_PAGES_AT_ONCE,
                progress=lambda _, left, total: report("copy", total - left, total),
            )
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, which reading does not write to
    return counts


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Yield an empty private file next to the target; it is deleted afterwards, unless it was renamed."""
    # Always the same name: the next backup takes over what a killed one has left.
    path = target.with_name(target.name + ".partial")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(f"another backup is being written to {target}") from None
        os.fchmod(fd, 0o600)
        lock.truncate(0)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _counts(database: file.SqliteConnection) -> dict[str, int]:
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {
        name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        for (name,) in tables.fetchall()
    }


def _digest(opened: BinaryIO, size: int) -> str:
    """Return the SHA-256 of the first `size` bytes."""
    digest, left = hashlib.sha256(), size
    opened.seek(0)
    while left and (piece := opened.read(min(left, _READ_AT_ONCE))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()
