"""Which trouble an error of PostgreSQL shows, and what an operator should do about it."""

import psycopg
from psycopg import errors

from proxy.storage.sql.trouble import DISK_FULL, LOCKED, READ_ONLY, UNAVAILABLE, Troubles

# By SQLSTATE, or its class of two characters: https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_STATE = {
    "25006": READ_ONLY,  # a standby, or default_transaction_read_only
    "53100": DISK_FULL,
    "53300": LOCKED,  # too many connections
    "53": UNAVAILABLE,  # insufficient resources
    "55P03": LOCKED,  # lock_timeout
    "57014": LOCKED,  # statement_timeout
    "25P03": LOCKED,  # idle in a transaction for too long
    "25P04": LOCKED,
    "40": LOCKED,  # serialisation failure or deadlock, again and again
    "08": UNAVAILABLE,  # connection
    "57": UNAVAILABLE,  # shutdown, starting up
    "58": UNAVAILABLE,  # the server's disk
    "28": UNAVAILABLE,  # wrong user or password
    "3D": UNAVAILABLE,  # no such database
    "42501": UNAVAILABLE,  # privileges
    "XX": UNAVAILABLE,  # an internal error, or a damaged page
}
# The transaction had to give way, or met a row that another has just made: the same work may be done again.
_AGAIN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)


def may_be_repeated(error: psycopg.Error) -> bool:
    """True if the work may come to its end when it is done again in a new transaction."""
    return isinstance(error, _AGAIN)


def is_crowded(message: str) -> bool:
    """True if the server refused a connection since it has too many. libpq gives no SQLSTATE for that."""
    return "too many" in message or "remaining connection slots" in message


def kind_of(error: BaseException | None) -> str | None:
    """Return the trouble that the error shows; None for what is no fault of the database's."""
    while error is not None and not isinstance(error, psycopg.Error):
        error = error.__cause__
    if error is None:
        return None
    if (state := error.sqlstate) is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        return LOCKED if is_crowded(str(error)) else UNAVAILABLE
    return _BY_STATE.get(state) or _BY_STATE.get(state[:2])


def name_of(error: BaseException) -> str:
    """Return SQLSTATE's name for the error. Its message may hold a value, an address or a password."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, psycopg.Error):
        found = found.__cause__
    return type(found or error).__name__


class PostgresTroubles(Troubles):
    """What is wrong with one database now."""

    def kind_of(self, error: BaseException) -> str | None:
        return kind_of(error)

    def is_of_engine(self, error: BaseException | None) -> bool:
        return isinstance(error, psycopg.Error)

    def name_of(self, error: BaseException) -> str:
        return name_of(error)
