"""Whatever memory does, the request continues."""

import asyncio
from typing import Any

import pytest

from proxy.domain.errors import DamagedRow, EmbeddingFailed, StoreUnavailable
from proxy.http import memory_work
from proxy.http.memory_work import OPEN_S, TRIP_AFTER, TURNS_AT_ONCE, Failed, FailOpen, RecallLimiter
from proxy.telemetry import REMIND_S, Metrics

Lines = list[tuple[str, dict[str, Any]]]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def fail_open(clock, metrics):
    return FailOpen(clock, metrics)


@pytest.fixture
def log(monkeypatch):
    """What is logged: event and facts."""
    lines: Lines = []

    class Log:
        def warning(self, event, **facts):
            lines.append((event, facts))

    monkeypatch.setattr(memory_work.telemetry, "log", Log())
    return lines


async def good() -> str:
    return "fine"


def failing(error: Exception = StoreUnavailable("down")) -> Any:  # noqa: B008
    async def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("down"), "store_unavailable"),
        (EmbeddingFailed("broken"), "embedding_failed"),
        (RuntimeError("a bug"), "memory_error"),
        (TimeoutError("the work's own"), "error"),
    ],
)
async def test_an_error_becomes_a_reason(fail_open, error, reason):
    assert await fail_open.attempt("recall", good, 1) == "fine"
    assert await fail_open.attempt("recall", failing(error), 1) == Failed(reason)  # type: ignore[arg-type]


async def test_work_that_hangs_ends_with_the_deadline_and_a_cancellation_passes(fail_open):
    for deadline_s in (0.01, -1):
        assert await fail_open.attempt("recall", asyncio.Event().wait, deadline_s) == Failed("deadline")  # type: ignore[arg-type]
    task = asyncio.create_task(fail_open.attempt("begin", asyncio.Event().wait, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_operation_that_keeps_failing_is_skipped_for_a_while(fail_open, clock):
    calls = 0

    async def work():
        nonlocal calls
        calls += 1
        raise StoreUnavailable("down")

    for _ in range(TRIP_AFTER + 5):
        assert await fail_open.attempt("recall", work, 1) == Failed("store_unavailable")  # type: ignore[arg-type]
    assert (calls, fail_open.resting) == (TRIP_AFTER, "store_unavailable")
    assert await fail_open.attempt("begin", good, 1) == "fine"
    clock.now += OPEN_S + 0.1
    assert fail_open.resting is None
    await fail_open.attempt("recall", work, 1)
    assert calls == TRIP_AFTER + 1


@pytest.mark.parametrize("error", [DamagedRow("a row is damaged"), TimeoutError])
async def test_failures_of_one_user_or_of_a_burst_do_not_stop_the_operation(fail_open, error):
    await fail_open.attempt("recall", good, 1)
    for _ in range(TRIP_AFTER + 1):
        work = asyncio.Event().wait if error is TimeoutError else failing(error)
        assert isinstance(await fail_open.attempt("recall", work, 0.001), Failed)
    assert fail_open.resting is None
    assert await fail_open.attempt("recall", good, 1) == "fine"


async def test_an_outage_is_logged_once_a_minute_and_counted_each_time(fail_open, clock, metrics, log):
    began = clock.now
    for second in range(0, round(2 * REMIND_S) + 1, 4):  # each after the breaker has closed
        clock.now = began + second
        await fail_open.attempt("recall", failing(), 1)
    facts = {"operation": "recall", "reason": "store_unavailable", "error": "StoreUnavailable"}
    again = ("memory.failed", {**facts, "left_out": 14})
    assert log == [("memory.failed", facts), again, again]
    assert metrics.failures.labels("recall", "store_unavailable")._value.get() == 31
    await fail_open.attempt("begin", failing(), 1)  # another operation or error is logged at once
    await fail_open.attempt("begin", failing(KeyError()), 1)
    await fail_open.attempt("begin", asyncio.Event().wait, 0)
    assert [event for event, _ in log[3:]] == ["memory.failed", "memory.failed", "memory.deadline"]


# ---------------------------------------------------------------- more turns than can be served in time
async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_of_a_burst_the_latest_is_next(fail_open):
    """It has the most time left: those that have waited longest would miss their deadline half done."""
    limiter, burst, order = RecallLimiter(), range(3 * TURNS_AT_ONCE), list[int]()
    may_end = asyncio.Semaphore(0)

    async def work(number):
        order.append(number)
        await may_end.acquire()
        return number

    def asked(number):
        return asyncio.create_task(fail_open.attempt("recall", lambda: work(number), 60, limiter))

    tasks = [asked(number) for number in burst]
    await settled()
    assert order == [*burst][:TURNS_AT_ONCE]
    for _ in burst:
        may_end.release()
        await settled()
    assert [await task for task in tasks] == [*burst]
    assert order[TURNS_AT_ONCE:] == [*burst][TURNS_AT_ONCE:][::-1]


@pytest.mark.parametrize("already_given", [True, False])
async def test_a_slot_of_a_cancelled_turn_is_passed_on(*, already_given):
    limiter = RecallLimiter(1)
    await limiter.__aenter__()
    stays, gives_up = [asyncio.create_task(limiter.__aenter__()) for _ in range(2)]
    await settled()
    if already_given:
        await limiter.__aexit__()  # the latest has the slot now, and has not run since
        gives_up.cancel()
    else:
        gives_up.cancel()
        await limiter.__aexit__()  # before the latest knows that it is cancelled
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    await asyncio.wait_for(stays, 5)
    await limiter.__aexit__()
    await asyncio.wait_for(limiter.__aenter__(), 1)


async def test_a_turn_that_found_no_slot_is_busy_and_the_breaker_stays_closed(fail_open):
    limiter = RecallLimiter(1)
    await fail_open.attempt("recall", failing(RuntimeError()), 60, limiter)  # it gives its slot back
    await limiter.__aenter__()
    for _ in range(TRIP_AFTER + 1):
        assert await fail_open.attempt("recall", good, 0, limiter) == Failed("busy")  # type: ignore[arg-type]
    await limiter.__aexit__()
    assert await fail_open.attempt("recall", good, 60, limiter) == "fine"
