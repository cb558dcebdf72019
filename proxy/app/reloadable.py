"""The ASGI application of one process from start to end, with its configuration reloaded while it serves.

A new configuration is served by a new App beside the old one. Requests that arrive from then on are the new
one's; the old one stays until its last request is answered, however long that streams.
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from pydantic import BaseModel, SecretStr

from proxy import __version__, telemetry
from proxy.app.factories import refuse_open_network
from proxy.app.http import routes
from proxy.app.maintenance import Care, SteadyClock
from proxy.app.parts import Parts
from proxy.config import PREFIX, Settings, config_file, load
from proxy.domain.errors import ConfigError
from proxy.domain.operating_system import raise_file_limit
from proxy.domain.ports import Clock
from proxy.http.asgi import ASGIScope, Receive, Send, send_json
from proxy.http.connections import CONNECTIONS, ClientLimits, Connections
from proxy.http.router import Application, give_request_id, with_request_id

# What the process is built around: its socket, its neighbours, its stores, what it records spans with.
_FIXED = frozenset(
    (
        "server.host",
        "server.port",
        "server.workers",
        "server.head_timeout_seconds",
        "server.body_timeout_seconds",
        "server.max_connections",
        "server.max_connections_per_peer",
        "server.shutdown_seconds",
        "server.leave_seconds",
        "storage.backend",
        "storage.data_dir",
        "storage.postgres_url",
        "storage.postgres_connections",
        "storage.vectors",
    )
)
_FIXED_SECTIONS = frozenset(("cache", "qdrant", "tracing"))


@dataclass(frozen=True, slots=True)
class Reload:
    """What becomes of a new configuration."""

    settings: Settings  # to serve with: the new ones, but for what has to stay
    changed: tuple[str, ...]  # keys that differ, and count from now on
    needs_restart: tuple[str, ...]  # keys that differ, and do not count until a restart


def planned(current: Settings, wanted: Settings) -> Reload:
    """Return what can be changed of `current` towards `wanted`."""
    differing = [key for key, value in _values(wanted).items() if value != _values(current)[key]]
    kept = [key for key in differing if is_fixed(key)]
    settings = wanted
    for key in kept:
        section, _, name = key.partition(".")
        values = {name: getattr(getattr(current, section), name)}
        changed = getattr(settings, section).model_copy(update=values)
        settings = settings.model_copy(update={section: changed})
    return Reload(settings, tuple(key for key in differing if key not in kept), tuple(kept))


def is_fixed(key: str) -> bool:
    """True if the setting holds until a restart."""
    return key in _FIXED or key.partition(".")[0] in _FIXED_SECTIONS


def pinned(settings: Settings) -> Mapping[str, str]:
    """Return an environment that holds worker processes, also those that are started later in place of one
    that died, to what must not differ between them."""
    values = _values(settings) | {"storage.data_dir": settings.data_dir}
    keys = {f"{PREFIX}{key.upper().replace('.', '__')}": _as_text(values[key]) for key in _FIXED}
    sections = {f"{PREFIX}{name.upper()}": _as_json(getattr(settings, name)) for name in _FIXED_SECTIONS}
    return keys | sections


def _as_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)


def _values(settings: Settings) -> dict[str, Any]:
    return dict(_flat(settings))


def _flat(settings: Settings) -> Iterator[tuple[str, Any]]:
    for section in type(settings).model_fields:
        values = getattr(settings, section)
        if not isinstance(values, BaseModel):
            yield section, values
            continue
        for name in type(values).model_fields:
            yield f"{section}.{name}", getattr(values, name)


def _as_json(section: BaseModel) -> str:
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return json.dumps(
        {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in values.items()
        },
        default=str,
    )


CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class App:
    """One process's proxy, running."""

    routes: Application
    judges: bool  # whether the trained heads are there
    embedder: str  # where the embedding model came from, "" for lexical search only
    care: Care

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
        """Run the proxy while the block runs. Raises ConfigError for what only an operator can mend.

        `succeeded` is asked at the end: whether another one takes over, so that sessions go on."""
        async with AsyncExitStack() as stack:
            if (wanted := settings.tracing).endpoint is not None:
                recorded = telemetry.start_tracing(
                    wanted.endpoint, sample=wanted.sample, service=wanted.service, version=__version__
                )
                stack.push_async_callback(asyncio.to_thread, telemetry.stop_tracing, recorded)
            parts = await Parts.open(settings, upstream_url, stack, clock, must_embed=must_embed)
            running = cls(routes(parts), parts.judge is not None, parts.embedder_source, Care(parts))
            async with asyncio.TaskGroup() as tasks:
                owned = [
                    tasks.create_task(running.care.keep_up()),
                    tasks.create_task(running.care.keep_index()),
                    tasks.create_task(parts.written.worker.run()),
                ]
                try:
                    yield running
                finally:
                    for task in owned:
                        task.cancel()
                    await asyncio.wait(owned)
                    # Other replicas go on with their users' sessions, and close them in time.
                    goes_on = succeeded() or settings.storage.backend != "sqlite"
                    await _finish(parts, sessions_end=not goes_on)


