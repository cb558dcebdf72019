"""Restore a backup: verified, completed and prepared in a directory of its own, then put in place at once.

Until the one rename that puts it in place, the present database is as it was; after it, the backup serves. A
kill in between leaves one or the other, and a directory that the next restore clears away. What was
forgotten after the backup was made is forgotten in it first: see carry_over.py.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from proxy.domain.errors import StoreUnavailable
from proxy.domain.oversight import Receipt
from proxy.storage.sqlite import carry_over, file
from proxy.storage.sqlite.backup import (
    TRAILER_BYTES,
    Manifest,
    Report,
    read_manifest,
    sync_directory,
    verify,
)
from proxy.storage.sqlite.carry_over import Carried
from proxy.storage.sqlite.instance import alone, living

_COPIED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    manifest: Manifest
    aside: Path | None  # where the database lies that was there before; None: there was none
    present: str  # how that one was: "none", "read" or "unreadable"
    carried: Carried


@dataclass(frozen=True, slots=True)
class Restore:
    """One restore into a data directory."""

    data_dir: Path
    report: Report
    receipts: Sequence[Receipt] = ()  # of forgets to be carried out in it, beside those of the present one
    forgets: bool = True  # False: what was forgotten since the backup comes back

    def run(self, backup: BinaryIO, name: str) -> Restored:
        """Put the backup in place of the data directory's database. On return a server may be started.

        Raises StoreUnavailable, with the present database untouched, if a process works on the directory,
        or if the backup is none, is damaged, or was made by a newer version."""
        with file.mapped(self.data_dir):
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A server that is started meanwhile waits here, and then opens what was restored.
            with alone(self._database.with_suffix(".opening")):
                self._refuse_company()
                return self._run(backup, name)

    @property
    def _database(self) -> Path:
        return self.data_dir / "memory.db"

    @property
    def _staging(self) -> Path:
        return self.data_dir / "restoring"

    def _refuse_company(self) -> None:
        if count := living(self.data_dir / "run"):
            what = "a process works" if count == 1 else f"{count} processes work"
            raise StoreUnavailable(f"{what} on {self.data_dir}: stop the proxy first")

    def _run(self, backup: BinaryIO, name: str) -> Restored:
        shutil.rmtree(self._staging, ignore_errors=True)  # of a restore that was killed
        self._staging.mkdir(mode=0o700)
        try:
            staged = self._staging / "memory.db"
            manifest = self._stage(backup, staged, name)
            present, carried = self._complete(staged)
            _leave_index(staged)
            _settle(staged)
            self._refuse_company()
            aside = self._swap(staged)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        return Restored(manifest=manifest, aside=aside, present=present, carried=carried)

    def _stage(self, backup: BinaryIO, staged: Path, name: str) -> Manifest:
        """Copy the database out of the backup, and prove it."""
        self.report("copy", 0, 1)
        with os.fdopen(os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as copy:
            shutil.copyfileobj(backup, copy, _COPIED_AT_ONCE)
            copy.flush()
            manifest = read_manifest(copy, name)
            copy.truncate(copy.seek(0, os.SEEK_END) - TRAILER_BYTES)
        self.report("copy", 1, 1)
        self.report("verify", 0, 1)
        verify(staged, manifest.counts, name)
        file.prepare(staged, create=False)  # brings an older schema up to date
        self.report("verify", 1, 1)
        return manifest

    def _complete(self, staged: Path) -> tuple[str, Carried]:
        """Bring into the copy what must outlive a restore; tell how the present database was."""
        found = "none" if not self._database.exists() else "unreadable"
        present = None
        with suppress(StoreUnavailable):
            if found != "none":
                file.identity(self._database)
                present = carry_over.read(self._database)
                found = "read"
        if not self.forgets:
            return found, Carried(keys=carry_over.keep_keys(staged, present) if present else 0)
        self.report("forget", 0, 1)
        carried = carry_over.carry(staged, present, self.receipts)
        self.report("forget", 1, 1)
        return found, carried

    def _swap(self, staged: Path) -> Path | None:
        """Put the copy in place; return where the database lies that was there, None where there was none."""
        database, aside = self._database, None
        if database.exists():
            _settle(database)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = _unused(database.with_name(f"{database.name}.before-restore-{stamp}"))
            _name_twice(database, aside)
        # What an unreadable database has left in its log belongs to it, and would be read into the new one.
        for suffix in ("-wal", "-shm"):
            log = database.with_name(database.name + suffix)
            if aside is not None and log.exists():
                log.rename(aside.with_name(aside.name + suffix))
            log.unlink(missing_ok=True)
        sync_directory(self.data_dir)
        staged.replace(database)
        sync_directory(self.data_dir)
        return aside


def _leave_index(staged: Path) -> None:
    """Have an external index filled again: it still holds what was written after the backup."""
    with file.mapped(staged), closing(file.connect(staged)) as connection:
        connection.execute("DELETE FROM vector_targets")
        connection.execute("DELETE FROM vector_outbox")


def _settle(database: Path) -> None:
    """Have all of the database in its one file, and that on the disk, as far as it can be read."""
    with suppress(sqlite3.Error), closing(file.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    fd = os.open(database, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unused(path: Path) -> Path:
    """Return the path, or where that is taken one like it that is not."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _name_twice(path: Path, second: Path) -> None:
    """Give the file a second name, so that at no moment it has none; where links are unknown, a copy."""
    try:
        second.hardlink_to(path)
    except OSError:
        shutil.copy2(path, second)
        with second.open("rb") as copy:
            os.fsync(copy.fileno())
