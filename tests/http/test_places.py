"""More questions at once than one process can search for in time."""

import asyncio
from typing import Any

import pytest

from proxy.app import http
from proxy.http.failopen import TRIP_AFTER, TURNS_AT_ONCE, Failed, FailOpen, Places
from proxy.telemetry import Metrics
from tests.e2e.conftest import Houses, until

PLANNER = {"model_role": "memory_plan", "llm_endpoint": "http://127.0.0.1:9/v1", "llm_model_name": "small"}


class Slow:
    """Work that ends when the test lets it."""

    def __init__(self) -> None:
        self.under_way: list[int] = []
        self.may_end = asyncio.Semaphore(0)

    async def __call__(self, number: int) -> int:
        self.under_way.append(number)
        await self.may_end.acquire()
        return number


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def waiting(places: Places, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(places.__aenter__()) for _ in range(count)]
    await settled()
    return tasks


async def is_free(places: Places) -> bool:
    try:
        await asyncio.wait_for(places.__aenter__(), 1)
    except TimeoutError:
        return False
    return True


async def test_of_a_burst_the_latest_is_next() -> None:
    """It has the most time left: those that have waited longest would miss their deadline half done."""
    places, work, burst = Places(), Slow(), range(3 * TURNS_AT_ONCE)
    fail_open = FailOpen(lambda: 0.0, Metrics())

    def asked(number: int) -> asyncio.Task[int | Failed]:
        return asyncio.create_task(fail_open.attempt("recall", lambda: work(number), 60, places))

    tasks = [asked(number) for number in burst]
    await settled()
    assert work.under_way == [*burst][:TURNS_AT_ONCE]
    for _ in burst:
        work.may_end.release()
        await settled()
    assert [await task for task in tasks] == [*burst]
    assert work.under_way[TURNS_AT_ONCE:] == [*burst][TURNS_AT_ONCE:][::-1]


async def test_who_gives_up_is_given_no_place() -> None:
    places = Places(1)
    await places.__aenter__()
    stays, gives_up = await waiting(places, 2)
    gives_up.cancel()
    await places.__aexit__()  # before the latest knows that it is cancelled
    await asyncio.wait_for(stays, 5)
    with pytest.raises(asyncio.CancelledError):
        await gives_up


async def test_a_place_given_to_who_gives_up_at_that_moment_is_passed_on() -> None:
    places = Places(1)
    await places.__aenter__()
    stays, gives_up = await waiting(places, 2)
    await places.__aexit__()  # the latest has it now, and has not run since
    gives_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    await asyncio.wait_for(stays, 5)
    await places.__aexit__()
    assert await is_free(places)


async def test_work_that_fails_gives_its_place_back() -> None:
    async def broken() -> None:
        raise RuntimeError

    places = Places(1)
    await FailOpen(lambda: 0.0, Metrics()).attempt("recall", broken, 60, places)
    assert await is_free(places)


async def test_who_waited_in_vain_is_told_so_and_stops_nobody_else() -> None:
    """Nothing is known of the operation: the circuit breaker stays closed."""
    places, metrics = Places(1), Metrics()
    fail_open = FailOpen(lambda: 0.0, metrics)
    await places.__aenter__()
    for _ in range(TRIP_AFTER + 1):
        assert await fail_open.attempt("recall", asyncio.Event().wait, 0, places) == Failed("busy")
    await places.__aexit__()
    assert fail_open.resting is None
    assert await fail_open.attempt("recall", lambda: asyncio.sleep(0, 7), 60, places) == 7
    failures = metrics.registry.get_sample_value(
        "memory_proxy_memory_failures_total", {"operation": "recall", "error": "busy"}
    )
    assert failures == TRIP_AFTER + 1


@pytest.mark.parametrize("models", [[], [PLANNER]])
async def test_a_turn_waits_for_others_unless_a_model_may_be_asked(
    house: Houses, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that has to wait for a model would keep the others waiting as well."""
    begun, may_end = 0, asyncio.Event()

    async def stubborn(*_: Any) -> None:
        nonlocal begun
        begun += 1
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:  # its deadline: it keeps its place all the same
                continue
        raise RuntimeError

    async with house(memory={"deadline_ms": 200}, external_models=models) as h, h.client() as client:
        monkeypatch.setattr(http, "prepare", stubborn)

        async def asked(user: str) -> str:
            raw = await client.chat.completions.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": "Where do I live?"}],
                extra_body={"memory_context": {"user_id": user}},
            )
            return str(raw.headers["x-memory-reason"])

        async def count() -> int:
            return begun

        try:
            first = [asyncio.create_task(asked(f"u{i}")) for i in range(TURNS_AT_ONCE)]
            await until(count, lambda n: n == TURNS_AT_ONCE)
            late = asyncio.create_task(asked("late"))
            if models:
                await until(count, lambda n: n == TURNS_AT_ONCE + 1)
            else:
                assert await asyncio.wait_for(late, 30) == "busy"
        finally:
            may_end.set()
        await asyncio.gather(*first, late)
