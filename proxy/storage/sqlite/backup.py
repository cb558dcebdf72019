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
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from proxy import __version__
from proxy.domain.core import ForgetCounts, Receipt, Scope
from proxy.domain.errors import StoreUnavailable
from proxy.storage import Report
from proxy.storage.sql import forget, rows
from proxy.storage.sql.erasure import add_counts, erase, store_receipt
from proxy.storage.sql.forget_plan import Seqs
from proxy.storage.sql.rows import newest_model
from proxy.storage.sqlite import living
from proxy.storage.sqlite.database import (
    SCHEMA_VERSION,
    SqliteConnection,
    alone,
    check,
    connect,
    identity,
    is_ours,
    mapped,
    prepare,
)

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
    with mapped(target), _partial(target) as partial:
        identity(source)
        with mapped(source), closing(connect(source)) as database:
            database.execute("BEGIN")
            if not is_ours(database):
                raise StoreUnavailable(f"{source} is not a database of memory-proxy")
            counts = _counts(database)
            with closing(sqlite3.connect(partial, isolation_level=None)) as copy, mapped(partial):
                # Until it has its name, it need not survive a crash: one fsync at the end.
                copy.execute("PRAGMA synchronous = OFF")
                progress = lambda _, left, total: report("copy", total - left, total)  # noqa: E731
                database.backup(copy, pages=_PAGES_AT_ONCE, progress=progress)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, which reading does not write to
            (schema,) = database.execute("PRAGMA user_version").fetchone()
            model = newest_model(database) if schema >= _NAMES_MODELS else None
            database.execute("ROLLBACK")
        report("verify", 0, 1)
        verify(partial, counts, f"the copy of {source}")
        with partial.open("r+b") as opened:
            size = opened.seek(0, os.SEEK_END)
            manifest = Manifest(
                made_at=now,
                version=__version__,
                schema=schema,
                model=model and model[1],
                dimension=model and model[2],
                counts=counts,
                bytes=size,
                sha256=_digest(opened, size),
            )
            trailer = json.dumps({"memory_proxy_backup": _FORMAT, **asdict(manifest)}).encode()
            opened.seek(size)
            opened.write(trailer.ljust(TRAILER_BYTES - 1) + b"\n")
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
    if manifest.schema > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{name} was made by a newer version ({manifest.version}, schema {manifest.schema}); this one"
            f" reads schemas up to {SCHEMA_VERSION}"
        )
    return manifest


