"""Rows of `scopes`: a user's number in this file, and the stamp that tells late writers from timely ones."""

import sqlite3
from dataclasses import dataclass

from proxy.domain.core import NewExchange, Scope, Stamp

Name = tuple[str, str]
"""Tenant and user."""

NEVER_SEEN = Stamp(generation=0, version=0)


@dataclass(frozen=True, slots=True)
class Owner:
    """A user (of a tenant) as the other tables name it."""

    id: int
    name: Name
    stamp: Stamp


def find(tx: sqlite3.Connection, scope: Scope) -> Owner | None:
    """Return the user's row, None for a user never seen."""
    row = tx.execute(
        "SELECT id, generation, version FROM scopes WHERE tenant = ? AND user = ?", (scope.tenant, scope.user)
    ).fetchone()
    return Owner(row[0], (scope.tenant, scope.user), Stamp(row[1], row[2])) if row else None


def ensure(tx: sqlite3.Connection, scope: Scope) -> Owner:
    """Return the user's row, made if need be."""
    if owner := find(tx, scope):
        return owner
    cursor = tx.execute("INSERT INTO scopes (tenant, user) VALUES (?, ?)", (scope.tenant, scope.user))
    assert cursor.lastrowid is not None
    return Owner(cursor.lastrowid, (scope.tenant, scope.user), NEVER_SEEN)


def timezone(tx: sqlite3.Connection, owner: int, new: NewExchange) -> str:
    """Return the exchange's zone; one that the request names becomes the user's last known."""
    if new.timezone is None:
        (known,) = tx.execute("SELECT timezone FROM scopes WHERE id = ?", (owner,)).fetchone()
        return known or new.default_timezone
    named = {"owner": owner, "name": new.timezone}
    tx.execute("UPDATE scopes SET timezone = :name WHERE id = :owner AND timezone IS NOT :name", named)
    return new.timezone


def forget_timezone(tx: sqlite3.Connection, owner: int) -> None:
    """Erase the user's last known time zone."""
    tx.execute("UPDATE scopes SET timezone = NULL WHERE id = ?", (owner,))


def set_version(tx: sqlite3.Connection, owner: int, version: int) -> None:
    """Say that what a search could return has changed."""
    tx.execute("UPDATE scopes SET version = ? WHERE id = ?", (version, owner))


def raise_generation(tx: sqlite3.Connection, owner: int) -> None:
    """Say that something was forgotten: whoever began before must not write."""
    tx.execute("UPDATE scopes SET generation = generation + 1, version = version + 1 WHERE id = ?", (owner,))
