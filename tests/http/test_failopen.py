"""Whatever memory does, the request goes on."""

import asyncio
from typing import Any

import pytest

from proxy.domain.errors import DamagedRow, EmbeddingFailed, StoreUnavailable
from proxy.http import failopen
from proxy.http.failopen import OPEN_S, TRIP_AFTER, Failed, FailOpen
from proxy.telemetry import REMIND_S, Metrics


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def fail_open(clock: Clock, metrics: Metrics) -> FailOpen:
    return FailOpen(clock, metrics)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What is logged: event and facts."""
    lines: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def warning(self, event: str, **facts: Any) -> None:
            lines.append((event, facts))

    monkeypatch.setattr(failopen.telemetry, "log", Log())
    return lines


async def test_a_result_within_the_deadline_is_returned(fail_open: FailOpen) -> None:
    async def work() -> int:
        return 7

    assert await fail_open.attempt("recall", work, 1) == 7


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("gone"), "store_unavailable"),
        (EmbeddingFailed("broken"), "embedding_failed"),
        (RuntimeError("a bug"), "memory_error"),
        (TimeoutError("the work's own"), "error"),
    ],
)
async def test_an_error_becomes_a_reason(fail_open: FailOpen, error: Exception, reason: str) -> None:
    async def work() -> None:
        raise error

    assert await fail_open.attempt("recall", work, 1) == Failed(reason)


async def test_work_that_hangs_ends_with_the_deadline(fail_open: FailOpen) -> None:
    assert await fail_open.attempt("recall", asyncio.Event().wait, 0.01) == Failed("deadline")
    assert await fail_open.attempt("recall", asyncio.Event().wait, -1) == Failed("deadline")


async def test_a_cancellation_is_not_swallowed(fail_open: FailOpen) -> None:
    task = asyncio.create_task(fail_open.attempt("recall", asyncio.Event().wait, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_operation_that_keeps_failing_rests_and_is_tried_again(
    fail_open: FailOpen, clock: Clock
) -> None:
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        raise StoreUnavailable("gone")

    for _ in range(TRIP_AFTER + 5):
        assert await fail_open.attempt("recall", work, 1) == Failed("store_unavailable")
    assert calls == TRIP_AFTER
    assert fail_open.resting == "store_unavailable"
    clock.now += OPEN_S + 0.1
    assert fail_open.resting is None
    await fail_open.attempt("recall", work, 1)
    assert calls == TRIP_AFTER + 1


async def test_a_row_that_is_damaged_keeps_nobody_else_from_their_memories(fail_open: FailOpen) -> None:
    async def broken() -> None:
        raise DamagedRow("a row is damaged")

    async def good() -> str:
        return "fine"

    for _ in range(TRIP_AFTER + 1):
        assert await fail_open.attempt("recall", broken, 1) == Failed("store_unavailable")
    assert fail_open.resting is None
    assert await fail_open.attempt("recall", good, 1) == "fine"


async def test_a_burst_that_is_too_much_does_not_stop_what_still_succeeds(
    fail_open: FailOpen, clock: Clock
) -> None:
    async def good() -> str:
        return "fine"

    await fail_open.attempt("recall", good, 1)
    for _ in range(20):
        assert await fail_open.attempt("recall", asyncio.Event().wait, 0) == Failed("deadline")
    assert await fail_open.attempt("recall", good, 1) == "fine"


async def test_one_operation_that_rests_does_not_stop_another(fail_open: FailOpen) -> None:
    async def bad() -> None:
        raise StoreUnavailable("gone")

    async def good() -> str:
        return "fine"

    for _ in range(TRIP_AFTER):
        await fail_open.attempt("begin", bad, 1)
    assert await fail_open.attempt("recall", good, 1) == "fine"


async def gone() -> None:
    raise StoreUnavailable("gone")


async def test_an_outage_is_logged_once_a_minute_with_what_was_left_out_and_counted_each_time(
    fail_open: FailOpen, clock: Clock, metrics: Metrics, log: list[tuple[str, dict[str, Any]]]
) -> None:
    began = clock.now
    for second in range(0, round(2 * REMIND_S) + 1, 4):  # each after the operation has rested
        clock.now = began + second
        await fail_open.attempt("recall", gone, 1)
    facts = {"operation": "recall", "reason": "store_unavailable", "error": "StoreUnavailable"}
    assert log == [
        ("memory.failed", facts),
        ("memory.failed", {**facts, "left_out": 14}),
        ("memory.failed", {**facts, "left_out": 14}),
    ]
    assert metrics.failures.labels("recall", "store_unavailable")._value.get() == 31


async def test_another_operation_or_another_error_is_logged_at_once(
    fail_open: FailOpen, log: list[tuple[str, dict[str, Any]]]
) -> None:
    async def bug() -> None:
        raise KeyError

    for operation, work in (("recall", gone), ("begin", gone), ("recall", bug), ("begin", gone)):
        await fail_open.attempt(operation, work, 1)
    assert [(facts["operation"], facts["error"]) for _, facts in log] == [
        ("recall", "StoreUnavailable"),
        ("begin", "StoreUnavailable"),
        ("recall", "KeyError"),
    ]


async def test_missed_deadlines_are_logged_once_a_minute_too(
    fail_open: FailOpen, clock: Clock, log: list[tuple[str, dict[str, Any]]]
) -> None:
    for _ in range(2):
        await fail_open.attempt("recall", asyncio.Event().wait, 0)
    clock.now += REMIND_S
    await fail_open.attempt("recall", asyncio.Event().wait, 0)
    assert log == [
        ("memory.deadline", {"operation": "recall"}),
        ("memory.deadline", {"operation": "recall", "left_out": 1}),
    ]
