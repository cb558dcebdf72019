"""The operators' endpoints, asked as an ASGI server asks them."""

import asyncio
from typing import Any

import pytest

from proxy import __version__, telemetry
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable
from proxy.domain.session import QueueCounts
from proxy.http import operations
from proxy.http.operations import Operations, Vitals
from tests.http.auth.asking import get

NOW = 1_780_000_000.0


def endpoints(counts: Any = QueueCounts(), **options: Any) -> Operations:  # noqa: B008 frozen
    """Return the endpoints; `counts`: what the store answers, or how it fails."""

    async def ask() -> QueueCounts:
        if isinstance(counts, Exception):
            raise counts
        found: QueueCounts = await counts() if callable(counts) else counts
        return found

    made = {"metrics": telemetry.Metrics(), "clock": lambda: NOW} | options
    return Operations(lambda: Vitals(Level.FULL, ""), ask, **made)


async def scrape(app: Operations) -> list[str]:
    """Return the lines of /metrics."""
    answer = await get(app, {"type": "http", "method": "GET", "path": "/metrics"})
    return answer.body.decode().splitlines()


@pytest.mark.parametrize("oldest_at", [NOW - 90, NOW + 5])  # the last by another machine's clock
async def test_metrics_show_the_queue_and_the_age_of_its_oldest_job(oldest_at):
    metrics = telemetry.Metrics()
    await scrape(endpoints(QueueCounts(queued=7, oldest_at=NOW - 900), metrics=metrics))
    counts = QueueCounts(queued=2, dead=1, oldest_at=oldest_at, queued_by_lane=(0, 2, 0))
    lines = await scrape(endpoints(counts, metrics=metrics))
    assert f"memory_proxy_oldest_queued_job_seconds {max(0.0, NOW - oldest_at)}" in lines
    assert 'memory_proxy_jobs{state="queued"} 2.0' in lines
    assert 'memory_proxy_jobs{state="dead"} 1.0' in lines
    assert 'memory_proxy_queued_jobs{lane="2"} 2.0' in lines


async def test_metrics_and_health_are_answered_without_the_store(monkeypatch):
    assert "memory_proxy_degradation_level 4.0" in await scrape(endpoints(StoreUnavailable("no disk")))
    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    hangs = endpoints(asyncio.Event().wait, commit="5edc378")
    answer = await get(hangs, {"type": "http", "method": "GET", "path": "/health"})
    assert answer.body == (
        b'{"status":"degraded","version":"%b","commit":"5edc378","uptime_seconds":0,'
        b'"memory":{"level":"none","reason":"deadline"},"jobs":null}' % __version__.encode()
    )


async def test_metrics_show_the_free_space_of_the_data_s_disk_if_it_is_known():
    def missing():
        raise FileNotFoundError

    async def shown(free_bytes):
        lines = await scrape(endpoints(free_bytes=free_bytes))
        return [line for line in lines if line.startswith("memory_proxy_disk")]

    assert await shown(lambda: 5_000_000) == ['memory_proxy_disk_free_bytes{disk="data"} 5e+06']
    assert await shown(missing) == await shown(None) == []  # a zero would mean that the disk is full
