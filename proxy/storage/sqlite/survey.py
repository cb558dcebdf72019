"""A read-only inspection of a database for `memory-proxy doctor`; a proxy may be serving meanwhile."""

import shutil
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.forms import rows_of
from proxy.storage.sql.model import newest
from proxy.storage.sqlite import file

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
    """Return the schema of a database that an older version has made, None for any other. To open it as a
    store would bring it up to date. Raises StoreUnavailable."""
    with file.mapped(database), closing(file.connect(database)) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        return schema if 0 < schema < file.SCHEMA_VERSION and file.is_ours(connection) else None


def survey(database: Path) -> Survey:
    """Look at the database. Raises StoreUnavailable where that is not possible."""
    with file.mapped(database), closing(file.connect(database)) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (memories, stored_at) = connection.execute(
            "SELECT count(*), max(updated_at) FROM memories"
        ).fetchone()
        (said_at,) = connection.execute("SELECT max(at) FROM exchanges").fetchone()
        model = newest(connection)
        return Survey(
            bytes=database.stat().st_size,
            log_bytes=_size(database.with_name(database.name + "-wal")),
            free_bytes=shutil.disk_usage(database.parent).free,
            exposed=_exposed(database),
            schema=schema,
            model=model and model[1],
            memories=memories,
            newest_at=max((at for at in (stored_at, said_at) if at is not None), default=None),
            forms=rows_of(connection),
            is_sound=_is_sound(database),
        )


def _is_sound(database: Path) -> bool | None:
    if database.stat().st_size > MOST_CHECKED_BYTES:
        return None
    try:
        file.check(database)
    except StoreUnavailable:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _exposed(database: Path) -> tuple[str, ...]:
    """Return what others could read: copies that were set aside are as private as the database."""
    others = stat.S_IRWXG | stat.S_IRWXO
    files = (path for path in sorted(database.parent.glob(database.name + "*")) if path.is_file())
    # The log and its index have the mode of their file.
    own = (path for path in files if not path.name.endswith(("-wal", "-shm")))
    return tuple(path.name for path in own if path.stat().st_mode & others)
