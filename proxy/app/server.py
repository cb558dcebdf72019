"""Run the proxy as a process: uvicorn, its worker processes, the opening screen, and the demo."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from proxy import BUILD, COMMIT, __version__, telemetry
from proxy.app.factories import network_of, obstacle_of, place_of
from proxy.app.reloadable import (
    App,
    OpenUpstream,
    ReloadableApp,
    Terminal,
    pinned_environment,
    plan_reload,
)
from proxy.config import CONFIG_FILE, IdentitySettings, Settings, load, misspelt_variables
from proxy.domain.base_url import parse_base_url
from proxy.domain.errors import ConfigError
from proxy.domain.limits import enable_keep_alive
from proxy.http.connections import RawTargetProtocol, WebSocketProtocol

BACKLOG = 4096
ARENA_MAX = -8  # glibc's name for mallopt
STARTING_S = 30.0  # for a worker to become ready
CHUNK_DELAY_S = 0.02  # of the scripted model: about the pace of a real one


def serve(settings: Settings) -> int:
    """Run the proxy until it is stopped; return the exit status. Raises ConfigError."""
    with contextlib.suppress(AttributeError, OSError):
        # All threads allocate from two heaps: by default each has its own, and does not use what is freed in
        # another, 5 MB after the start.
        ctypes.CDLL(None).mallopt(ARENA_MAX, 2)
    telemetry.configure(settings.logging.level, settings.logging.format)
    for name, meant in misspelt_variables(os.environ):
        telemetry.log.warning("config.variable_ignored", variable=name, meant=meant)
    listener = bind(settings.server.host, settings.server.port)
    address = address_of(listener)
    # uvicorn stops in order on these signals and then raises them again, which would be a failed exit.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if not Terminal().is_attached:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    if settings.server.workers == 1:
        app = ReloadableApp(
            settings,
            scripted=scripted_at(),
            on_started=lambda app: announce(settings, address, app),
            reloads=True,
            owns_process=True,
        )
        try:
            uvicorn.Server(_config(app, settings)).run(sockets=[listener])
        except SystemExit:  # how uvicorn ends when the lifespan does not start
            raise app.failure or ConfigError("the server did not start") from None
        return 0
    announce(settings, address)
    with tempfile.TemporaryDirectory(prefix="memory-proxy-metrics-") as directory:
        telemetry.share_metrics(Path(directory))
        Workers(settings, [listener]).run()
    return 0


class Workers(Multiprocess):
    """The worker processes. SIGHUP is passed on to them: each reloads by itself, and none ends."""

    def __init__(self, settings: Settings, sockets: list[socket.socket]) -> None:
        config = _config("proxy.app.server:worker", settings, factory=True, workers=settings.server.workers)
        super().__init__(config, sockets)
        self._settings, self._terminal = settings, Terminal()
        self._environ = dict(os.environ)
        os.environ.update(pinned_environment(settings))

    def handle_hup(self) -> None:
        """Have the workers reload the configuration if it can be read."""
        if self._terminal.was_closed():
            self.should_exit.set()
            return
        try:
            plan = plan_reload(self._settings, load(None, self._environ))
        except ConfigError as error:
            telemetry.log.error("config.reload.failed", error=str(error), changed=[])
            return
        if plan.needs_restart:  # the workers cannot know: theirs are pinned
            telemetry.log.warning("config.reload.needs_restart", keys=plan.needs_restart)
        for process in self.processes:
            # A worker that is still starting handles no signals yet, and has read the old file.
            if process.wait_until_ready(STARTING_S, self.should_exit) and process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)

    def terminate_all(self) -> None:
        """Stop the workers, and close the sockets: while any process has one open, the kernel accepts
        connections that no worker will serve."""
        super().terminate_all()
        for listener in self.sockets:
            listener.close()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died, and remove their gauges from the metrics."""
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            if pid is not None:
                telemetry.forget_process(pid)