async def _finish(parts: Parts, *, sessions_end: bool) -> None:
    """Commit the answers that wait for the store, extract what is pending, then sum up every session that
    ends: a summary is made of what is stored. What does not get done in time is queued for the next start."""
    # First: an exchange without its answer is not read.
    await parts.fail_open.attempt("late", parts.written.recorder.catch_up, CLOSE_S)
    ends_at = time.monotonic() + parts.settings.server.shutdown_seconds
    # Now, while the credentials of the clients are known: nobody else will have them.
    await parts.written.worker.drain(parts.settings.server.shutdown_seconds)
    await parts.fail_open.attempt("touch", parts.written.touches.write, CLOSE_S)
    await parts.fail_open.attempt("forms", lambda: parts.learning.forms.sync(parts.stores.forms), CLOSE_S)
    if not sessions_end:
        return
    await parts.fail_open.attempt("close", lambda: parts.written.keeper.close_all(parts.clock()), CLOSE_S)
    await parts.written.worker.drain(max(0.0, ends_at - time.monotonic()))


ASKED_WITHIN_S = 60.0  # of /ready, for its answer to matter to anybody when the process leaves

OpenUpstream = Callable[[contextlib.AsyncExitStack], Awaitable[str]]
"""Gives the URL of an upstream that runs until the stack is closed."""


def settings_of(environ: Mapping[str, str]) -> Settings:
    """Return the settings of an environment and of the file that it names. Raises ConfigError."""
    return load(config_file(None, environ), environ)


def settings_of_process() -> Settings:
    """Return the settings as they are now."""
    return settings_of(os.environ)


def _keep_what_is_there() -> None:
    """Take what is imported, and the tables that are loaded, from the garbage collector's hands: they stay as
    long as the process, and to look through them stops all answers for a tenth of a second each time."""
    gc.collect()
    gc.freeze()


