"""Wiring of one process: the place where stores, models and clients meet the parts that use them, and which
owns their lifetimes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from proxy import __version__, telemetry
from proxy.app.care import Care
from proxy.app.http import routes
from proxy.app.parts import Parts
from proxy.config import Settings
from proxy.domain.ports import Clock
from proxy.http.router import Application

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