def worker() -> ReloadableApp:
    """Return the application of one worker process, with the settings of the parent's environment."""
    settings = load(None, os.environ)
    telemetry.configure(settings.logging.level, settings.logging.format)

    def stop_with(parent: int) -> None:
        """Stop this worker when its parent has died: nothing else would, and it would hold the port."""
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with, args=(os.getppid(),), daemon=True, name="parent-watch").start()
    return ReloadableApp(settings, scripted=scripted_at(), reloads=True, owns_process=True)


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server inside another program's event loop, without signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.started_or_failed = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.started_or_failed.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def running(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI app on a free loopback port while the block runs; yields its origin."""
    listener = bind("127.0.0.1", 0)
    options |= {"log_level": "warning", "access_log": False, "ws": "none", "proxy_headers": False}
    server = EmbeddedServer(uvicorn.Config(app, **options))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.started_or_failed.wait()
        if not server.started:
            raise ConfigError("the server did not start; its log says why")
        yield address_of(listener)
    finally:  # no TaskGroup: it would wrap an exception of the block in a group
        server.should_exit = True
        await serving


def scripted_at(chunk_delay_s: float = CHUNK_DELAY_S) -> OpenUpstream:
    """Return a function that serves the scripted model until a stack is closed, and returns its base URL."""

    async def open_scripted(stack: contextlib.AsyncExitStack) -> str:
        from proxy.demo.model import scripted_model  # not imported with a real upstream

        origin = await stack.enter_async_context(running(scripted_model(chunk_delay_s=chunk_delay_s)))
        return f"{origin}/v1"

    return open_scripted


def demo(upstream: str | None, model: str | None, *, fast: bool) -> int:
    """Run the demo against a proxy of its own, with an empty data directory that is deleted at the end."""
    if upstream and not model:
        raise ConfigError("--upstream needs a model: --model NAME")
    if model and not upstream:
        raise ConfigError("--model needs the URL of its provider: --upstream URL")
    try:
        from proxy.demo.tour import run_demo
    except ModuleNotFoundError as e:
        if e.name != "openai":
            raise
        raise ConfigError("the demo needs the OpenAI SDK: run scripts/install") from e
    # Extraction starts after a second without a message, so that the audience does not wait. The long
    # deadline shows memory on a busy machine too.
    soon = {"idle_seconds": 1, "personal_idle_seconds": 0.3, "session_summaries": False, "deadline_ms": 5_000}
    with tempfile.TemporaryDirectory(prefix="memory-proxy-demo-") as directory:
        sections: dict[str, Any] = {"storage": {"data_dir": directory}, "upstream": {"base_url": upstream}}
        sections |= {"memory": soon, "logging": {"level": "error"}}
        settings = load(None, {**os.environ, CONFIG_FILE: ""}, sections)
        telemetry.configure(settings.logging.level, settings.logging.format)

        async def play() -> int:
            served = ReloadableApp(settings, scripted=scripted_at(0 if fast else CHUNK_DELAY_S))
            async with running(served, http=RawTargetProtocol) as origin:
                return await run_demo(f"{origin}/v1", model=model, fast=fast)

        return asyncio.run(play())


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigError if the address is not available."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as e:
        raise ConfigError(f"cannot listen on {host}:{port}: {e.strerror}; choose another --port") from e
    enable_keep_alive(listener)
    listener.set_inheritable(True)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the origin at which this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # a wildcard is not a destination
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=RawTargetProtocol,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws=WebSocketProtocol,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # identity mode header trusts the peer of the socket
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.server.shutdown_seconds)),
        **options,
    )


# ---------------------------------------------------------------- the opening screen
def announce(settings: Settings, origin: str, app: App | None = None) -> None:
    """Print the opening screen; with logging.format json log one line instead, as a collector may read both
    streams as one. `app`: None in the parent of several workers, which loads no model."""
    embedder, judges = (app.embedder_source, app.has_judge) if app else (None, True)
    if settings.logging.format == "console":
        print(opening_screen(settings, origin, embedder, judges=judges), flush=True)
        return
    telemetry.log.info(
        "process.started",
        version=__version__,
        commit=COMMIT,
        address=origin,
        upstream=_upstream(settings) if settings.upstream.base_url else "scripted",
        data=place_of(settings),
        embeddings=settings.embedding.model if embedder != "" else None,
        judge=judges,
        memory=settings.memory.enabled,
        extraction=settings.memory.extraction,
        identity=settings.identity.mode,
        workers=settings.server.workers,
    )


