"""Maintenance of a running process: store retries, delivery to the index, retention, health, the clock."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from proxy import telemetry
from proxy.admit.gate import LANGUAGES
from proxy.app.services import Services, log_unavailable, open_store
from proxy.config import Settings
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable
from proxy.http.operations import Vitals
from proxy.learn.extractor import ROLE as EXTRACTION

STORE_RETRY_S = 2.0
SWEEP_EVERY_S = 600.0
UPKEEP_S = 60.0
REMIND_S = 60.0  # between two log lines about a store that cannot be opened or reached
INDEX_S = 1.5  # of each round, to embed passages of long documents

JUMP_S = 5.0  # NTP slews corrections below half a second and steps larger ones, rarely by seconds
PATIENCE_S = 600.0


# ---------------------------------------------------------------- the clock
def elapsed() -> float:
    """Return seconds that never jump; on Linux they include the machine's suspension."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """A ports.Clock: Unix seconds that do not follow sudden jumps of the system's time.

    Job deadlines, idle sessions, expiry and retention depend on the time of day. If it jumps (an operator's
    mistake, a failing battery, a virtual machine that is moved), what should last a day would end at once, or
    freeze for one. So a jump is adopted only after the system clock has agreed with it for `patience_s`;
    until then time continues as before. Small corrections are followed.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = elapsed,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._wall, self._elapsed, self._patience_s = wall, elapsed, patience_s
        self._lock = threading.Lock()
        self._offset = wall() - elapsed()  # time of day minus elapsed time
        self._jump: tuple[float, float] | None = None  # the offset after a jump, and when it was first seen

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            elapsed = self._elapsed()
            offset = self._wall() - elapsed
            if abs(offset - self._offset) < JUMP_S:
                self._offset, self._jump = offset, None
            elif self._jump is None or abs(offset - self._jump[0]) >= JUMP_S:
                self._jump = offset, elapsed
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=False)
            elif elapsed - self._jump[1] >= self._patience_s:
                telemetry.log.warning("clock.jumped", seconds=round(offset - self._offset), believed=True)
                self._offset, self._jump = offset, None
            return elapsed + self._offset


# ---------------------------------------------------------------- health
def vitals(services: Services) -> Vitals:
    """Return the state of memory, for /health and /ready."""
    stores = services.stores
    if not stores.is_open:
        # While a shared store is down, the replicas still take requests, without memory.
        is_shared = services.settings.storage.backend != "sqlite"
        return Vitals(Level.NONE, "store_unavailable", stores.failure, ready=is_shared)
    # Before the circuit breaker: a store that only fails to write can still recall.
    if trouble := stores.trouble:
        return Vitals(Level.FULL if stores.is_readable else Level.NONE, trouble)
    if resting := services.fail_open.resting:
        return Vitals(Level.NONE, resting)
    if services.models.embedder is None:
        return Vitals(Level.LEXICAL, "no_embedding_model")
    if services.models.judge is None:
        return Vitals(Level.UNJUDGED, "no_judge")
    return Vitals(Level.FULL, "", texts=LANGUAGES.texts, unread=LANGUAGES.unread)


# ---------------------------------------------------------------- maintenance
def extracts_without_client(settings: Settings) -> bool:
    """True if facts are extracted without the credential of the client who stated them."""
    if settings.memory.extraction != "llm":
        return settings.memory.extraction == "verbatim"
    key = settings.upstream.api_key
    return bool(key and key.get_secret_value()) or any(
        model.model_role == EXTRACTION for model in settings.external_models
    )


class Maintenance:
    """The periodic work of one process. Failures are logged and retried in the next round."""

    def __init__(self, services: Services, steady: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._steady = steady
        self._logged_at = steady()  # the start has just logged the store's state
        self._wakes_jobs = True

    def take_over(self) -> None:
        """Wake waiting jobs again: another App of this process, with other settings, has ended."""
        self._wakes_jobs = True

    async def keep_up(self) -> None:
        """Retry, commit and close sessions every few seconds; delete expired data every ten minutes."""
        swept_at = float("-inf")
        while True:
            await asyncio.sleep(STORE_RETRY_S)
            await self._services.fail_open.attempt("upkeep", self._catch_up, UPKEEP_S)
            if time.monotonic() - swept_at >= SWEEP_EVERY_S:
                swept_at = time.monotonic()
                await self._services.fail_open.attempt("retention", self._delete_expired, UPKEEP_S)

    async def keep_index(self) -> None:
        """Send outstanding vectors to the index every few seconds: in a task of its own, as it may hang."""
        while True:
            await asyncio.sleep(STORE_RETRY_S)
            if self._services.stores.is_open:
                await self._services.fail_open.attempt("index", self._deliver, UPKEEP_S)

    async def _deliver(self) -> None:
        with suppress(StoreUnavailable):  # logged by `_upkeep`
            await self._services.stores.deliver()

    async def _catch_up(self) -> None:
        """Open a store that could not be opened at the start, and commit what could not be committed."""
        stores, learner = self._services.stores, self._services.learner
        if not stores.is_open:
            try:
                await open_store(stores, self._services.models.embedder)
            except StoreUnavailable as error:
                self._log(error)
        with suppress(StoreUnavailable):
            await self._upkeep()
            if self._wakes_jobs:
                await self._wake_jobs()
            await learner.recorder.catch_up()
            await learner.access_counts.write()
            if await learner.notes.close(self._services.clock()):
                learner.worker.wake.set()
            await learner.documents.catch_up(INDEX_S)
            await self._services.learning.forms.sync(stores.forms)

    async def _wake_jobs(self) -> None:
        """Make jobs due that wait for their user's key, if we have one. Once: if that is refused too, they
        wait again."""
        if extracts_without_client(self._services.settings) and await self._services.stores.jobs.wake(None):
            telemetry.log.info("memory.waiting_woken")
            self._services.learner.worker.wake.set()
        self._wakes_jobs = False

    async def _upkeep(self) -> None:
        """Run the stores' own upkeep. Raises StoreUnavailable after logging it."""
        stores = self._services.stores
        try:
            await stores.upkeep()
        except StoreUnavailable as error:
            if not stores.trouble:  # which the store itself logs
                self._log(error)
            raise

    def _log(self, error: StoreUnavailable) -> None:
        if self._steady() - self._logged_at >= REMIND_S:
            self._logged_at = self._steady()
            log_unavailable(self._services.stores, error)

    async def _delete_expired(self) -> None:
        stores, storage, now = self._services.stores, self._services.settings.storage, self._services.clock()
        await stores.chains.expire(now, unused_since=now - storage.conversation_ttl_days * 86_400)
        await stores.memories.expire(now)
        await stores.sessions.prune(now - storage.exchange_ttl_days * 86_400)
