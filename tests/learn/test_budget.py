"""The budget of our own calls, and background work that lets turns go first. Clocks are set by hand."""

import asyncio
from contextlib import suppress

import pytest

from proxy.domain.core import MemoryFilter
from proxy.domain.errors import (
    CompletionFailed,
    CompletionPostponed,
    CompletionRefused,
    CredentialNeeded,
    StoreUnavailable,
)
from proxy.domain.limits import PAUSE_S, LocalCallQuota, QuotaDecision, TurnPriority
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import BATCH, EXPLICIT
from proxy.learn.budget import NO_LANE, CallBounds, CallOutcome, Load, MeteredCompleter
from tests.learn.support import ANA, NOON, ScriptedCompleter, facts


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def question(role: str = "memory_extraction") -> CompletionRequest:
    return CompletionRequest(role, "s", "u", "m", ANA, "s-1")


# ---------------------------------------------------------------- lanes and the hour


async def test_processes_share_the_hours_calls(clock):
    calls, bounds = LocalCallQuota(), CallBounds(concurrency=9, calls_per_hour=10, reserve=0.2)
    ours, theirs = Load(bounds, clock, calls), Load(bounds, clock, calls)
    await theirs.look()
    for _ in range(8):
        await ours.spend()
    assert (ours.lane(), theirs.lane()) == (EXPLICIT, BATCH)
    clock.now += 6
    await theirs.look()
    assert theirs.lane() == EXPLICIT
    for _ in range(2):
        await theirs.spend()
    with pytest.raises(CompletionPostponed):
        await ours.spend()
    assert ours.lane() == NO_LANE


class SharedQuota(LocalCallQuota):
    """May be unavailable."""

    is_away = False

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().spend(limit, now)

    async def refund(self, at: float) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().refund(at)


async def test_while_the_store_is_away_no_call_is_made_and_an_unreturned_one_counts(clock):
    calls, made = SharedQuota(), ScriptedCompleter("{}")
    load = Load(CallBounds(calls_per_hour=10), clock, calls)
    at = await load.spend()
    calls.is_away = True
    await load.refund(at)
    assert load.calls_left() == 9
    with pytest.raises(CompletionPostponed) as postponed:
        await MeteredCompleter(made, load).complete(question())
    assert postponed.value.retry_after_s
    calls.is_away = False
    assert await MeteredCompleter(made, load).complete(question()) == "{}"


# ---------------------------------------------------------------- metered calls
async def test_every_call_is_reported_with_its_outcome_and_one_that_was_not_made_is_refunded(clock):
    reported: list[CallOutcome] = []
    postponed = CompletionPostponed("429", retry_after_s=1, shared=False)
    errors = (CompletionFailed("500"), CompletionRefused("400"), CredentialNeeded("401"), postponed)
    load = Load(CallBounds(calls_per_hour=5), clock)
    metered = MeteredCompleter(ScriptedCompleter("{}", *errors, "{}"), load, reported.append)
    await metered.complete(question())
    for _ in errors:
        with pytest.raises(CompletionFailed):
            await metered.complete(question())
    assert [c.ended for c in reported] == ["answered", "failed", "refused", "no_credential", "postponed"]
    assert {c.role for c in reported} == {"memory_extraction"}
    assert load.calls_left() == 1, "the postponed one was not made"
    await metered.complete(question())
    with pytest.raises(CompletionPostponed, match="hour"):
        await metered.complete(question())


# ---------------------------------------------------------------- turns go first
AT_ONCE_S, NEVER_S = 10 * PAUSE_S, 3600.0


async def waits(turns: TurnPriority, seconds: float = 3 * PAUSE_S) -> bool:
    """True if work still waits after so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await turns.pause()
            return False
    return True


async def test_work_waits_for_all_turns_and_for_the_pause_after_them(clock):
    turns = TurnPriority(clock, NEVER_S)
    assert not await waits(turns, AT_ONCE_S)
    with turns.turn():
        with suppress(ZeroDivisionError), turns.turn():
            raise ZeroDivisionError
        clock.now += 1
        assert await waits(turns)
    assert await waits(turns)  # the next may be about to come
    clock.now += PAUSE_S
    assert not await waits(turns, AT_ONCE_S)


SEVEN = "User's house has seven rooms"


@pytest.mark.parametrize("forgets", [True, False])
async def test_waiting_work_stores_nothing_forgotten_and_goes_to_the_next_worker_if_it_is_cancelled(
    house, forgets
):
    turns = TurnPriority(patience_s=NEVER_S)
    house.completer.answers = [facts(SEVEN)] * 3
    await house.say("Our house by the sea has seven rooms.")
    with turns.turn():
        working = asyncio.create_task(house.worker(turns=turns).work_one())
        await asyncio.sleep(5 * PAUSE_S)
        if forgets:
            await house.stores.memories.forget(MemoryFilter(tenant="t", user="ana"), by="test")
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    while await house.worker().work_one():
        pass
    assert await house.contents() == ([] if forgets else [SEVEN])


async def test_an_explicit_ask_does_not_wait_and_an_empty_queue_resets_patience(house, clock):
    turns = TurnPriority(clock, 10.0)
    house.completer.answers = [facts(SEVEN)]
    await house.say("Please remember that our house has seven rooms.")
    with turns.turn():
        async with asyncio.timeout(60):
            assert await house.worker(turns=turns).work_one()
        assert await house.contents() == [SEVEN]
        assert await waits(turns)
        clock.now += 10
        assert not await waits(turns, AT_ONCE_S)
        assert not await house.worker(turns=turns).work_one()
        assert await waits(turns)
