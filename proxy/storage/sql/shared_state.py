"""What the processes of a store share in addition to users' data: API keys, what models were found to
accept, and the hourly quota of model calls. See ports.KeyStore, ports.FormStore and limits.CallQuota."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from proxy.domain import limits
from proxy.domain.limits import QuotaDecision
from proxy.domain.ports import Key
from proxy.storage.sql import rows
from proxy.storage.sql.database import Connection, DamagedRow, Store, legible, reads, writes


def _load(tx: Connection, key: str, *, lock: bool) -> Any:
    """Return the JSON in a row of `meta`, None if it is absent. `lock`: it is about to be changed."""
    if lock and tx.for_update:  # a row that is not there cannot be locked
        tx.execute("INSERT INTO meta VALUES (?, 'null') ON CONFLICT (key) DO NOTHING", (key,))
    query = "SELECT value FROM meta WHERE key = ?" + (tx.for_update if lock else "")
    row = tx.execute(query, (key,)).fetchone()
    with legible():
        return json.loads(row[0]) if row else None


def _save(tx: Connection, key: str, value: object) -> None:
    keep = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    tx.execute(keep, (key, json.dumps(value)))


# ---------------------------------------------------------------- API keys
_SELECT_KEY = "SELECT id, name, tenant, user, rights, upstream_key, created_at, revoked_at FROM keys"


class SqlKeys(Store):
    """The keys of all processes that share the file: one revoked anywhere is revoked everywhere at once."""

    @writes
    def add(self, tx: Connection, key: Key, digest: bytes) -> None:
        columns = {each.name: getattr(key, each.name) for each in fields(Key)}
        rows.insert(tx, "keys", digest=digest, **columns | {"rights": json.dumps(sorted(key.rights))})

    @reads
    def find(self, tx: Connection, digest: bytes) -> Key | None:
        return next(map(_read, rows.records(tx, f"{_SELECT_KEY} WHERE digest = ?", (digest,))), None)

    @reads
    def list(self, tx: Connection) -> Sequence[Key]:
        return list(map(_read, rows.records(tx, f"{_SELECT_KEY} ORDER BY seq DESC")))

    @writes
    def revoke(self, tx: Connection, key_id: str, at: float) -> bool:
        # Its digest stays, so that the key is known as revoked; the upstream's is of no more use.
        revoked = "UPDATE keys SET revoked_at = ?, upstream_key = NULL WHERE id = ? AND revoked_at IS NULL"
        return tx.execute(revoked, (at, key_id)).rowcount > 0


def _read(row: dict[str, Any]) -> Key:
    with legible():
        return Key(rights=frozenset(json.loads(row.pop("rights"))), **row)


# ---------------------------------------------------------------- forms
_FORMS = "forms"  # of `meta`: one JSON object


class SqlForms(Store):
    """A thousand short rows at most, in one row of the file: they change seldom."""

    async def load(self) -> Mapping[str, str]:
        return await self._database.read(forms_in)

    @writes
    def save(self, tx: Connection, rows: Mapping[str, str], most: int) -> None:
        found = {**forms_in(tx, lock=True), **rows}

        def until(key: str) -> float:
            try:
                return float(json.loads(found[key])["until"])
            except (ValueError, TypeError, LookupError):
                return 0.0

        latest = sorted(found, key=until, reverse=True)
        _save(tx, _FORMS, {key: found[key] for key in latest[:most]})


def forms_in(tx: Connection, *, lock: bool = False) -> dict[str, str]:
    """Return all rows; none where they cannot be read, since all of it can be learnt again."""
    try:
        found = _load(tx, _FORMS, lock=lock)
    except DamagedRow:
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in known if isinstance(value, str)}


# ---------------------------------------------------------------- calls
_CALLS = "calls"  # of `meta`: the times, oldest first


class SqlCalls(Store):
    """A few thousand times at most, in one row: a call takes longer than to write it."""

    @writes
    def spend(self, tx: Connection, limit: int, now: float) -> QuotaDecision:
        times, spent = limits.spend_call(_times(tx, lock=True), limit, now)
        _save(tx, _CALLS, times)
        return spent

    @reads
    def look(self, tx: Connection, limit: int, now: float) -> QuotaDecision:
        return limits.calls_left(_times(tx, lock=False), limit, now)[1]

    @writes
    def refund(self, tx: Connection, at: float) -> None:
        times = _times(tx, lock=True)
        if at in times:
            times.remove(at)
            _save(tx, _CALLS, times)


def _times(tx: Connection, *, lock: bool) -> list[float]:
    with legible():
        return sorted(_load(tx, _CALLS, lock=lock) or [])
