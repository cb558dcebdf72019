"""Running the proxy as a process: uvicorn, its worker processes, the demo's stage."""

import asyncio
import contextlib
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

from proxy import observe
from proxy.app import App
from proxy.demo.model import scripted_model
from proxy.demo.show import run_demo
from proxy.edge.protocol import RawTargetProtocol
from proxy.errors import ConfigError
from proxy.screen import opening_screen
from proxy.settings import Settings, from_process

CONFIG_FILE = "MEMORY_PROXY_CONFIG"
BACKLOG = 4096
CHUNK_DELAY_S = 0.02  # the scripted model's pace: about that of a real one


def serve(settings: Settings) -> int:
    """Run the proxy until it is told to stop; returns the exit status. Raises ConfigError."""
    observe.configure(settings.logging.level, settings.logging.format)
    listener = bind(settings.server.host, settings.server.port)
    address = address_of(listener)
    # uvicorn stops in order on these and then raises them again: a stop that was asked for is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if settings.server.workers == 1:
        app = Served(settings, address)
        try:
            uvicorn.Server(_config(app, settings)).run(sockets=[listener])
        except SystemExit:  # how uvicorn ends when the lifespan does not start
            raise app.failure or ConfigError("the server did not start") from None
        return 0
    print(opening_screen(settings, address, None), flush=True)
    from uvicorn.supervisors import Multiprocess

    config = _config("proxy.serve:worker", settings, factory=True, workers=settings.server.workers)
    Multiprocess(config, sockets=[listener]).run()
    return 0


def worker() -> "Served":
    """Return the application of one worker process; its settings are where the parent left them."""
    file = os.environ.get(CONFIG_FILE)
    settings = from_process(Path(file) if file else None)
    observe.configure(settings.logging.level, settings.logging.format)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True, name="parent-watch").start()
    return Served(settings, None)


def _leave_with(parent: int) -> None:
    """Stop this worker when its parent is gone: nobody else could, and it would keep the port."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


class Served:
    """The ASGI application of one process, with its lifespan. `address` None: another shows the screen."""

    def __init__(
        self, settings: Settings, address: str | None, *, chunk_delay_s: float = CHUNK_DELAY_S
    ) -> None:
        self.failure: ConfigError | None = None
        self._settings, self._address, self._chunk_delay_s = settings, address, chunk_delay_s
        self._app: App | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._app is not None:
            await self._app.routes(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            async with contextlib.AsyncExitStack() as stack:
                upstream = self._settings.upstream.base_url
                if upstream is None:
                    upstream = await stack.enter_async_context(scripted_upstream(self._chunk_delay_s))
                self._app = await stack.enter_async_context(App.open(self._settings, upstream))
                if self._address is not None:
                    print(opening_screen(self._settings, self._address, self._app.embedder), flush=True)
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        except ConfigError as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": str(error)})


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server inside another program's event loop: it leaves the signal handlers alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = asyncio.Event()  # it listens, or failed to

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say when that is over."""
        try:
            await super().startup(sockets)
        finally:
            self.settled.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@contextlib.asynccontextmanager
async def running(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI app on a free loopback port while the block runs; yields its origin."""
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", proxy_headers=False, **options
    )
    server = EmbeddedServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.settled.wait()
        if not server.started:
            raise ConfigError("the server did not start; its log says why")
        yield address_of(listener)
    finally:  # no TaskGroup: it would wrap what the block raises
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def scripted_upstream(chunk_delay_s: float) -> AsyncIterator[str]:
    """Serve the scripted model while the block runs; yields its base URL."""
    async with running(scripted_model(chunk_delay_s=chunk_delay_s)) as origin:
        yield f"{origin}/v1"


def demo(upstream: str | None, model: str | None, *, fast: bool) -> int:
    """Play the demo on a stage of its own: a proxy with an empty data directory that is removed again."""
    if upstream and not model:
        raise ConfigError("with --upstream, say which model to ask for: --model NAME")
    with tempfile.TemporaryDirectory(prefix="memory-proxy-demo-") as directory:
        settings = from_process(
            None,
            {
                "storage": {"data_dir": directory},
                "upstream": {"base_url": upstream},
                # The demo's conversations are short, and its audience should not have to wait.
                "memory": {"extraction_batch_size": 5, "personal_idle_seconds": 0.3},
                "logging": {"level": "error"},
            },
        )
        observe.configure(settings.logging.level, settings.logging.format)
        return asyncio.run(_play(settings, model, fast=fast))


async def _play(settings: Settings, model: str | None, *, fast: bool) -> int:
    stage = Served(settings, None, chunk_delay_s=0 if fast else CHUNK_DELAY_S)
    async with running(stage, http=RawTargetProtocol) as origin:
        return await run_demo(f"{origin}/v1", model=model, fast=fast)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; ConfigError if the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as e:
        raise ConfigError(f"cannot listen on {host}:{port}: {e.strerror}; choose another --port") from e
    listener.set_inheritable(True)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the origin under which the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=RawTargetProtocol,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # whoever is trusted is known by the socket's own peer (identity mode header)
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.server.shutdown_seconds)),
        **options,
    )
