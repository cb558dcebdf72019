"""The ASGI application of one process from start to end, with its configuration reloaded while it serves.

A new configuration is served by a new App, next to the old one. Requests that arrive from then on are the new
one's; the old one stays until its last request is answered, however long that streams.
"""

import asyncio
import gc
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from pydantic import SecretStr

from proxy import __version__, telemetry
from proxy.app.factories import refuse_open_network
from proxy.app.http import routes
from proxy.app.services import Services, log_unavailable, open_store
from proxy.config import PREFIX, Settings, load
from proxy.domain.errors import ConfigError, StoreUnavailable
from proxy.domain.limits import raise_file_limit
from proxy.domain.ports import Clock
from proxy.http.asgi import ASGIScope, Receive, Send, send_json
from proxy.http.connections import CONNECTIONS, ClientLimits, Connections
from proxy.http.router import Application, give_request_id, with_request_id
from proxy.learn.extractor import ROLE as EXTRACTION

STORE_RETRY_S = 2.0
SWEEP_EVERY_S = 600.0
UPKEEP_S = 60.0
REMIND_S = 60.0  # between two log lines about a store that cannot be opened or reached
INDEX_S = 1.5  # of each round, to embed passages of long documents
JUMP_S = 5.0  # NTP slews corrections below half a second and steps larger ones, rarely by seconds
PATIENCE_S = 600.0
CLOSE_S = 2.0  # for each step of an orderly end
PROBED_WITHIN_S = 60.0  # /ready is answered with 503 before the end if it was requested this recently

OpenUpstream = Callable[[AsyncExitStack], Awaitable[str]]
"""Returns the URL of an upstream that runs until the stack is closed."""


# ---------------------------------------------------------------- what a reload can change
# The process is built around these: its socket, its siblings, its stores, its tracer.
_FIXED = frozenset(
    "server.host server.port server.workers server.head_timeout_seconds server.body_timeout_seconds"
    " server.max_connections server.max_connections_per_peer server.shutdown_seconds server.leave_seconds"
    " storage.backend storage.data_dir storage.postgres_url storage.postgres_connections"
    " storage.vectors".split()
)
_FIXED_SECTIONS = frozenset(("cache", "qdrant", "tracing"))


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    settings: Settings  # the new ones, with the old values of fixed keys
    changed: tuple[str, ...]  # keys that take effect now
    needs_restart: tuple[str, ...]  # keys that take effect after a restart


def plan_reload(current: Settings, wanted: Settings) -> ReloadPlan:
    """Return what can be changed of `current` towards `wanted`."""
    old, new = _flat(current), _flat(wanted)
    differing = [key for key in new if new[key] != old[key]]
    fixed = [key for key in differing if is_fixed(key)]
    settings = wanted
    for key in fixed:
        section, _, name = key.partition(".")
        changed = getattr(settings, section).model_copy(update={name: old[key]})
        settings = settings.model_copy(update={section: changed})
    return ReloadPlan(settings, tuple(key for key in differing if key not in fixed), tuple(fixed))


def is_fixed(key: str) -> bool:
    """True if a change of the setting needs a restart."""
    return key in _FIXED or key.partition(".")[0] in _FIXED_SECTIONS


def pinned_environment(settings: Settings) -> Mapping[str, str]:
    """Return variables that give every worker process, also one that replaces a dead one, the same fixed
    settings."""
    values = _flat(settings) | {"storage.data_dir": settings.data_dir}
    keys = {f"{PREFIX}{key.upper().replace('.', '__')}": _plain(values[key]) for key in _FIXED}
    sections = {
        f"{PREFIX}{name.upper()}": json.dumps(getattr(settings, name).model_dump(), default=_plain)
        for name in _FIXED_SECTIONS
    }
    return keys | sections


def _flat(settings: Settings) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, values in settings.model_dump().items():
        keyed = isinstance(values, dict)
        flat |= {f"{section}.{k}": v for k, v in values.items()} if keyed else {section: values}
    return flat


def _plain(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)


