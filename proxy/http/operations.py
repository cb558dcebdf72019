"""Endpoints for operators: /health (alive, how degraded), /ready (takes traffic), /metrics (Prometheus)."""

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

LOOK_S = 0.9  # for the store: probes mostly wait a second, and take a late answer for a dead process
_PATH_OR_URL = re.compile(r"(?:[a-z]+:/)?/[^\s,;()`]*")
_ACCOUNT = re.compile(r"[\w.-]+ \((uid \d+)\)")


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of memory."""

    level: Level
    reason: str  # "" while all of it works; at level full: nothing new can be stored now
    cause: str = ""  # details for an operator
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
    free_bytes: Callable[[], int] | None = None  # of the data's disk; None if the data are elsewhere
    # A disk that does not answer blocks only this thread.
    _disk: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "free-bytes"))

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/metrics":
                await self._refresh()
                content_type = b"text/plain; version=0.0.4; charset=utf-8"
                await send_bytes(send, 200, self.metrics.render(), content_type)
            case "/health":
                await send_json(send, 200, await self._health())
            case "/ready":
                # A degraded proxy is ready, since requests pass without memory too. One that has never opened
                # its own directory is misconfigured.
                vitals = self.vitals()
                not_ready = {"status": "not_ready", **_reason_of(vitals)}
                status, body = (200, {"status": "ready"}) if vitals.ready else (503, not_ready)
                await send_json(send, status, body)
            case _:
                about = {"service": "memory-proxy", "version": __version__, "base_url": "/v1"}
                await send_json(send, 200, about)

    async def _health(self) -> dict[str, Any]:
        vitals, jobs = await self._look()
        found = self.vitals()
        languages = {"texts": found.texts, "unread_texts": found.unread} if found.unread else {}
        return {
            "status": "degraded" if vitals.reason else "ok",
            "version": __version__,
            "commit": self.commit,
            "memory": {"level": vitals.level.value, **_reason_of(vitals), **languages},
            "jobs": None if jobs is None else _by_state(jobs),
        }

    async def _refresh(self) -> None:
        """Set the gauges; those of a store or disk that does not answer stay as they are."""
        vitals, jobs = await self._look()
        self.metrics.degraded.set(list(Level).index(vitals.level))
        if self.free_bytes is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    free = await asyncio.get_running_loop().run_in_executor(self._disk, self.free_bytes)
                self.metrics.disk_free.labels("data").set(free)
        if jobs is not None:
            for state, count in _by_state(jobs).items():
                self.metrics.jobs.labels(state).set(count)
            age_s = 0.0 if jobs.oldest_at is None else max(0.0, self.clock() - jobs.oldest_at)
            self.metrics.oldest_job.set(age_s)

    async def _look(self) -> tuple[Vitals, QueueCounts | None]:
        """Return the state of memory and the number of jobs, asked of the store itself."""
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


def _reason_of(vitals: Vitals) -> dict[str, str | None]:
    """Return the reason, and the cause if it is known, without paths, addresses and accounts: the endpoint is
    public."""
    cause = _ACCOUNT.sub(r"\1", _PATH_OR_URL.sub("…", vitals.cause))
    return {"reason": vitals.reason or None} | ({"cause": cause} if cause else {})


def _by_state(jobs: QueueCounts) -> dict[str, int]:
    return {
        "queued": jobs.queued,
        "running": jobs.running,
        "waiting_for_credential": jobs.waiting,
        "dead": jobs.dead,
    }
