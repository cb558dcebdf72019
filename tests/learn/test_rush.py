"""Background work that can wait lets the users' turns go first, and is not put off without bound."""

import asyncio
import time
from contextlib import ExitStack, suppress

import pytest

from proxy.domain.core import MemoryFilter
from proxy.learn.budget import PATIENCE_S, PAUSE_S, SHARE, CallBounds, TurnPriority
from proxy.learn.worker import Worker
from tests.learn.support import House, facts

AT_ONCE_S, NEVER_S = 10 * PAUSE_S, 3600.0


async def _waits(rush: TurnPriority, seconds: float = 3 * PAUSE_S) -> bool:
    """True if work is still put off after so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await rush.pause()
            return False
    return True


async def test_without_turns_nothing_waits() -> None:
    assert not await _waits(TurnPriority(), AT_ONCE_S)


async def test_work_waits_for_a_turn_and_for_the_pause_behind_it() -> None:
    now = 100.0
    rush = TurnPriority(lambda: now, NEVER_S)
    with rush.turn():
        assert await _waits(rush)
    assert await _waits(rush)  # the next may be about to come
    now += PAUSE_S
    assert not await _waits(rush, AT_ONCE_S)


async def test_the_end_of_one_turn_is_no_pause_while_another_is_prepared() -> None:
    now = 100.0
    rush = TurnPriority(lambda: now, NEVER_S)
    with rush.turn():
        with rush.turn():
            pass
        now += 1
        assert await _waits(rush)


async def test_patience_ends_and_then_nothing_waits_until_all_is_done() -> None:
    now = 100.0
    rush = TurnPriority(lambda: now, 10.0)
    with rush.turn():
        assert await _waits(rush)
        now += 9
        assert await _waits(rush)  # another piece of the same work has no patience of its own
        now += 1
        assert not await _waits(rush, AT_ONCE_S)
        now += 60
        assert not await _waits(rush, AT_ONCE_S)
        rush.nothing_due()
        assert await _waits(rush)


async def test_what_is_claimed_and_put_off_is_not_done() -> None:
    now = 100.0
    rush = TurnPriority(lambda: now, 10.0)
    with rush.turn():
        put_off = asyncio.create_task(rush.pause())
        await asyncio.sleep(0)
        now += 9
        rush.nothing_due()  # the queue is empty, since all of it is waiting here
        now += 1
        async with asyncio.timeout(60):
            await put_off


async def test_a_turn_that_fails_or_is_cancelled_is_over() -> None:
    rush = TurnPriority(patience_s=NEVER_S)
    with suppress(ZeroDivisionError), rush.turn():
        raise ZeroDivisionError
    assert not await _waits(rush, 60)


def test_giving_way_alone_is_no_backlog() -> None:
    assert CallBounds().patience_s > PATIENCE_S  # or every rush would be followed by a burst of calls


# ---------------------------------------------------------------- the worker
async def test_an_ordinary_extraction_begins_when_no_turn_is_prepared(house: House) -> None:
    worker, rush = _rushed(house)
    await house.say("Our house by the sea has seven rooms.")
    with ExitStack() as turn:
        turn.enter_context(rush.turn())
        working = asyncio.create_task(worker.work_one())
        await asyncio.sleep(5 * PAUSE_S)
        assert not house.completer.requests
        turn.close()
        async with asyncio.timeout(60):
            assert await working
    assert len(house.completer.requests) == 1


async def test_what_a_model_answered_is_stored_when_no_turn_is_prepared(house: House) -> None:
    rush, working = await _asking_the_model(house)
    with rush.turn():
        house.completer.go_on.set()
        await asyncio.sleep(5 * PAUSE_S)
        assert await house.contents() == []
    async with asyncio.timeout(60):
        assert await working
    assert await house.contents() == ["User's house has seven rooms"]


async def test_what_is_forgotten_while_it_is_put_off_stays_forgotten(house: House) -> None:
    rush, working = await _asking_the_model(house)
    with rush.turn():
        house.completer.go_on.set()
        await asyncio.sleep(2 * PAUSE_S)
        await house.stores.memories.forget(MemoryFilter(tenant="t", user="ana"), by="test")
    async with asyncio.timeout(60):
        await working
    assert await house.contents() == []


async def test_what_is_put_off_when_its_worker_goes_is_the_next_ones_at_once(house: House) -> None:
    worker, rush = _rushed(house)
    house.completer.answers = [facts("User's house has seven rooms")]
    await house.say("Our house by the sea has seven rooms.")
    with rush.turn():
        working = asyncio.create_task(worker.work_one())
        await asyncio.sleep(5 * PAUSE_S)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert await house.worker().work_one()
    assert await house.contents() == ["User's house has seven rooms"]


async def test_what_a_user_asks_to_be_remembered_waits_for_nobody(house: House) -> None:
    worker, rush = _rushed(house)
    house.completer.answers = [facts("User's house has seven rooms")]
    await house.say("Please remember that our house has seven rooms.")
    with rush.turn():
        async with asyncio.timeout(60):
            assert await worker.work_one()
    assert await house.contents() == ["User's house has seven rooms"]


async def test_an_empty_queue_gives_new_patience(house: House) -> None:
    now = 100.0
    rush = TurnPriority(lambda: now, 10.0)
    worker = house.worker(turns=rush)
    with rush.turn():
        assert await _waits(rush)
        now += 10
        assert not await _waits(rush, AT_ONCE_S)
        assert not await worker.work_one()
        assert await _waits(rush)


def _rushed(house: House) -> tuple[Worker, TurnPriority]:
    rush = TurnPriority(patience_s=NEVER_S)
    return house.worker(turns=rush), rush


async def _asking_the_model(house: House) -> tuple[TurnPriority, "asyncio.Task[bool]"]:
    """Return the rush, and the worker at the moment at which it waits for a model's answer."""
    worker, rush = _rushed(house)
    house.completer.answers = [facts("User's house has seven rooms")] * 3
    house.completer.go_on.clear()
    await house.say("Our house by the sea has seven rooms.")
    working = asyncio.create_task(worker.work_one())
    async with asyncio.timeout(60):
        await house.completer.reached.wait()
    return rush, working


async def test_long_work_gets_a_share_of_the_time_beside_turns_and_all_of_it_in_a_pause() -> None:
    rush = TurnPriority()
    began = time.monotonic()
    await rush.give_way(10.0)
    assert time.monotonic() - began < 1.0  # no turn has come
    with rush.turn():
        began = time.monotonic()
        await rush.give_way(0.02)
        assert SHARE * 0.02 <= time.monotonic() - began < 1.0
