"""The checks of `memory-proxy doctor` on the database: its disk, its log, its integrity, who else may read
it, its clock and its vectors.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proxy.domain.errors import StoreError
from proxy.storage.sql.outages import CORRUPT
from proxy.storage.sqlite.database import kind_of
from proxy.storage.sqlite.file import SCHEMA_VERSION, Survey, older_schema, survey
from proxy.upstream.forms import described

GOOD, NOTE, BAD = "ok", "--", "!!"

LEAST_FREE_BYTES = 200_000_000
LARGE_LOG_BYTES = 256_000_000
CLOCK_S = 300.0  # that what is stored may be ahead of now


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing checked: how it is, and what to do about it."""

    mark: str
    subject: str
    text: str


def is_there(database: Path) -> bool:
    """False where a start would make an empty database: there is no file, or one without a byte."""
    return os.path.lexists(database) and not (database.is_file() and not database.stat().st_size)


def no_directory(path: Path) -> Finding:
    """Return what a data directory is that is not there: to be made by the first start, or mistyped."""
    nearest = next(parent for parent in (path, *path.absolute().parents) if os.path.lexists(parent))
    if not os.path.isdir(nearest):
        return Finding(BAD, "data", f"cannot make {path}: {nearest} is no directory; set --data-dir")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(BAD, "data", f"cannot make {path}: {nearest} cannot be written by this user")
    return Finding(NOTE, "data", f"{path} is not there: the first start makes it, and knows nothing")


def absent(database: Path) -> Finding:
    """Return what a directory without a database is: to be used first, or one that has lost it."""
    traces = (database.with_suffix(".opening"), database.with_name(database.name + "-wal"))
    if not any(trace.exists() for trace in traces):
        return Finding(GOOD, "data", f"{database.parent}: nothing is stored yet")
    remedy = "put it back, or restore a backup (docs/operations.md)"
    return Finding(BAD, "data", f"{database} is gone: {remedy}; a start makes an empty one")


def of_older_version(database: Path) -> Finding | None:
    """Return what is to be known of a database that an older version has made. It is not opened here: an
    older proxy may be serving it, and could not go on."""
    try:
        schema = older_schema(database)
    except StoreError:  # what is wrong with it is for `findings` to say
        return None
    if schema is None:
        return None
    told = f"of an older version (schema {schema}): the first start brings it to {SCHEMA_VERSION}, for good"
    return Finding(NOTE, "data", f"{database.parent} is {told}; take a backup before. Not looked into here")


def findings(database: Path, model: str) -> Iterator[Finding]:
    """Yield what was found about the database; `model`: what the settings name for embeddings."""
    try:
        found = survey(database)
    except StoreError as error:
        if kind_of(error) == CORRUPT or not database.parent.is_dir():
            yield Finding(BAD, "database", f"{error}: restore a backup (docs/operations.md)")
            return
        # A full or read-only disk is no reason to put an old state in place of a sound file.
        yield Finding(BAD, "database", f"{error}: its disk may be at fault (docs/operations.md)")
        yield _disk(shutil.disk_usage(database.parent).free, LEAST_FREE_BYTES)
        return
    yield _soundness(database, found)
    yield _disk(found.free_bytes, max(LEAST_FREE_BYTES, found.bytes))
    yield from learnt(found.forms)
    if found.log_bytes > LARGE_LOG_BYTES:
        text = f"the write-ahead log has grown to {_size(found.log_bytes)}: a program reads the file for long"
        yield Finding(NOTE, "log", text)
    if found.exposed:
        names = " ".join(found.exposed)
        text = f"others on this machine may read {names}: chmod 600 in {database.parent}"
        yield Finding(BAD, "privacy", text)
    if found.newest_at is not None and found.newest_at > time.time() + CLOCK_S:
        at = datetime.fromtimestamp(found.newest_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        text = f"this machine's clock is behind what is stored (the last is of {at}): set the clock"
        yield Finding(BAD, "clock", text)
    if found.model not in (None, model):
        text = f"the vectors were made with {found.model}, the settings name {model}: memory-proxy reembed"
        yield Finding(BAD, "vectors", text)


def learnt(rows: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what models were found to take, so that an operator sees why a request is written as it is."""
    for line in described(rows, time.time()):
        yield Finding(NOTE, "form", f"learnt: {line}")


def _soundness(database: Path, found: Survey) -> Finding:
    told = f"{found.memories:,} memories, {_size(found.bytes)}, schema {found.schema}"
    if found.is_sound is None:
        return Finding(NOTE, "database", f"{told}; too large to read through here: a backup verifies it")
    if not found.is_sound:
        return Finding(BAD, "database", f"{database} is corrupt: restore a backup (docs/operations.md)")
    return Finding(GOOD, "database", f"{told}, sound")


def _disk(free_bytes: int, wanted_bytes: int) -> Finding:
    if free_bytes < wanted_bytes:
        text = f"{_size(free_bytes)} free: a backup or a large forget may need {_size(wanted_bytes)}"
        return Finding(BAD, "disk", text)
    return Finding(GOOD, "disk", f"{_size(free_bytes)} free")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
