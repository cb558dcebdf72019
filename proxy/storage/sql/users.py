"""Rows of `scopes`: a user's number in this database, and the stamp that identifies late writers."""

from dataclasses import dataclass
from typing import Any

from proxy.domain.core import Scope, Stamp
from proxy.domain.session import NewExchange
from proxy.storage.sql.database import Connection, value

_NAMED = "SELECT id, generation, version FROM scopes WHERE tenant = ? AND user = ?"
_NUMBER = "SELECT id FROM scopes WHERE tenant = ? AND user = ?"
NEVER_SEEN = Stamp(generation=0, version=0)


@dataclass(frozen=True, slots=True)
class Owner:
    """A user (of a tenant) as the other tables name it."""

    id: int
    name: tuple[str, str]  # tenant and user
    stamp: Stamp


def find(tx: Connection, scope: Scope) -> Owner | None:
    """Return the user's row, None for a user never seen."""
    return _found(tx, scope, _NAMED)


def number(tx: Connection, tenant: str, user: str | None) -> int:
    """Return the user's number, one that no row has for a user never seen."""
    return -1 if (owner := value(tx, _NUMBER, (tenant, user))) is None else int(owner)


def lock(tx: Connection, scope: Scope) -> Owner | None:
    """Return the user's row once no other transaction writes about the user, None for a user never seen.

    The rules are written for one writer at a time. Whatever writes about a user therefore begins with this,
    with `ensure` or with `lock_all`, before it reads what it decides by."""
    owner = _found(tx, scope, _NAMED + tx.for_update)
    if owner is None and tx.for_update:
        # Who waited for a transaction that gave the user a new row (a forget of everything) sees it now.
        owner = _found(tx, scope, _NAMED + tx.for_update)
    return owner


def ensure(tx: Connection, scope: Scope) -> Owner:
    """Return the user's row, made if need be, and locked as by `lock`."""
    name = (scope.tenant, scope.user)
    new = "INSERT INTO scopes (tenant, user) VALUES (?, ?) ON CONFLICT (tenant, user) DO NOTHING RETURNING id"
    while (owner := lock(tx, scope)) is None:
        if (made := value(tx, new, name)) is not None:
            return Owner(made, name, NEVER_SEEN)
    return owner


def lock_all(tx: Connection, query: str, parameters: Any) -> None:
    """Wait until no other transaction writes about the users that the query (constant SQL) finds by their
    numbers. In their order, so that two that wait for each other are rare."""
    if tx.for_update:
        locked = f"SELECT id FROM scopes WHERE id IN ({query}) ORDER BY id {tx.for_update}"
        tx.execute(locked, parameters).fetchall()


def lock_id(tx: Connection, owner: int) -> None:
    """The same of one user, by its number."""
    lock_all(tx, "?", (owner,))


def lock_free(tx: Connection, query: str, parameters: Any) -> bool:
    """Lock the one user that the query finds by its number, unless another transaction has it: then False."""
    if not tx.for_update:
        return True
    locked = f"SELECT id FROM scopes WHERE id IN ({query}) {tx.for_update} SKIP LOCKED"
    return tx.execute(locked, parameters).fetchone() is not None


def _found(tx: Connection, scope: Scope, query: str) -> Owner | None:
    row = tx.execute(query, (scope.tenant, scope.user)).fetchone()
    return Owner(row[0], (scope.tenant, scope.user), Stamp(row[1], row[2])) if row else None


def timezone(tx: Connection, owner: int, new: NewExchange) -> str:
    """Return the exchange's zone; one that the request names becomes the user's last known."""
    if new.timezone is None:
        (known,) = tx.execute("SELECT timezone FROM scopes WHERE id = ?", (owner,)).fetchone()
        return known or new.default_timezone
    named = {"owner": owner, "name": new.timezone}
    tx.execute("UPDATE scopes SET timezone = :name WHERE id = :owner AND timezone IS NOT :name", named)
    return new.timezone


def forget_habits(tx: Connection, owner: int) -> None:
    """Erase the user's last known time zone, and the settings for how memories change over time."""
    tx.execute("UPDATE scopes SET timezone = NULL WHERE id = ?", (owner,))
    tx.execute("DELETE FROM evolution WHERE owner = ?", (owner,))


def set_version(tx: Connection, owner: int, version: int) -> None:
    """Say that what a search could return has changed."""
    tx.execute("UPDATE scopes SET version = ? WHERE id = ?", (version, owner))


def raise_version(tx: Connection, owner: int) -> int:
    """Say that what a search could return has changed; return the new version."""
    raised = "UPDATE scopes SET version = version + 1 WHERE id = ? RETURNING version"
    return int(value(tx, raised, (owner,)))


def raise_generation(tx: Connection, owner: int) -> None:
    """Raise the generation after a forget: writers that began before must not commit."""
    tx.execute("UPDATE scopes SET generation = generation + 1, version = version + 1 WHERE id = ?", (owner,))
