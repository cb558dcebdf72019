"""The operators' endpoints, asked as an ASGI server asks them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from proxy import __version__, telemetry
from proxy.domain.core import Level
from proxy.domain.errors import StoreUnavailable
from proxy.domain.session import QueueCounts
from proxy.http import operations
from proxy.http.operations import Operations, Vitals
from tests.http.auth.asking import get

NOW = 1_780_000_000.0


def having(counts: QueueCounts) -> Callable[[], Awaitable[QueueCounts]]:
    async def told() -> QueueCounts:
        return counts

    return told


async def away() -> QueueCounts:
    raise StoreUnavailable("no disk")


async def scrape(counts: Callable[[], Awaitable[QueueCounts]], metrics: telemetry.Metrics) -> list[str]:
    """Return the lines of /metrics."""
    operations = Operations(lambda: Vitals(Level.FULL, ""), counts, metrics, clock=lambda: NOW)
    answer = await get(operations, {"type": "http", "method": "GET", "path": "/metrics"})
    return answer.body.decode().splitlines()


@pytest.mark.parametrize(
    ("oldest_at", "age_s"),
    [
        (NOW - 90, 90.0),
        (None, 0.0),
        (NOW + 5, 0.0),  # another machine's clock
    ],
)
async def test_metrics_tell_how_long_the_oldest_job_has_been_waiting(
    oldest_at: float | None, age_s: float
) -> None:
    lines = await scrape(having(QueueCounts(queued=2, dead=1, oldest_at=oldest_at)), telemetry.Metrics())
    assert f"memory_proxy_oldest_queued_job_seconds {age_s}" in lines
    assert 'memory_proxy_jobs{state="queued"} 2.0' in lines
    assert 'memory_proxy_jobs{state="dead"} 1.0' in lines


async def test_metrics_of_a_queue_that_was_emptied_go_back_to_nothing() -> None:
    metrics = telemetry.Metrics()
    await scrape(having(QueueCounts(queued=2, oldest_at=NOW - 90)), metrics)
    lines = await scrape(having(QueueCounts()), metrics)
    assert "memory_proxy_oldest_queued_job_seconds 0.0" in lines
    assert 'memory_proxy_jobs{state="queued"} 0.0' in lines


async def test_health_is_told_in_time_where_the_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hangs() -> QueueCounts:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    told = Operations(
        lambda: Vitals(Level.FULL, ""), hangs, telemetry.Metrics(), clock=lambda: NOW, commit="5edc378"
    )
    answer = await get(told, {"type": "http", "method": "GET", "path": "/health"})
    assert answer.body == (
        b'{"status":"degraded","version":"%b","commit":"5edc378",'
        b'"memory":{"level":"none","reason":"deadline"},"jobs":null}' % __version__.encode()
    )


async def test_metrics_tell_what_room_the_data_have() -> None:
    async def of(free_bytes: Callable[[], int] | None) -> list[str]:
        told = Operations(
            lambda: Vitals(Level.FULL, ""), having(QueueCounts()), telemetry.Metrics(), free_bytes=free_bytes
        )
        answer = await get(told, {"type": "http", "method": "GET", "path": "/metrics"})
        return [line for line in answer.body.decode().splitlines() if line.startswith("memory_proxy_disk")]

    def gone() -> int:
        raise FileNotFoundError

    assert await of(lambda: 5_000_000) == ['memory_proxy_disk_free_bytes{disk="data"} 5e+06']
    assert await of(gone) == []
    assert await of(None) == []  # a zero would say that the disk is full


async def test_a_disk_that_hangs_holds_up_one_thread_and_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), 0

    def hangs() -> int:
        nonlocal asked
        asked += 1
        answers.wait(30)
        return 1

    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    told = Operations(
        lambda: Vitals(Level.FULL, ""), having(QueueCounts()), telemetry.Metrics(), free_bytes=hangs
    )
    for _ in range(3):
        answer = await get(told, {"type": "http", "method": "GET", "path": "/metrics"})
        assert b"memory_proxy_degradation_level 0.0" in answer.body
    assert asked <= 1
    answers.set()


async def test_metrics_are_told_also_where_the_store_is_away() -> None:
    lines = await scrape(away, telemetry.Metrics())
    assert "memory_proxy_degradation_level 4.0" in lines