# ---------------------------------------------------------------- the clock
def elapsed() -> float:
    """Return seconds that never jump; on Linux they include the machine's suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


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


# ---------------------------------------------------------------- periodic work
def extracts_without_client(settings: Settings) -> bool:
    """True if facts are extracted without the credential of the client who stated them."""
    if settings.memory.extraction != "llm":
        return settings.memory.extraction == "verbatim"
    key = settings.upstream.api_key
    return bool(key and key.get_secret_value()) or any(
        model.model_role == EXTRACTION for model in settings.external_models
    )


class Maintenance:
    """The periodic work of one App. Failures are logged and retried in the next round."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._logged_at = time.monotonic()  # the start has just logged the store's state
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
        stores = self._services.stores

        async def deliver() -> None:
            with suppress(StoreUnavailable):  # logged by `_catch_up`
                await stores.deliver()

        while True:
            await asyncio.sleep(STORE_RETRY_S)
            if stores.is_open:
                await self._services.fail_open.attempt("index", deliver, UPKEEP_S)

    async def _catch_up(self) -> None:
        """Open a store that could not be opened at the start, and commit what could not be committed."""
        services, stores, learner = self._services, self._services.stores, self._services.learner
        try:
            if not stores.is_open:
                await open_store(stores, services.models.embedder)
            await stores.upkeep()
        except StoreUnavailable as error:
            is_due = time.monotonic() - self._logged_at >= REMIND_S
            if is_due and not (stores.is_open and stores.trouble):  # trouble is logged by the store itself
                self._logged_at = time.monotonic()
                log_unavailable(stores, error)
            return
        with suppress(StoreUnavailable):
            # Once: jobs that wait for their user's key wait again if ours is refused too.
            may_wake = self._wakes_jobs and extracts_without_client(services.settings)
            if may_wake and await stores.jobs.wake(None):
                telemetry.log.info("memory.waiting_woken")
                learner.worker.wake.set()
            self._wakes_jobs = False
            await learner.recorder.catch_up()
            await learner.access_counts.write()
            if await learner.notes.close(services.clock()):
                learner.worker.wake.set()
            await learner.documents.catch_up(INDEX_S)
            await services.learning.forms.sync(stores.forms)

    async def _delete_expired(self) -> None:
        stores, storage, now = self._services.stores, self._services.settings.storage, self._services.clock()
        await stores.chains.expire(now, unused_since=now - storage.conversation_ttl_days * 86_400)
        await stores.memories.expire(now)
        await stores.sessions.prune(now - storage.exchange_ttl_days * 86_400)


# ---------------------------------------------------------------- one configuration, serving
@dataclass(frozen=True, slots=True)
class App:
    """The running proxy of one configuration."""

    routes: Application
    has_judge: bool
    embedder_source: str  # where the embedding model is from, "" for lexical search only
    maintenance: Maintenance

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        upstream_url: str,
        *,
        clock: Clock = time.time,
        must_embed: bool = False,
        succeeded: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator["App"]:
        """Run the proxy while the block runs. Raises ConfigError for what only an operator can change.

        `succeeded` is called at the end: True if another App takes over, so that sessions continue."""
        async with AsyncExitStack() as stack:
            if (tracing := settings.tracing).endpoint is not None:
                provider = telemetry.start_tracing(
                    tracing.endpoint, sample=tracing.sample, service=tracing.service, version=__version__
                )
                stack.push_async_callback(asyncio.to_thread, telemetry.stop_tracing, provider)
            services = await Services.open(settings, upstream_url, stack, clock, must_embed=must_embed)
            maintenance = Maintenance(services)
            has_judge = services.models.judge is not None
            app = cls(routes(services), has_judge, services.models.embedder_source, maintenance)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(maintenance.keep_up()),
                    tasks.create_task(maintenance.keep_index()),
                    tasks.create_task(services.learner.worker.run()),
                    tasks.create_task(services.learner.evolution.run()),
                ]
                try:
                    yield app
                finally:
                    for task in running:
                        task.cancel()
                    await asyncio.wait(running)
                    # Other replicas continue their users' sessions, and close them in time.
                    sessions_continue = succeeded() or settings.storage.backend != "sqlite"
                    await _finish(services, ends_sessions=not sessions_continue)


async def _finish(services: Services, *, ends_sessions: bool) -> None:
    """Commit answers that wait for the store, extract what is pending, then summarise the sessions that
    end: a summary is made of what is stored. What is not done in time is queued for the next start."""
    learner, attempt = services.learner, services.fail_open.attempt
    # First: an exchange without its answer is not extracted.
    await attempt("late", learner.recorder.catch_up, CLOSE_S)
    ends_at = time.monotonic() + services.settings.server.shutdown_seconds
    # Now, while the credentials of the clients are known: after a restart they are not.
    await learner.worker.drain(services.settings.server.shutdown_seconds)
    await attempt("touch", learner.access_counts.write, CLOSE_S)
    await attempt("forms", lambda: services.learning.forms.sync(services.stores.forms), CLOSE_S)
    if ends_sessions:
        await attempt("close", lambda: learner.notes.close_all(services.clock()), CLOSE_S)
        await learner.worker.drain(max(0.0, ends_at - time.monotonic()))


