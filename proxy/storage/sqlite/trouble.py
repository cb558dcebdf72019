"""Which trouble an error of SQLite, or of the file system, shows."""

import errno
import sqlite3

from proxy.storage.sql.trouble import CORRUPT, DISK_FULL, LOCKED, READ_ONLY, UNAVAILABLE, Troubles

_BY_CODE = {
    sqlite3.SQLITE_CORRUPT: CORRUPT,
    sqlite3.SQLITE_NOTADB: CORRUPT,
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_IOERR: UNAVAILABLE,
    sqlite3.SQLITE_CANTOPEN: UNAVAILABLE,
    sqlite3.SQLITE_PERM: UNAVAILABLE,
}
_BY_ERRNO = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EFBIG: DISK_FULL,
    errno.EROFS: READ_ONLY,
}
_PRIMARY = 0xFF  # of an extended result code


def kind_of(error: BaseException) -> str | None:
    """Return the kind of trouble behind the error; None if the file is not at fault."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return _BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY)
        if isinstance(error, UnicodeDecodeError):
            return CORRUPT  # see file.mapped
        if isinstance(error, OSError):
            return _BY_ERRNO.get(error.errno or 0, UNAVAILABLE)
        cause = error.__cause__
        if cause is None:
            return None
        error = cause
    return None


class SqliteTroubles(Troubles):
    """What is wrong with one file now."""

    def kind_of(self, error: BaseException) -> str | None:
        return kind_of(error)

    def is_of_engine(self, error: BaseException | None) -> bool:
        return isinstance(error, sqlite3.Error)

    def name_of(self, error: BaseException) -> str:
        cause = error.__cause__ or error
        name = getattr(cause, "sqlite_errorname", None)
        return str(name or getattr(cause, "strerror", None) or type(cause).__name__)
