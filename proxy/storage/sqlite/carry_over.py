"""Carry over what must outlive a restore, since the backup does not know of it: forgets, responses that
clients deleted, and keys made or revoked.

Where the present database can be read, it decides: of a user who has forgotten anything since, nothing comes
back that is not in it. Receipts alone would not do: they name a memory, not what it had been made of.
Where it cannot be read, receipts kept elsewhere are carried out one by one, and of the users whom they name
nothing is extracted that had not been read: nobody knows whether what was forgotten was in it.

A response that its owner has deleted is known by its emptied row. Of a conversation or an item nothing is
left: it was deleted if the present database goes on from the backup, and is beyond its number.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.domain.core import Forgotten, Scope
from proxy.domain.oversight import Receipt
from proxy.storage.sql import owners
from proxy.storage.sql.forgetting import repeat
from proxy.storage.sql.forgetting.affected import Seqs
from proxy.storage.sql.forgetting.erase import erase
from proxy.storage.sql.receipts import keep, plus, receipt_of
from proxy.storage.sqlite import file

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
# Ids that are made at random, and that no import brings along: one in both, and one goes on from the other.
_RANDOM = ("conversations", "stored_responses", "exchanges", "receipts", "keys")
_USERS = "SELECT tenant, user FROM scopes WHERE user IS NOT NULL"
_ANCHOR = "json_array(x.exchange_id, x.slot, x.content)"
_ANCHORS = f"anchors x {_OF_SESSIONS.format('x')}"


@dataclass(frozen=True, slots=True)
class Present:
    """What the database that is to be replaced says of what happened since the backup."""

    path: Path
    receipts: tuple[Receipt, ...]
    unfinished: frozenset[str]  # receipts of forgets under way: what they cover is still there, and hidden
    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What was brought into the restored database."""

    receipts: int = 0  # of forgets that the backup did not know of
    erased: Forgotten = field(default_factory=Forgotten)
    unknown: int = 0  # of them name a memory younger than the backup, and nothing tells what that replaced
    keys: int = 0  # made or revoked since


def read(path: Path) -> Present:
    """Return what the database tells. Raises StoreUnavailable if it cannot be read to its end."""
    with _connected(path) as database:
        receipts = tuple(receipt_of(row) for row in database.execute(repeat.RECEIPTS))
        unfinished = frozenset(id_ for (id_,) in database.execute(_UNFINISHED))
        keys = tuple(database.execute(_KEYS).fetchall())
    file.check(path)
    return Present(path, receipts, unfinished, keys)


def receipts_in(path: Path) -> tuple[Receipt, ...]:
    """Return all receipts of a database that may be in use, the oldest first."""
    with _connected(path) as database:
        return repeat.receipts_in(database)


def carry(staged: Path, present: Present | None, receipts: Sequence[Receipt]) -> Carried:
    """Forget in the staged database what was forgotten since it was made; keep the receipts, and the keys as
    they are now."""
    with _connected(staged) as database:
        database.execute("BEGIN IMMEDIATE")
        known = {id_ for (id_,) in database.execute("SELECT id FROM receipts")}
        theirs = [r for r in (present.receipts if present else ()) if r.id not in known]
        known |= {r.id for r in theirs}
        others = list({r.id: r for r in receipts if r.id not in known}.values())
        erased, unknown = Forgotten(), 0
        if present is not None and theirs:
            erased = _as_in(present, database, theirs)
        if present is not None:
            erased = plus(erased, _delete_as_in(present, database))
        for receipt in others:
            counts, was_there = repeat.carry_out(database, receipt)
            erased, unknown = plus(erased, counts), unknown + (not was_there)
        for receipt in (*theirs, *others):
            keep(database, owners.ensure(database, Scope(receipt.tenant, receipt.user)).id, receipt)
        keys = _keep_keys(database, present)
        database.execute("COMMIT")
    return Carried(receipts=len(theirs) + len(others), erased=erased, unknown=unknown, keys=keys)


def keep_keys(staged: Path, present: Present) -> int:
    """Have the keys in the staged database as they are now; return how many were made or revoked since."""
    with _connected(staged) as database:
        return _keep_keys(database, present)


