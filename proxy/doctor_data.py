"""What `memory-proxy doctor` has to say of the database: its disk, its log, its soundness, its privacy."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proxy.errors import StoreError
from proxy.stores.sqlite.survey import Survey, survey

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


def findings(database: Path, model: str) -> Iterator[Finding]:
    """Yield what was found about the database; `model`: what the settings name for embeddings."""
    try:
        found = survey(database)
    except StoreError as error:
        yield Finding(BAD, "database", f"{error}: restore a backup (docs/operations.md)")
        return
    yield _soundness(database, found)
    yield _disk(found)
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


def _soundness(database: Path, found: Survey) -> Finding:
    told = f"{found.memories:,} memories, {_size(found.bytes)}, schema {found.schema}"
    if found.is_sound is None:
        return Finding(NOTE, "database", f"{told}; too large to read through here: a backup verifies it")
    if not found.is_sound:
        return Finding(BAD, "database", f"{database} is corrupt: restore a backup (docs/operations.md)")
    return Finding(GOOD, "database", f"{told}, sound")


def _disk(found: Survey) -> Finding:
    wanted = max(LEAST_FREE_BYTES, found.bytes)
    if found.free_bytes < wanted:
        text = f"{_size(found.free_bytes)} free: a backup or a large forget may need {_size(wanted)}"
        return Finding(BAD, "disk", text)
    return Finding(GOOD, "disk", f"{_size(found.free_bytes)} free")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
