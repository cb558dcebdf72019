"""Wiring: the only place that names concrete stores, models and clients, and owns their lifetimes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from proxy.app.care import Care
from proxy.app.http import routes
from proxy.app.parts import Parts
from proxy.background import vendor_keys
from proxy.edge.routes import Routes
from proxy.ports import Clock
from proxy.settings import Settings

CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class App:
    """One process's proxy, running."""

    routes: Routes
    embedder: str  # where the embedding model came from, "" for lexical search only

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, upstream_url: str, *, clock: Clock = time.time
    ) -> AsyncIterator["App"]:
        """Run the proxy while the block runs. Raises ConfigError for what only an operator can mend."""
        async with AsyncExitStack() as stack:
            parts = await Parts.open(settings, upstream_url, stack, clock)
            running = cls(routes(parts), parts.embedder_source)
            async with asyncio.TaskGroup() as tasks:
                owned = [tasks.create_task(Care(parts).keep_up()), tasks.create_task(parts.worker.run())]
                # A library of detectors, slow to import: not on the first request's time.
                tasks.create_task(asyncio.to_thread(vendor_keys.rows))
                try:
                    yield running
                finally:
                    for task in owned:
                        task.cancel()
                    await asyncio.wait(owned)
                    await parts.fail_open.attempt("close", lambda: parts.keeper.close_all(clock()), CLOSE_S)
                    await parts.worker.drain(settings.server.shutdown_seconds)