@dataclass(slots=True, eq=False)
class Generation:
    """One App and its requests. It ends with the process, or after its last request once `retire` was
    called."""

    settings: Settings
    app: App
    requests: int = 0
    is_last: bool = True  # no other generation takes over
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        self.requests += 1
        try:
            await self.app.routes(scope, receive, send)
        finally:
            self.requests -= 1
            if not self.requests and not self.is_last:
                self.ended.set()

    def retire(self) -> None:
        """Take no further requests; end after the last one that is being served."""
        self.is_last = False
        if not self.requests:
            self.ended.set()


# ---------------------------------------------------------------- the process's application
class ReloadableApp:
    """The application with its lifespan. `on_started` is called once it serves. `reloads`: SIGHUP reloads the
    configuration; `owns_process`: the process ends with it, so after SIGTERM /ready answers 503 for a while,
    the log says when a stop begins and ends, and start-up objects are frozen out of garbage collection."""

    def __init__(
        self,
        settings: Settings,
        *,
        scripted: OpenUpstream,
        on_started: Callable[[App], None] = lambda app: None,
        reloads: bool = False,
        owns_process: bool = False,
    ) -> None:
        self.failure: ConfigError | None = None
        self._settings, self._scripted, self._on_started = settings, scripted, on_started
        self._reloads, self._owns_process = reloads, owns_process
        self._clock = SteadyClock()
        self._current: Generation | None = None
        self._generations: set[Generation] = set()
        self._reloading = asyncio.Lock()
        self._probed_at = float("-inf")  # when /ready was requested last
        self._is_stopping, self._stopping_at = False, 0.0
        self._is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send, scope.get("state"))
        elif scope["type"] == "http" and self._current is not None:
            if scope["path"] == "/ready":
                self._probed_at = time.monotonic()
                if self._is_stopping:
                    headers = with_request_id([], give_request_id(scope))
                    await send_json(send, 503, {"status": "leaving"}, headers)
                    return
            await self._current.serve(scope, receive, send)

    async def _live(self, receive: Any, send: Any, state: dict[str, Any] | None) -> None:
        await receive()
        if state is not None:
            # The register of client connections, which the protocol finds here.
            server = self._settings.server
            timeouts = (server.head_timeout_seconds, server.body_timeout_seconds)
            most = (server.max_connections, server.max_connections_per_peer)
            limits = ClientLimits.of(*timeouts, *most, raise_file_limit())
            state[CONNECTIONS] = Connections(limits, self._count_ended)
        async with asyncio.TaskGroup() as tasks:
            try:
                self._current = await self._begin(tasks, self._settings)
            except ConfigError as error:
                self.failure = error
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            if self._owns_process:
                # Its start-up objects stay: a full collection would stall answers for 0.1 s.
                gc.collect()
                gc.freeze()
            with self._signal_handlers(tasks):
                self._on_started(self._current.app)
                await send({"type": "lifespan.startup.complete"})
                await receive()
                if self._owns_process and not self._is_stopping:  # the signal came before our handlers
                    self._is_stopping, self._stopping_at = True, time.monotonic()
                    self._log_stop("shutdown", 0.0)
            self._is_over = True
            for generation in tuple(self._generations):
                generation.ended.set()
        if self._owns_process:
            telemetry.log.info("process.stopped", took_s=round(time.monotonic() - self._stopping_at, 1))
        await send({"type": "lifespan.shutdown.complete"})

    def _count_ended(self, reason: str) -> None:
        if self._current is not None:
            self._current.app.routes.metrics.connections_ended.labels(reason).inc()

    async def _begin(
        self, tasks: asyncio.TaskGroup, settings: Settings, *, must_embed: bool = False
    ) -> Generation:
        """Return a new generation, ready to serve. Raises ConfigError, also for a missing embedding model
        if it `must_embed`."""
        ready = asyncio.get_running_loop().create_future()
        tasks.create_task(self._run(settings, ready, must_embed))
        generation: Generation = await ready
        return generation

    async def _run(self, settings: Settings, ready: "asyncio.Future[Generation]", must_embed: bool) -> None:
        """Run one generation from its start to its end: an App is closed by the task that opened it."""
        generation: Generation | None = None
        try:
            async with AsyncExitStack() as stack:
                upstream = settings.upstream.base_url or await self._scripted(stack)
                opening = App.open(
                    settings,
                    upstream,
                    clock=self._clock,
                    must_embed=must_embed,
                    succeeded=lambda: generation is not None and not generation.is_last,
                )
                generation = Generation(settings, await stack.enter_async_context(opening))
                self._generations.add(generation)
                ready.set_result(generation)
                if not self._is_over:
                    await generation.ended.wait()
        except Exception as error:
            if generation is None:
                ready.set_exception(error)  # the caller of `_begin` handles it
            elif generation.is_last:
                raise
            else:  # it did not close in order, but another serves
                telemetry.log.error("config.reload.rest_failed", error=type(error).__name__)
        finally:
            if generation is not None:
                self._generations.discard(generation)
                if self._current is not None and self._current is not generation:
                    self._current.app.maintenance.take_over()

    # ------------------------------------------------------------ reload
    async def reload(self, tasks: asyncio.TaskGroup) -> None:
        """Read the configuration again and serve with it, if that is possible without a restart. A
        configuration that cannot be read or does not start changes nothing. Never raises."""
        async with self._reloading:
            old = self._current
            assert old is not None, "signals are handled after the first start"
            try:
                plan = plan_reload(old.settings, load(None, os.environ))
                if plan.needs_restart:
                    telemetry.log.warning("config.reload.needs_restart", keys=plan.needs_restart)
                if not plan.changed:
                    telemetry.log.info("config.reload.unchanged")
                    return
                refuse_open_network(plan.settings)
                embeds = bool(old.app.embedder_source)
                self._current = await self._begin(tasks, plan.settings, must_embed=embeds)
                telemetry.configure(plan.settings.logging.level, plan.settings.logging.format)
                old.retire()
                telemetry.log.info("config.reload.done", keys=plan.changed, requests_under_way=old.requests)
            except Exception as error:  # noqa: BLE001  a mistake in a file must not end a process that serves
                reason = str(error) if isinstance(error, ConfigError) else type(error).__name__
                telemetry.log.error("config.reload.failed", error=reason, changed=[])

    # ------------------------------------------------------------ signals
    @contextmanager
    def _signal_handlers(self, tasks: asyncio.TaskGroup) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if self._owns_process:
            for number in (signal.SIGTERM, signal.SIGINT):
                stop = signal.getsignal(number)  # uvicorn's, which uvicorn restores itself
                signal.signal(number, partial(self._stop, loop, stop))
        if self._reloads:
            terminal = Terminal()

            def hang_up() -> None:
                if terminal.was_closed():
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    tasks.create_task(self.reload(tasks))

            loop.add_signal_handler(signal.SIGHUP, hang_up)
        try:
            yield
        finally:
            if self._reloads:
                loop.remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, loop: asyncio.AbstractEventLoop, stop: Any, number: int, frame: FrameType | None) -> None:
        """Stop. On SIGTERM, if /ready is probed, answer it with 503 for a while before the port is closed."""
        is_probed = time.monotonic() - self._probed_at < PROBED_WITHIN_S
        waits = is_probed and number == signal.SIGTERM and not self._is_stopping
        wait_s = self._settings.server.leave_seconds if waits else 0.0
        if not self._is_stopping:
            self._is_stopping, self._stopping_at = True, time.monotonic()
            # In the loop: the signal may interrupt the writing of a log line.
            loop.call_soon_threadsafe(self._log_stop, signal.Signals(number).name, wait_s)
        if wait_s:
            loop.call_soon_threadsafe(loop.call_later, wait_s, stop, number, frame)
        else:
            stop(number, frame)

    def _log_stop(self, reason: str, wait_s: float) -> None:
        requests = sum(generation.requests for generation in self._generations)
        facts = {"requests_under_way": requests, "port_closes_in_s": wait_s}
        telemetry.log.info("process.stopping", reason=reason, **facts)


class Terminal:
    """The terminal that the process was started from, if any. Closing it ends the process; without one,
    SIGHUP reloads the configuration."""

    def __init__(self) -> None:
        self.is_attached = os.isatty(0)

    def was_closed(self) -> bool:
        if not self.is_attached:
            return False
        try:
            os.tcgetpgrp(0)
        except OSError:
            return True
        return False