def _as_in(present: Present, staged: file.SqliteConnection, receipts: Sequence[Receipt]) -> Forgotten:
    """Erase of the users whom the receipts name what the present database does not have."""
    erased = Forgotten()
    with _connected(present.path) as now:
        for scope in dict.fromkeys(Scope(r.tenant, r.user) for r in receipts):
            erased = plus(erased, _keep_what_is_in(now, staged, scope))
    for receipt in receipts:
        if receipt.id in present.unfinished:
            erased = plus(erased, repeat.carry_out(staged, receipt)[0])
    return erased


def _keep_what_is_in(now: file.SqliteConnection, staged: file.SqliteConnection, scope: Scope) -> Forgotten:
    """Erase what the staged database has of the user and the present one has not."""
    ours = {"tenant": scope.tenant, "user": scope.user}
    owner = owners.find(staged, scope)
    if owner is None:
        return Forgotten()
    portion = tuple(_missing(now, staged, table, ours) for table in _NAMES)
    instructions = _names(now, f"SELECT {_ANCHOR} FROM {_ANCHORS}", ours)
    found = staged.execute(f"SELECT {_ANCHOR}, x.seq FROM {_ANCHORS}", ours).fetchall()
    erased = [(seq,) for said, seq in found if said not in instructions]
    staged.executemany("DELETE FROM anchors WHERE seq = ?", erased)
    for table in ("states", "marks"):  # made of what was said, and made anew
        staged.execute(
            f"DELETE FROM {table} WHERE session IN (SELECT id FROM sessions WHERE owner = ?)", (owner.id,)
        )
    owners.raise_generation(staged, owner.id)
    return erase(staged, owner.id, portion)


def _delete_as_in(present: Present, staged: file.SqliteConnection) -> Forgotten:
    """Delete what clients have deleted, of every user."""
    emptied, erased = 0, Forgotten()
    with _connected(present.path) as now:
        for tenant, user, id_ in now.execute(_DELETED):
            emptied += staged.execute(_EMPTY, {"tenant": tenant, "user": user, "id": id_}).rowcount
        users = staged.execute(_USERS).fetchall() if _goes_on(now, staged) else []
        for tenant, user in users:
            portion = tuple(_deleted(now, staged, table, Scope(tenant, user)) for table in _DELETABLE)
            if any(seqs for _, seqs in portion):
                owner = owners.ensure(staged, Scope(tenant, user))
                erased = plus(erased, erase(staged, owner.id, portion))
    return plus(erased, Forgotten(responses=emptied))


def _goes_on(now: file.SqliteConnection, staged: file.SqliteConnection) -> bool:
    """True if the present database has something that the staged one has: one that was begun anew, after a
    loss, lacks what nobody deleted."""
    for table in _RANDOM:
        ids = f"SELECT id FROM {table}"
        if not _names(now, ids, {}).isdisjoint(id_ for (id_,) in staged.execute(ids)):
            return True
    return False


def _deleted(
    now: file.SqliteConnection, staged: file.SqliteConnection, table: str, scope: Scope
) -> tuple[str, Seqs]:
    """Return what of the user's was deleted: not what came to the backup after the present database parted
    from it, since that was put back from an older one."""
    _, seqs = _missing(now, staged, table, {"tenant": scope.tenant, "user": scope.user})
    free = _FREE.format(_DELETABLE[table])
    return table, tuple(seq for (seq,) in now.execute(free, {"seqs": json.dumps(seqs)})) if seqs else ()


def _missing(
    now: file.SqliteConnection, staged: file.SqliteConnection, table: str, ours: dict[str, str]
) -> tuple[str, Seqs]:
    """Return what the staged database has of the user in the table, and the present one has not."""
    name, number, where = _NAMES[table]
    left = _names(now, f"SELECT {name} FROM {where}", ours)
    found = staged.execute(f"SELECT {name}, {number} FROM {where}", ours)
    return table, tuple(seq for id_, seq in found if id_ not in left)


def _names(now: file.SqliteConnection, query: str, ours: dict[str, str]) -> set[str]:
    """Return what the query tells; nothing where the database is of before its table."""
    try:
        return {name for (name,) in now.execute(query, ours)}
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return set()
        raise


def _keep_keys(staged: file.SqliteConnection, present: Present | None) -> int:
    if present is None:
        return 0
    known = set(staged.execute(_KEYS).fetchall())
    new = [key for key in present.keys if key not in known]
    staged.executemany(_KEEP_KEY, new)
    return len(new)


@contextmanager
def _connected(path: Path) -> Iterator[file.SqliteConnection]:
    with file.mapped(path), closing(file.connect(path)) as connection:
        yield connection
