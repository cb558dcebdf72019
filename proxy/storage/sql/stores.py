"""All stores over one database, whichever driver runs it: memories, sessions, jobs, chains and the rest.

Here are those that processes share in addition to users' data: API keys, what models were found to accept,
and the hourly quota of model calls. See ports.KeyStore, ports.FormStore and limits.CallQuota."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypedDict

from proxy.domain import limits
from proxy.domain.core import Quota
from proxy.domain.errors import StoreUnavailable, UnfitStore
from proxy.domain.limits import QuotaDecision
from proxy.domain.ports import Key
from proxy.storage.sql import rows
from proxy.storage.sql.changes import SqlQuarantine
from proxy.storage.sql.database import (
    Connection,
    DamagedRow,
    Database,
    Instance,
    Store,
    legible,
    reads,
    value,
    writes,
)
from proxy.storage.sql.derivation import SqlDerivation
from proxy.storage.sql.documents import SqlDocuments, SqlPassages
from proxy.storage.sql.entities import SqlEntities
from proxy.storage.sql.erasure import SqlReceipts
from proxy.storage.sql.evolution import SqlEvolution
from proxy.storage.sql.jobs import SqlJobs
from proxy.storage.sql.memories import SqlMemories, SqlTimeline
from proxy.storage.sql.notes import SqlNotes
from proxy.storage.sql.responses import SqlChains, SqlConversations
from proxy.storage.sql.sessions import SqlSessions
from proxy.storage.sql.vectors import Indexed, IndexUnavailable, Outbox, Report, SqlVectors, retire


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


# ---------------------------------------------------------------- all
UNLIMITED = Quota()
DELIVER_S = 20.0  # of one round
UNFINISHED_COPY = "copy"  # a key of `meta`, while `memory-proxy migrate` copies into this database
INDEX_BYTES, ROW_BYTES = 256 * 2**20, 128 * 2**20


class StoreOptions(TypedDict, total=False):
    """What may be chosen of the stores over any database."""

    index_bytes: int
    row_bytes: int
    quota: Quota
    indexed: Indexed | None


class SqlStores(ABC):
    """The stores over a database.

    Until `open()` has succeeded, and whenever the database is out of reach, their methods raise
    StoreUnavailable; they recover by themselves once it is back. A failed `open()` may be repeated."""

    place: str  # the database's address or file, for people, without credentials

    def __init__(
        self,
        database: Database,
        *,
        index_bytes: int = INDEX_BYTES,
        row_bytes: int = ROW_BYTES,
        quota: Quota = UNLIMITED,
        indexed: Indexed | None = None,
    ) -> None:
        self.failure = ""  # why the last `open()` failed, for operators
        self._instance: Instance | None = None
        self._wake: Callable[[], None] = lambda: None
        self.memories = SqlMemories(
            database, index_bytes=index_bytes, row_bytes=row_bytes, quota=quota, indexed=indexed
        )
        self._indexed = indexed
        self.outbox = Outbox(database, indexed.index) if indexed else None
        self._is_retired = False
        self.sessions = SqlSessions(database)
        self.notes = SqlNotes(database)
        self.jobs = SqlJobs(database)
        self.chains = SqlChains(database)
        self.conversations = SqlConversations(database)
        self.quarantine = SqlQuarantine(database)
        self.timeline = SqlTimeline(database)
        self.entities = SqlEntities(database)
        self.keys = SqlKeys(database)
        self.receipts = SqlReceipts(database)
        self.calls = SqlCalls(database)
        self.forms = SqlForms(database)
        self.documents = SqlDocuments(database, self.memories.forgetting, lambda: self.memories.model)
        self.passages = SqlPassages(database, lambda: self.memories.model, index_bytes=index_bytes // 4)
        self.memories.forgetting.on_forget.append(self.passages.drop_cache)
        self.vectors = SqlVectors(database)
        self.evolution = SqlEvolution(database, lambda: self.memories.model)
        self.derivation = SqlDerivation(database)
        self.database = database

    async def open(self) -> None:
        """Create the tables, or check them. Raises StoreUnavailable, with nothing overwritten, if it cannot;
        UnfitStore for a newer or a foreign database."""
        try:
            await self._open()
        except StoreUnavailable as error:
            self.failure = str(error)
            raise
        self.failure = ""

    @abstractmethod
    async def _open(self) -> None: ...

    async def close(self) -> None:
        """Finish what was accepted and end the threads; other processes may take over what is open."""
        if self._indexed is not None:
            await self._indexed.index.close()
        await self.database.close()
        if self._instance is not None:
            await asyncio.to_thread(self._instance.close)

    async def _live_as(self, make: Callable[[], Instance]) -> None:
        """Write under this process's name from now on."""
        if self._instance is None:
            instance = self._instance = await asyncio.to_thread(make)
            self.sessions.instance = self.jobs.instance = self.memories.forgetting.instance = instance

    @property
    def is_open(self) -> bool:
        return self.database.is_open

    @property
    def trouble(self) -> str:
        """What is wrong with the database, in a constant word; "" while all that is asked of it works."""
        return self.database.outages.current

    @property
    def is_readable(self) -> bool:
        """False while reading is what fails, and not only writing."""
        return not self.database.outages.of_reading

    def on_queued(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in this event loop, when another process has queued a job, if the database announces
        that."""
        self._wake = wake

    async def upkeep(self) -> None:
        """Do every few seconds what dead processes have left over, see whether trouble is over, and read
        users who may come back into the caches."""
        await self.database.probe()
        await self.memories.resume_forgets()
        if not self.trouble:
            await self.memories.prefetch.step()
            await self.entities.catch_up()

    async def deliver(self) -> None:
        """Send the external vector index, if there is one, what it lacks; it may block while that hangs."""
        if self.outbox is not None:
            with suppress(IndexUnavailable):  # it has logged that, and is tried again
                await self.outbox.deliver(DELIVER_S)
        elif not self._is_retired:
            await retire(self.database)
            self._is_retired = True

    async def reindex(self, report: Report) -> int:
        """Refill the external vector index; return how many memories were sent, 0 without one."""
        if self.outbox is None:
            return 0
        try:
            return await self.outbox.rebuild(report)
        except IndexUnavailable as error:
            raise StoreUnavailable(f"the vector index does not answer ({error})") from error

    async def _refuse_unfinished_copy(self) -> None:
        """Raise UnfitStore while a part of what belongs here is still elsewhere."""
        query = "SELECT 1 FROM meta WHERE key = ?"
        if await self.database.read(lambda tx: value(tx, query, (UNFINISHED_COPY,))):
            raise UnfitStore("the copy into this database is not finished: run `memory-proxy migrate` again")