def opening_screen(settings: Settings, origin: str, embedder: str | None, *, judges: bool = True) -> str:
    """Return what the proxy does, where data is stored, what is off, and what to try. `embedder`: where the
    embedding model is from, "" without one, None if unknown."""
    wild = settings.server.host in ("0.0.0.0", "::")
    everywhere = " (and on every other address of this machine)" if wild else ""
    data = place_of(settings)
    if why := obstacle_of(settings):
        data = f"NOTHING IS REMEMBERED, requests pass without memory: {why}"
    elif settings.storage.backend != "sqlite":
        data += ", shared by all replicas"
    rows = [
        ("Listening", f"{origin}/v1   ← your client's base_url{everywhere}"),
        ("Upstream", _upstream(settings)),
        ("Data", data),
        ("Embeddings", f"{settings.embedding.model}" + (f" ({embedder})" if embedder else "")),
        ("Extraction", _extraction(settings)),
        ("Identity", _identity(settings.identity)),
    ]
    if embedder == "":
        rows[3] = ("Embeddings", "OFF: lexical search only. `memory-proxy doctor` says how to get a model")
    if not judges:
        rows.insert(4, ("Judge", "OFF: memories are shown by their vectors alone. See memory-proxy doctor"))
    lines = ["", f"memory-proxy {BUILD}", ""]
    lines += [f"  {name:<11} {text}" for name, text in rows]
    off = []
    if settings.upstream.base_url is None:
        off.append("a real model: --upstream http://127.0.0.1:11434/v1 (Ollama), https://…/v1")
    if settings.identity.mode == "open":
        off.append("authentication: keep this port to your own backend (mode open)")
    if not settings.identity.accept_openai_user:
        off.append("OpenAI's `user` field as identity: identity.accept_openai_user=true")
    lines += ["", *(f"  Off         {line}" for line in off)] if off else []
    model = "scripted-demo" if settings.upstream.base_url is None else "YOUR-MODEL"
    named, credential = ', "memory_context": {"user_id": "alice"}', ""
    if settings.identity.mode in ("keys", "jwt"):
        named, credential = "", " -H 'Authorization: Bearer YOUR-KEY'"
    lines += [
        "",
        "  Try",
        f"    curl {origin}/v1/chat/completions -H 'Content-Type: application/json'{credential} -d '{{",
        f'      "model": "{model}"{named},',
        '      "messages": [{"role": "user", "content": "My budget for the Hawaii trip is $10,000."}]}\'',
        "",
        f"  See, search and forget memories: {origin}/ui, or memory-proxy memory list --user alice",
        f"  Settings: --config FILE (see config/default.yaml). Health: {origin}/health",
        "",
    ]
    if not settings.memory.enabled:
        line = "  MEMORY IS OFF unless a request sets memory_config.enabled (setting memory.enabled)"
        lines.insert(3, line)
    return "\n".join(lines)


def _upstream(settings: Settings) -> str:
    if settings.upstream.base_url is None:
        return "a small scripted model, for trying things out"
    return _reached(settings, settings.upstream.base_url)


def _reached(settings: Settings, url: str) -> str:
    """Return the URL without a credential, and the proxy on the way to it, if any."""
    at = parse_base_url(url)
    way = network_of(settings).described(at)
    return f"{at.shown}, {way}" if way else at.shown


def _extraction(settings: Settings) -> str:
    mode = settings.memory.extraction
    if mode == "off":
        return "off: nothing new is remembered (setting memory.extraction)"
    if mode == "verbatim":
        return "verbatim: the user's own statements, no model asked"
    configured = [m for m in settings.external_models if m.model_role == "memory_extraction"]
    if configured:
        return f"by {configured[0].llm_model_name} at {_reached(settings, configured[0].llm_endpoint)}"
    return "by the conversation's own model"


def _identity(identity: IdentitySettings) -> str:
    match identity.mode:
        case "open":
            return "open: the user_id of a request is believed"
        case "keys":
            return "keys: memory-proxy's own API keys (memory-proxy keys create)"
        case "jwt":
            return f"jwt: tokens for {identity.jwt_audience}, user = {identity.jwt_user_claim}"
        case "header":
            return f"header: {identity.user_header}, believed from {', '.join(identity.trusted_peers)}"
