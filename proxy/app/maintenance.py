"""Maintenance of a running process: store retries, delivery to the index, retention, health, the clock."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from proxy import telemetry
from proxy.admit.gate import LANGUAGES
from proxy.app.parts import Parts, open_store, say_unavailable
from proxy.config import Settings
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable
from proxy.http.operations import Vitals
from proxy.learn.extractor import ROLE as EXTRACTION

JUMP_S = 5.0  # NTP slews what is less than half a second, and steps what is more, seldom by seconds
PATIENCE_S = 600.0


def elapsed() -> float:
    """Return seconds that only ever go by; a sleep of the machine counts where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """A ports.Clock: Unix seconds, without jumps."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = elapsed,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._wall, self._elapsed, self._patience_s = wall, elapsed, patience_s
        self._lock = threading.Lock()
        self._offset = wall() - elapsed()  # what makes the time of day of what has elapsed
        self._jumped: tuple[float, float] | None = None  # the offset after a jump, and since when

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            elapsed = self._elapsed()
            offset = self._wall() - elapsed
            if abs(offset - self._offset) < JUMP_S:
                self._offset, self._jumped = offset, None
            elif self._jumped is None or abs(offset - self._jumped[0]) >= JUMP_S:
                self._jumped = offset, elapsed
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=False)
            elif elapsed - self._jumped[1] >= self._patience_s:
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=True)
                self._offset, self._jumped = offset, None
            return elapsed + self._offset


STORE_RETRY_S = 2.0
SWEEP_EVERY_S = 600.0
UPKEEP_S = 60.0
REMIND_S = 60.0  # between two log lines about a store that cannot be opened, or is out of reach
INDEX_S = 1.5  # of each round, for the passages of long documents


def needs_no_client(settings: Settings) -> bool:
    """True where facts are extracted without the key of the client who told them."""
    if settings.memory.extraction != "llm":
        return settings.memory.extraction == "verbatim"
    key = settings.upstream.api_key
    return bool(key and key.get_secret_value()) or any(
        model.model_role == EXTRACTION for model in settings.external_models
    )


def vitals(parts: Parts) -> Vitals:
    """Return how memory is doing."""
    if not parts.stores.is_open:
        # While a shared store is away, the replicas still take requests, without memory.
        is_shared = parts.settings.storage.backend != "sqlite"
        return Vitals(Level.NONE, "store_unavailable", parts.stores.failure, ready=is_shared)
    # Before what rests because of it: what was remembered is still recalled where only writing fails.
    if trouble := parts.stores.trouble:
        return Vitals(Level.FULL if parts.stores.is_readable else Level.NONE, trouble)
    if resting := parts.fail_open.resting:
        return Vitals(Level.NONE, resting)
    if parts.embedder is None:
        return Vitals(Level.LEXICAL, "no_embedding_model")
    if parts.judge is None:
        return Vitals(Level.UNJUDGED, "no_judge")
    return Vitals(Level.FULL, "", texts=LANGUAGES.texts, unread=LANGUAGES.unread)


class Care:
    """The upkeep of one process."""

    def __init__(self, parts: Parts, steady: Callable[[], float] = time.monotonic) -> None:
        self.parts = parts
        self._steady = steady
        self._told_at = steady()  # the start has just said what became of the store
        self._to_wake = True

    def take_over(self) -> None:
        """Another App of this process, of other settings, has ended: what it left waiting need not wait."""
        self._to_wake = True

    async def keep_up(self) -> None:
        """Do every few seconds what is due, whatever became of it the last time."""
        swept_at = float("-inf")
        while True:
            await asyncio.sleep(STORE_RETRY_S)
            await self.parts.fail_open.attempt("upkeep", self._catch_up, UPKEEP_S)
            if time.monotonic() - swept_at >= SWEEP_EVERY_S:
                swept_at = time.monotonic()
                await self.parts.fail_open.attempt("retention", self._delete_what_is_old, UPKEEP_S)

    async def keep_index(self) -> None:
        """Send every few seconds what the vector index has not got: on its own, since the index may hang."""
        while True:
            await asyncio.sleep(STORE_RETRY_S)
            if self.parts.stores.is_open:
                await self.parts.fail_open.attempt("index", self._deliver, UPKEEP_S)

    async def _deliver(self) -> None:
        with suppress(StoreUnavailable):  # of that the upkeep tells
            await self.parts.stores.deliver()

    async def _catch_up(self) -> None:
        """Open a store that could not be opened at the start, and commit what could not be committed."""
        if not self.parts.stores.is_open:
            await self._open()
        with suppress(StoreUnavailable):
            await self._upkeep()
            if self._to_wake:
                await self._wake()
            await self.parts.written.recorder.catch_up()
            await self.parts.written.touches.write()
            if await self.parts.written.keeper.close(self.parts.clock()):
                self.parts.written.worker.wake.set()
            await self.parts.written.library.catch_up(INDEX_S)
            await self.parts.learning.forms.sync(self.parts.stores.forms)

    async def _wake(self) -> None:
        """Make due what waits for its user's key, where there is one of ours; once: if that is refused, too,
        it waits again."""
        if needs_no_client(self.parts.settings) and await self.parts.stores.jobs.wake(None):
            telemetry.log.info("memory.waiting_woken")
            self.parts.written.worker.wake.set()
        self._to_wake = False

    async def _open(self) -> None:
        try:
            await open_store(self.parts.stores, self.parts.embedder)
        except StoreUnavailable as error:
            self._tell(error)

    async def _upkeep(self) -> None:
        """Do the stores' own upkeep. Raises StoreUnavailable, which the log has told of by then."""
        try:
            await self.parts.stores.upkeep()
        except StoreUnavailable as error:
            if not self.parts.stores.trouble:  # of that the store itself tells
                self._tell(error)
            raise

    def _tell(self, error: StoreUnavailable) -> None:
        if self._steady() - self._told_at >= REMIND_S:
            self._told_at = self._steady()
            say_unavailable(self.parts.stores, error)

    async def _delete_what_is_old(self) -> None:
        now = self.parts.clock()
        storage = self.parts.settings.storage
        unused_since = now - storage.conversation_ttl_days * 86_400
        await self.parts.stores.chains.expire(now, unused_since=unused_since)
        await self.parts.stores.memories.expire(now)
        await self.parts.stores.sessions.prune(now - storage.exchange_ttl_days * 86_400)
