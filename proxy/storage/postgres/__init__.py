"""All stores in a PostgreSQL database, shared by any number of replicas on any machines."""

import asyncio
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Unpack

import psycopg

from proxy.storage.postgres.database import PostgresDatabase, Raw, connect, mapped
from proxy.storage.sql.database import Connection
from proxy.storage.sql.stores import SqlStores, StoreOptions

RENEWED_S = 3.0
DEAD_AFTER_S = 15.0
_FORGOTTEN_AFTER_S = 86_400.0
_NOW = "extract(epoch FROM clock_timestamp())"
_RENEW = (
    f"INSERT INTO instances VALUES (%s, {_NOW}) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"
).encode()
ALIVE = f"seen_at > {_NOW} - {DEAD_AFTER_S}"
"""The SQL condition for a row of `instances` of a live process."""
_CHANNEL = b"LISTEN memory_proxy"


class PostgresInstance:
    """This process among those that share the database, from `start` to `close`; hears what they announce.

    `announced` is called, in a thread, with "queued" for a job that waits and "forgot <owner>" for a user
    after a forget. An announcement may be lost: what it speeds up also happens without it.
    """

    def __init__(self, url: str, announced: Callable[[str], None]) -> None:
        self.id = secrets.token_hex(8)
        self._url, self._announced = url, announced
        self._ended = threading.Event()
        self._end_read, self._end_write = socket.socketpair()  # wakes the thread
        self._thread = threading.Thread(target=self._run, name="store-listener", daemon=True)
        self._raw: Raw | None = None

    def start(self) -> None:
        """Be alive to the others. Raises psycopg.Error."""
        self._raw = self._connected()
        self._thread.start()

    def is_dead(self, tx: Connection, instance: str) -> bool:
        """True if the process with this id has ended, or can no longer reach the database."""
        if instance == self.id:
            return False
        living = f"SELECT 1 FROM instances WHERE id = ? AND {ALIVE}"
        return tx.execute(living, (instance,)).fetchone() is None

    def clean(self) -> None:
        """Nothing: rows of dead processes are deleted when one renews its own."""

    def close(self) -> None:
        """Be dead to the others."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._end_write.send(b"x")
        if self._thread.is_alive():
            self._thread.join()
        self._end_read.close()
        self._end_write.close()

    # ------------------------------------------------------------ in the thread
    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if self._raw is None or self._raw.closed:
                    self._raw = self._connected()
                    self._announced("queued")  # what was announced while there was no connection
                self._renew(self._raw)
                until = time.monotonic() + RENEWED_S
                while (left := until - time.monotonic()) > 0 and not self._ended.is_set():
                    ready, _, _ = select.select([self._raw.fileno(), self._end_read.fileno()], [], [], left)
                    if self._raw.fileno() in ready:
                        for notice in self._raw.notifies(timeout=0):
                            self._announced(notice.payload)
            except psycopg.Error:  # the operations that meet the same outage report it
                self._drop()
                self._ended.wait(1.0)
        with suppress(psycopg.Error):
            if self._raw is not None:
                self._raw.execute(b"DELETE FROM instances WHERE id = %s", (self.id,))
        self._drop()

    def _connected(self) -> Raw:
        raw = connect(self._url)
        self._renew(raw)
        with suppress(psycopg.errors.FeatureNotSupported):  # CockroachDB: its replicas ask by themselves
            raw.execute(_CHANNEL)
        return raw

    def _renew(self, raw: Raw) -> None:
        raw.execute(_RENEW, (self.id,))
        raw.execute(f"DELETE FROM instances WHERE seen_at < {_NOW} - %s".encode(), (_FORGOTTEN_AFTER_S,))

    def _drop(self) -> None:
        if self._raw is not None:
            with suppress(psycopg.Error):
                self._raw.close()
            self._raw = None


class PostgresStores(SqlStores):
    """The stores over one PostgreSQL database."""

    def __init__(self, url: str, *, connections: int = 8, **options: Unpack[StoreOptions]) -> None:
        self._url = url
        self._database = PostgresDatabase(url, connections=connections)
        self.place = self._database.place
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(self._database, **options)

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._database.open()
        await self._refuse_unfinished_copy()

        def live() -> PostgresInstance:
            instance = PostgresInstance(self._url, self._announced)
            with mapped(self.place):
                instance.start()
            return instance

        await self._live_as(live)
        await self.memories.resume_forgets()

    def _announced(self, what: str) -> None:
        kind, _, owner = what.partition(" ")
        if kind == "queued":
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._wake)
        elif kind == "forgot" and owner.isdecimal():
            self.memories.forgetting.drop_caches(int(owner))
