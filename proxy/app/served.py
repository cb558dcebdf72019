"""The ASGI application of one process, from start to end, with its configuration exchanged while it serves.

A new configuration is served by a new App beside the old one. Requests that come from then on are the new
one's; the old one stays until the last of its requests is answered, however long that streams.
"""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from proxy import telemetry
from proxy.app import App
from proxy.app.admission import refuse_open_network
from proxy.app.clock import SteadyClock
from proxy.app.reload import planned
from proxy.app.screen import open_with
from proxy.config import Settings, config_file, load
from proxy.domain.errors import ConfigError
from proxy.http.asgi import ASGIScope, Receive, Send, send_json
from proxy.http.connections import CONNECTIONS, ConnectionLimits, Connections
from proxy.http.router import give_request_id, with_request_id
from proxy.system import raise_file_limit

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


class Served:
    """The application with its lifespan. `address` None: another says where. `reloads`: SIGHUP has the
    configuration read again; `leaves`: the process ends with it, so SIGTERM is first told to those who ask
    for /ready, the log says when a stop begins and when it is done, and what it begins with is no garbage."""

    def __init__(
        self,
        settings: Settings,
        address: str | None,
        *,
        scripted: OpenUpstream,
        reloads: bool = False,
        leaves: bool = False,
    ) -> None:
        self.failure: ConfigError | None = None
        self._settings, self._address, self._scripted = settings, address, scripted
        self._reloads, self._leaves = reloads, leaves
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
            if self._leaves:
                _keep_what_is_there()
            with self._hearing_signals(tasks):
                if self._address is not None:
                    app = self._current.app
                    open_with(self._settings, self._address, app.embedder, judges=app.judges)
                await send({"type": "lifespan.startup.complete"})
                await receive()
                if self._leaves and not self._is_leaving:  # it was told to before it could hear us
                    self._is_leaving, self._left_at = True, time.monotonic()
                    self._say_that_it_stops("shutdown", 0.0)
            self._is_over = True
            for generation in tuple(self._generations):
                generation.end()
        if self._leaves:
            telemetry.log.info("process.stopped", took_s=round(time.monotonic() - self._left_at, 1))
        await send({"type": "lifespan.shutdown.complete"})

    def _connections(self) -> Connections:
        """Return the register of client connections, which the protocol finds in the lifespan's state."""
        server = self._settings.server
        limits = ConnectionLimits.of(
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
        if self._leaves:
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