def verify(database: Path, counts: Mapping[str, int], name: str) -> None:
    """Raise StoreUnavailable, naming it, unless the file is ours, sound, and has these rows."""
    url = f"file:{quote(str(database))}?mode=ro&immutable=1"  # no one else has it open
    with (
        mapped(database),
        closing(sqlite3.connect(url, uri=True, factory=SqliteConnection)) as copy,
    ):
        (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok" or copy.execute("PRAGMA foreign_key_check").fetchone():
            raise StoreUnavailable(f"{name} is corrupt")
        if not is_ours(copy) or _counts(copy) != dict(counts):
            raise StoreUnavailable(f"{name} does not hold the rows that it should")


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk: a rename may else not survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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


def _counts(database: SqliteConnection) -> dict[str, int]:
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


# ---------------------------------------------------------------- what a restore keeps
_UNFINISHED = "SELECT r.id FROM receipts r JOIN forgets f ON f.receipt = r.seq"
_KEY = "id, digest, name, tenant, user, rights, upstream_key, created_at, revoked_at"
_KEYS = f"SELECT {_KEY} FROM keys ORDER BY seq"
_KEEP_KEY = f"""
    INSERT INTO keys ({_KEY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET revoked_at = excluded.revoked_at
"""
_OWN = "SELECT id FROM scopes WHERE tenant = :tenant AND user = :user"
_OF_SESSIONS = f"JOIN sessions n ON n.id = {{}}.session WHERE n.owner = ({_OWN})"

# Table by table, as Doomed names them: what a row is known by, and where it is.
_NAMES = {
    "responses": ("x.id", "x.seq", f"stored_responses x WHERE x.owner = ({_OWN})"),
    "items": (
        "json_array(c.id, x.id)", "x.seq",
        f"conversation_items x JOIN conversations c ON c.seq = x.conversation WHERE c.owner = ({_OWN})",
    ),
    "conversations": ("x.id", "x.seq", f"conversations x WHERE x.owner = ({_OWN})"),
    "answers": ("x.id", "x.seq", f"exchanges x {_OF_SESSIONS.format('x')} AND x.answer <> ''"),
    "quotes": (
        "json_array(m.id, x.exchange_id, x.span)", "x.id",
        f"evidence x JOIN memories m ON m.seq = x.memory WHERE m.owner = ({_OWN}) AND x.span <> ''",
    ),
    "held": ("x.id", "x.seq", f"quarantine x WHERE x.owner = ({_OWN})"),
    "exchanges": ("x.id", "x.seq", f"exchanges x {_OF_SESSIONS.format('x')}"),
    "memories": ("x.id", "x.seq", f"memories x WHERE x.owner = ({_OWN})"),
    "documents": ("x.id", "x.seq", f"documents x WHERE x.owner = ({_OWN}) AND x.doomed = 0"),
    "sessions": ("json_array(x.name, x.project)", "x.id", f"sessions x WHERE x.owner = ({_OWN})"),
}  # fmt: skip
# What a client may delete without a receipt, and leaves no row: where it was, by what Doomed calls it.
_DELETABLE = {"items": "conversation_items", "conversations": "conversations"}
# Numbers that the database has given out, and that nothing has.
_FREE = """
    SELECT value FROM json_each(:seqs) WHERE value NOT IN (SELECT seq FROM {0})
    AND value <= (SELECT seq FROM sqlite_sequence WHERE name = '{0}')
"""
_DELETED = """
    SELECT s.tenant, s.user, r.id FROM stored_responses r JOIN scopes s ON s.id = r.owner
    WHERE r.response IS NULL AND s.user IS NOT NULL
"""
_EMPTY = f"""
    UPDATE stored_responses SET response = NULL, input_items = NULL, recalled = '[]'
    WHERE owner = ({_OWN}) AND id = :id AND response IS NOT NULL
"""
# Ids that are made at random, and that no import brings along: one in both, and one continues the other.
_RANDOM = ("conversations", "stored_responses", "exchanges", "receipts", "keys")
_USERS = "SELECT tenant, user FROM scopes WHERE user IS NOT NULL"
_ANCHOR = "json_array(x.exchange_id, x.slot, x.content)"
_ANCHORS = f"anchors x {_OF_SESSIONS.format('x')}"


@dataclass(frozen=True, slots=True)
class Present:
    """What happened since the backup, according to the database that is to be replaced."""

    path: Path
    receipts: tuple[Receipt, ...]
    unfinished: frozenset[str]  # receipts of forgets under way: what they cover is still there, and hidden
    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried(forget.Repeated):
    """What was brought into the restored database: later forgets, and keys made or revoked since."""

    keys: int = 0


def read(path: Path) -> Present:
    """Return what the database says. Raises StoreUnavailable if it cannot be read to its end."""
    with _connected(path) as database:
        receipts = forget.receipts_in(database)
        unfinished = frozenset(id_ for (id_,) in database.execute(_UNFINISHED))
        keys = tuple(database.execute(_KEYS).fetchall())
    check(path)
    return Present(path, receipts, unfinished, keys)


def receipts_in(path: Path) -> tuple[Receipt, ...]:
    """Return all receipts of a database that may be in use, the oldest first."""
    with _connected(path) as database:
        return forget.receipts_in(database)


def carry(staged: Path, present: Present | None, receipts: Sequence[Receipt]) -> Carried:
    """Forget in the staged database what was forgotten since; keep all receipts, and the keys of now."""
    with _connected(staged) as database:
        database.execute("BEGIN IMMEDIATE")
        known = {id_ for (id_,) in database.execute("SELECT id FROM receipts")}
        theirs = [r for r in (present.receipts if present else ()) if r.id not in known]
        known |= {r.id for r in theirs}
        others = list({r.id: r for r in receipts if r.id not in known}.values())
        erased, unknown = ForgetCounts(), 0
        if present is not None:
            with _connected(present.path) as now:
                for scope in dict.fromkeys(Scope(r.tenant, r.user) for r in theirs):
                    erased = add_counts(erased, _keep_what_is_in(now, database, scope))
                for receipt in (r for r in theirs if r.id in present.unfinished):
                    erased = add_counts(erased, forget.repeat_one(database, receipt)[0])
                erased = add_counts(erased, _delete_as_in(now, database))
        for receipt in others:
            counts, was_there = forget.repeat_one(database, receipt)
            erased, unknown = add_counts(erased, counts), unknown + (not was_there)
        for receipt in (*theirs, *others):
            store_receipt(
                database, rows.ensure_owner(database, Scope(receipt.tenant, receipt.user)).id, receipt
            )
        keys = _keep_keys(database, present.keys) if present else 0
        database.execute("COMMIT")
    return Carried(receipts=len(theirs) + len(others), erased=erased, unknown=unknown, keys=keys)


def _keep_what_is_in(now: SqliteConnection, staged: SqliteConnection, scope: Scope) -> ForgetCounts:
    """Erase what the staged database has of the user and the present one has not."""
    ours = {"tenant": scope.tenant, "user": scope.user}
    owner = rows.find_owner(staged, scope)
    if owner is None:
        return ForgetCounts()
    portion = tuple(_missing(now, staged, table, ours) for table in _NAMES)
    instructions = _names(now, f"SELECT {_ANCHOR} FROM {_ANCHORS}", ours)
    found = staged.execute(f"SELECT {_ANCHOR}, x.seq FROM {_ANCHORS}", ours).fetchall()
    erased = [(seq,) for said, seq in found if said not in instructions]
    staged.executemany("DELETE FROM anchors WHERE seq = ?", erased)
    for table in ("states", "marks"):  # made of what was said, and made again
        staged.execute(
            f"DELETE FROM {table} WHERE session IN (SELECT id FROM sessions WHERE owner = ?)", (owner.id,)
        )
    rows.raise_generation(staged, owner.id)
    return erase(staged, owner.id, portion)


def _delete_as_in(now: SqliteConnection, staged: SqliteConnection) -> ForgetCounts:
    """Delete what clients have deleted, of every user.

    Of what leaves no row: only if the present database continues the staged one. One that was begun again
    after a loss has nothing of that, and lacks what was never deleted. And only what it had: the rest came to
    the backup after the present database, put back from an older one, parted from it."""
    emptied, erased = 0, ForgetCounts()
    for tenant, user, id_ in now.execute(_DELETED):
        emptied += staged.execute(_EMPTY, {"tenant": tenant, "user": user, "id": id_}).rowcount
    everybody = staged.execute(_USERS).fetchall()
    random = [f"SELECT id FROM {table}" for table in _RANDOM]
    if all(_names(now, ids, {}).isdisjoint(id_ for (id_,) in staged.execute(ids)) for ids in random):
        everybody = []
    for tenant, user in everybody:
        portion = []
        for table, place in _DELETABLE.items():
            _, seqs = _missing(now, staged, table, {"tenant": tenant, "user": user})
            found = now.execute(_FREE.format(place), {"seqs": json.dumps(seqs)}) if seqs else ()
            portion.append((table, tuple(seq for (seq,) in found)))
        if any(seqs for _, seqs in portion):
            owner = rows.ensure_owner(staged, Scope(tenant, user))
            erased = add_counts(erased, erase(staged, owner.id, tuple(portion)))
    return add_counts(erased, ForgetCounts(responses=emptied))


def _missing(
    now: SqliteConnection, staged: SqliteConnection, table: str, ours: dict[str, str]
) -> tuple[str, Seqs]:
    """Return what the staged database has of the user in the table, and the present one has not."""
    name, number, where = _NAMES[table]
    left = _names(now, f"SELECT {name} FROM {where}", ours)
    found = staged.execute(f"SELECT {name}, {number} FROM {where}", ours)
    return table, tuple(seq for id_, seq in found if id_ not in left)


def _names(now: SqliteConnection, query: str, ours: dict[str, str]) -> set[str]:
    """Return what the query finds; nothing if the database is older than its table."""
    try:
        return {name for (name,) in now.execute(query, ours)}
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return set()
        raise


def _keep_keys(staged: SqliteConnection, keys: Iterable[tuple[Any, ...]]) -> int:
    """Have these keys in the staged database; return how many were made or revoked since."""
    known = set(staged.execute(_KEYS).fetchall())
    new = [key for key in keys if key not in known]
    staged.executemany(_KEEP_KEY, new)
    return len(new)


@contextmanager
def _connected(path: Path) -> Iterator[SqliteConnection]:
    with mapped(path), closing(connect(path)) as connection:
        yield connection


# ---------------------------------------------------------------- restore
@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    manifest: Manifest
    aside: Path | None  # the path of the previous database; None: there was none
    present: str  # how that one was: "none", "read" or "unreadable"
    carried: Carried


@dataclass(frozen=True, slots=True)
class Restore:
    """One restore into a data directory."""

    data_dir: Path
    report: Report
    receipts: Sequence[Receipt] = ()  # of forgets to repeat in it, in addition to the present one's
    forgets: bool = True  # False: what was forgotten since the backup comes back

    def run(self, backup: BinaryIO, name: str) -> Restored:
        """Put the backup in place of the data directory's database. On return a server may be started.

        Raises StoreUnavailable, with the present database untouched, if a process works on the directory,
        or if the backup is none, is damaged, or was made by a newer version."""
        with mapped(self.data_dir):
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A server that is started now waits here, and then opens what was restored.
            with alone(self._database.with_suffix(".opening")):
                self._refuse_company()
                return self._run(backup, name)

    @property
    def _database(self) -> Path:
        return self.data_dir / "memory.db"

    def _refuse_company(self) -> None:
        if number := living(self.data_dir / "run"):
            what = "a process works" if number == 1 else f"{number} processes work"
            raise StoreUnavailable(f"{what} on {self.data_dir}: stop the proxy first")

    def _run(self, backup: BinaryIO, name: str) -> Restored:
        staging = self.data_dir / "restoring"
        shutil.rmtree(staging, ignore_errors=True)  # of a restore that was killed
        staging.mkdir(mode=0o700)
        try:
            staged = staging / "memory.db"
            self.report("copy", 0, 1)
            with os.fdopen(os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as copy:
                shutil.copyfileobj(backup, copy, 1 << 20)
                copy.flush()
                manifest = read_manifest(copy, name)
                copy.truncate(copy.seek(0, os.SEEK_END) - TRAILER_BYTES)
            self.report("copy", 1, 1)
            self.report("verify", 0, 1)
            verify(staged, manifest.counts, name)
            prepare(staged, create=False)  # brings an older schema up to date
            self.report("verify", 1, 1)
            found, present = "none", None
            if self._database.exists():
                found = "unreadable"
                with suppress(StoreUnavailable):
                    identity(self._database)
                    found, present = "read", read(self._database)
            carried = self._carry(staged, present)
            with _connected(staged) as connection:
                # An external index is filled again: it still holds what was written after the backup.
                connection.execute("DELETE FROM vector_targets")
                connection.execute("DELETE FROM vector_outbox")
            _settle(staged)
            self._refuse_company()
            aside = self._swap(staged)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return Restored(manifest=manifest, aside=aside, present=found, carried=carried)

    def _carry(self, staged: Path, present: Present | None) -> Carried:
        """Bring into the copy what must outlive a restore."""
        if not self.forgets:
            with _connected(staged) as database:
                return Carried(keys=_keep_keys(database, present.keys if present else ()))
        self.report("forget", 0, 1)
        carried = carry(staged, present, self.receipts)
        self.report("forget", 1, 1)
        return carried

    def _swap(self, staged: Path) -> Path | None:
        """Put the copy in place; return the path of the previous database, None if there was none."""
        database, aside = self._database, None
        if database.exists():
            _settle(database)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            first = database.with_name(f"{database.name}.before-restore-{stamp}")
            others = (first.with_name(f"{first.name}-{number}") for number in count(2))
            aside = next(free for free in chain([first], others) if not free.exists())
            try:  # a second name, so that at no moment it has none
                aside.hardlink_to(database)
            except OSError:  # links are unknown here
                shutil.copy2(database, aside)
                sync(aside)
        # What an unreadable database has left in its log belongs to it, and would be read into the new one.
        for suffix in ("-wal", "-shm"):
            log = database.with_name(database.name + suffix)
            if aside is not None and log.exists():
                log.rename(aside.with_name(aside.name + suffix))
            log.unlink(missing_ok=True)
        sync(self.data_dir)
        staged.replace(database)
        sync(self.data_dir)
        return aside


def _settle(database: Path) -> None:
    """Have all of the readable database in its one file, and that on the disk."""
    with suppress(sqlite3.Error), closing(connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    sync(database)