@dataclass(slots=True, eq=False)
class Generation:
    """One App and the requests that are its."""

    settings: Settings
    app: App
    requests: int = 0
    is_last: bool = True  # the process ends with it: no other takes over
    _retired: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        self.requests += 1
        try:
            await self.app.routes(scope, receive, send)
        finally:
            self.requests -= 1
            if not self.requests and not self.is_last:
                self._retired.set()

    def give_way(self) -> None:
        """Get no further requests; end after the last that is under way."""
        self.is_last = False
        if not self.requests:
            self._retired.set()

    def end(self) -> None:
        """End now."""
        self._retired.set()

    async def until_retired(self) -> None:
        await self._retired.wait()


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
        self._ready_asked_at = float("-inf")
        self._is_leaving, self._left_at = False, 0.0
        self._is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send, scope.get("state"))
        elif scope["type"] == "http" and self._current is not None:
            if scope["path"] == "/ready":
                self._ready_asked_at = time.monotonic()
                if self._is_leaving:
                    id_ = with_request_id([], give_request_id(scope))
                    await send_json(send, 503, {"status": "leaving"}, id_)
                    return
            await self._current.serve(scope, receive, send)

    # ------------------------------------------------------------ from start to end
    async def _live(self, receive: Any, send: Any, state: dict[str, Any] | None) -> None:
        await receive()
        if state is not None:
            state[CONNECTIONS] = self._connections()
        async with asyncio.TaskGroup() as tasks:
            try:
                self._current = await self._begin(tasks, self._settings)
            except ConfigError as error:
                self.failure = error
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            if self._owns_process:
                _keep_what_is_there()
            with self._hearing_signals(tasks):
                self._on_started(self._current.app)
                await send({"type": "lifespan.startup.complete"})
                await receive()
                if self._owns_process and not self._is_leaving:  # it was told to before it could hear us
                    self._is_leaving, self._left_at = True, time.monotonic()
                    self._say_that_it_stops("shutdown", 0.0)
            self._is_over = True
            for generation in tuple(self._generations):
                generation.end()
        if self._owns_process:
            telemetry.log.info("process.stopped", took_s=round(time.monotonic() - self._left_at, 1))
        await send({"type": "lifespan.shutdown.complete"})

    def _connections(self) -> Connections:
        """Return the register of client connections, which the protocol finds in the lifespan's state."""
        server = self._settings.server
        limits = ClientLimits.of(
            server.head_timeout_seconds,
            server.body_timeout_seconds,
            server.max_connections,
            server.max_connections_per_peer,
            raise_file_limit(),
        )
        return Connections(limits, self._count_ended)

    def _count_ended(self, reason: str) -> None:
        if self._current is not None:
            self._current.app.routes.metrics.connections_ended.labels(reason).inc()

    async def _begin(
        self, tasks: asyncio.TaskGroup, settings: Settings, *, must_embed: bool = False
    ) -> Generation:
        """Return a new generation, ready to serve. Raises ConfigError; if it `must_embed`, for want of an
        embedding model, too."""
        ready = asyncio.get_running_loop().create_future()
        tasks.create_task(self._run(settings, ready, must_embed))
        generation: Generation = await ready
        return generation

    async def _run(self, settings: Settings, ready: "asyncio.Future[Generation]", must_embed: bool) -> None:
        """Run one generation from its start to its end: an App is closed by the task that opened it."""
        generation: Generation | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                upstream = settings.upstream.base_url or await self._scripted(stack)
                app = await stack.enter_async_context(
                    App.open(
                        settings,
                        upstream,
                        clock=self._clock,
                        must_embed=must_embed,
                        succeeded=lambda: generation is not None and not generation.is_last,
                    )
                )
                generation = Generation(settings, app)
                self._generations.add(generation)
                ready.set_result(generation)
                if not self._is_over:
                    await generation.until_retired()
        except Exception as error:
            if generation is None:
                ready.set_exception(error)  # whoever waits for it decides what becomes of the process
            elif generation.is_last:
                raise
            else:  # it could not be closed in order; another serves
                telemetry.log.error("config.reload.rest_failed", error=type(error).__name__)
        finally:
            if generation is not None:
                self._generations.discard(generation)
                if self._current is not None and self._current is not generation:
                    self._current.app.care.take_over()

    # ------------------------------------------------------------ changed in between
    async def reload(self, tasks: asyncio.TaskGroup) -> None:
        """Read the configuration again and serve by it, as far as that is possible without a restart. What
        cannot be read, or does not start, changes nothing. Never raises."""
        async with self._reloading:
            try:
                await self._change(tasks)
            except Exception as error:  # noqa: BLE001  a slip in a file must not end a process that serves
                reason = str(error) if isinstance(error, ConfigError) else type(error).__name__
                telemetry.log.error("config.reload.failed", error=reason, changed=[])

    async def _change(self, tasks: asyncio.TaskGroup) -> None:
        old = self._current
        assert old is not None, "signals are heard once there is one"
        plan = planned(old.settings, settings_of_process())
        if plan.needs_restart:
            telemetry.log.warning("config.reload.needs_restart", keys=plan.needs_restart)
        if not plan.changed:
            telemetry.log.info("config.reload.unchanged")
            return
        refuse_open_network(plan.settings)
        self._current = await self._begin(tasks, plan.settings, must_embed=bool(old.app.embedder))
        telemetry.configure(plan.settings.logging.level, plan.settings.logging.format)
        old.give_way()
        telemetry.log.info("config.reload.done", keys=plan.changed, requests_under_way=old.requests)

    # ------------------------------------------------------------ signals
    @contextlib.contextmanager
    def _hearing_signals(self, tasks: asyncio.TaskGroup) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if self._owns_process:
            for number in (signal.SIGTERM, signal.SIGINT):
                stop = signal.getsignal(number)  # uvicorn's, which it takes back itself
                signal.signal(number, partial(self._leave, loop, stop))
        if self._reloads:
            terminal = Terminal.at_start()
            loop.add_signal_handler(signal.SIGHUP, lambda: self._hang_up(tasks, terminal))
        try:
            yield
        finally:
            if self._reloads:
                loop.remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _hang_up(self, tasks: asyncio.TaskGroup, terminal: "Terminal") -> None:
        if terminal.is_gone():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            tasks.create_task(self.reload(tasks))

    def _leave(
        self, loop: asyncio.AbstractEventLoop, stop: Any, number: int, frame: FrameType | None
    ) -> None:
        """Stop; on SIGTERM, have /ready say 503 for a while, if anybody asks for it, before the port is
        closed."""
        asked = time.monotonic() - self._ready_asked_at < ASKED_WITHIN_S
        waits = asked and number == signal.SIGTERM and not self._is_leaving
        wait_s = self._settings.server.leave_seconds if waits else 0.0
        if not self._is_leaving:
            self._is_leaving, self._left_at = True, time.monotonic()
            # By the loop: what the signal interrupts may be a line that is being written.
            loop.call_soon_threadsafe(self._say_that_it_stops, signal.Signals(number).name, wait_s)
        if wait_s:
            loop.call_soon_threadsafe(loop.call_later, wait_s, stop, number, frame)
        else:
            stop(number, frame)

    def _say_that_it_stops(self, reason: str, wait_s: float) -> None:
        under_way = sum(generation.requests for generation in self._generations)
        telemetry.log.info(
            "process.stopping", reason=reason, requests_under_way=under_way, port_closes_in_s=wait_s
        )


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal that a process was started from, if it was: when that is closed, the process is meant to
    end, and not to read its configuration."""

    is_there: bool

    @classmethod
    def at_start(cls) -> "Terminal":
        return cls(os.isatty(0))

    def is_gone(self) -> bool:
        """True if there was one, and it was closed."""
        if not self.is_there:
            return False
        try:
            os.tcgetpgrp(0)
        except OSError:
            return True
        return False
