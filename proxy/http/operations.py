"""Endpoints for operators: /health (alive, and how degraded), /ready (takes traffic), /metrics
(Prometheus).
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from proxy import COMMIT, __version__, telemetry
from proxy.domain.core import Level
from proxy.domain.errors import StoreError
from proxy.domain.ports import Clock
from proxy.domain.session import QueueCounts
from proxy.http.asgi import ASGIScope, Receive, Send, send_bytes, send_json

# A path or a URL, and what a message says of it.
_PLACE = re.compile(r"(?:[a-z]+:/)?/[^\s,;()`]*")
_ACCOUNT = re.compile(r"[\w.-]+ \((uid \d+)\)")
LOOK_S = 0.9  # for the store: a probe waits a second as a rule, and takes who is late for dead


@dataclass(frozen=True, slots=True)
class Vitals:
    """How memory is doing."""

    level: Level
    reason: str  # "" while all of it works; at level full: nothing new can be remembered now
    cause: str = ""  # what an operator has to know of the reason
    ready: bool = True
    texts: int = 0  # stored by this process
    unread: int = 0  # of these, in a language that the embedding model does not read: found by words only


@dataclass(frozen=True, slots=True)
class Operations:
    """The operators' endpoints."""

    vitals: Callable[[], Vitals]
    counts: Callable[[], Awaitable[QueueCounts]]
    metrics: telemetry.Metrics
    clock: Clock = time.time
    commit: str | None = COMMIT
    free_bytes: Callable[[], int] | None = None  # of the data's disk; None where the data are elsewhere
    # A disk that does not answer holds up this thread, and none that others wait for.
    _disk: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "free-bytes"))

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/metrics":
                await self._refresh()
                body = self.metrics.render()
                await send_bytes(send, 200, body, b"text/plain; version=0.0.4; charset=utf-8")
            case "/health":
                await send_json(send, 200, await self._health())
            case "/ready":
                # Requests pass without memory too, so a degraded proxy still is ready. One that has never
                # opened its own directory is set up wrongly.
                vitals = self.vitals()
                if vitals.ready:
                    await send_json(send, 200, {"status": "ready"})
                else:
                    await send_json(send, 503, {"status": "not_ready", **_told(vitals)})
            case _:
                about = {"service": "memory-proxy", "version": __version__, "base_url": "/v1"}
                await send_json(send, 200, about)

    async def _health(self) -> dict[str, Any]:
        vitals, jobs = await self._look()
        return {
            "status": "degraded" if vitals.reason else "ok",
            "version": __version__,
            "commit": self.commit,
            "memory": {"level": vitals.level.value, **_told(vitals), **_languages(self.vitals())},
            "jobs": None if jobs is None else _by_state(jobs),
        }

    async def _refresh(self) -> None:
        vitals, jobs = await self._look()
        self.metrics.degraded.set(list(Level).index(vitals.level))
        await self._measure_disk()
        if jobs is None:
            return
        for state, count in _by_state(jobs).items():
            self.metrics.jobs.labels(state).set(count)
        age_s = 0.0 if jobs.oldest_at is None else max(0.0, self.clock() - jobs.oldest_at)
        self.metrics.oldest_job.set(age_s)

    async def _measure_disk(self) -> None:
        """Tell how much room there is; nothing new of a disk that does not answer."""
        if self.free_bytes is None:
            return
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                free_bytes = await asyncio.get_running_loop().run_in_executor(self._disk, self.free_bytes)
            self.metrics.disk_free.labels("data").set(free_bytes)

    async def _look(self) -> tuple[Vitals, QueueCounts | None]:
        """Return how memory is doing, and how many jobs there are: asked of the store itself."""
        try:
            async with asyncio.timeout(LOOK_S):
                jobs = await self.counts()
        except TimeoutError:
            return Vitals(Level.NONE, self.vitals().reason or "deadline"), None
        except StoreError as error:
            vitals = self.vitals()
            cause = vitals.cause or str(error)
            return Vitals(Level.NONE, vitals.reason or "store_unavailable", cause, ready=vitals.ready), None
        return self.vitals(), jobs


def _told(vitals: Vitals) -> dict[str, str | None]:
    """Return the reason, and the cause if it is known. Everybody may ask: no path, address or
    account in it."""
    cause = _ACCOUNT.sub(r"\1", _PLACE.sub("…", vitals.cause))
    return {"reason": vitals.reason or None} | ({"cause": cause} if cause else {})


def _languages(vitals: Vitals) -> dict[str, int]:
    return {"texts": vitals.texts, "unread_texts": vitals.unread} if vitals.unread else {}


def _by_state(jobs: QueueCounts) -> dict[str, int]:
    return {
        "queued": jobs.queued,
        "running": jobs.running,
        "waiting_for_credential": jobs.waiting,
        "dead": jobs.dead,
    }
