"""The load on the upstream, without any: a clock and calls that are told."""

import pytest

from proxy.domain.errors import (
    CompletionFailed,
    CompletionPostponed,
    CompletionRefused,
    CredentialNeeded,
    StoreUnavailable,
)
from proxy.domain.limits import HOUR_S, LocalCallQuota, QuotaDecision
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import BATCH, EXPLICIT
from proxy.learn.budget import NO_LANE, CallBounds, CallOutcome, Load, MeteredCompleter
from tests.learn.support import ANA, NOON, ScriptedCompleter


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def question(role: str = "memory_extraction") -> CompletionRequest:
    return CompletionRequest(role, "s", "u", "m", ANA, "s-1")


def test_when_all_are_busy_only_an_explicit_ask_is_served_and_only_one(clock: Clock) -> None:
    load = Load(CallBounds(concurrency=2), clock)
    assert load.lane() == BATCH
    load.began(waited_s=0)
    load.began(waited_s=0)
    assert load.lane() == EXPLICIT
    load.began(waited_s=0)
    assert load.lane() == NO_LANE
    load.ended()
    assert load.lane() == EXPLICIT


def test_calls_under_way_count_against_the_hour(clock: Clock) -> None:
    load = Load(CallBounds(concurrency=9, calls_per_hour=10, reserve=0.2), clock)
    for _ in range(8):
        assert load.lane() == BATCH
        load.began(waited_s=0)
    assert load.lane() == EXPLICIT
    load.began(waited_s=0)
    load.began(waited_s=0)
    assert load.lane() == NO_LANE


async def test_an_hour_is_any_sixty_minutes(clock: Clock) -> None:
    load = Load(CallBounds(calls_per_hour=2), clock)
    await load.spend()
    clock.now += 1800
    await load.spend()
    with pytest.raises(CompletionPostponed) as spent:
        await load.spend()
    assert spent.value.retry_after_s == HOUR_S - 1800
    clock.now += 1800
    await load.look()
    assert load.calls_left() == 1
    assert Load(CallBounds(), clock).calls_left() is None


async def test_what_one_process_spends_another_no_longer_has(clock: Clock) -> None:
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


class Watched(LocalCallQuota):
    """Counts looks, and may be away."""

    looks, is_away = 0, False

    async def look(self, limit: int, now: float) -> QuotaDecision:
        self.looks += 1
        return await super().look(limit, now)

    async def spend(self, limit: int, now: float) -> QuotaDecision:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().spend(limit, now)

    async def refund(self, at: float) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().refund(at)


async def test_nobody_asks_all_the_time_how_many_calls_are_left(clock: Clock) -> None:
    calls = Watched()
    load = Load(CallBounds(calls_per_hour=10), clock, calls)
    for _ in range(100):
        await load.look()
        clock.now += 0.1
    assert calls.looks == 2
    clock.now -= 1e6  # set back
    await load.look()
    assert calls.looks == 3
    await Load(CallBounds(), clock, calls).look()
    assert calls.looks == 3  # no bound, no question


async def test_while_nobody_knows_how_many_calls_are_left_none_is_made(clock: Clock) -> None:
    calls, made = Watched(), ScriptedCompleter("{}")
    load = Load(CallBounds(calls_per_hour=10), clock, calls)
    calls.is_away = True
    with pytest.raises(CompletionPostponed) as postponed:
        await MeteredCompleter(made, load).complete(question())
    assert postponed.value.retry_after_s
    calls.is_away = False
    assert await MeteredCompleter(made, load).complete(question()) == "{}"


async def test_a_call_that_cannot_be_given_back_counts(clock: Clock) -> None:
    calls = Watched()
    load = Load(CallBounds(calls_per_hour=10), clock, calls)
    at = await load.spend()
    calls.is_away = True
    await load.refund(at)
    assert load.calls_left() == 9


def test_after_a_stop_it_is_one_at_a_time_and_one_more_with_every_answer(clock: Clock) -> None:
    load = Load(CallBounds(concurrency=3), clock)
    load.hold(20)
    clock.now += 19
    assert load.lane() == NO_LANE
    clock.now += 1
    assert (load.lane(), load.limit) == (BATCH, 1)
    for limit in (2, 3, 3):
        load.answered(1.0)
        assert load.limit == limit


def test_a_later_stop_makes_none_shorter(clock: Clock) -> None:
    load = Load(CallBounds(), clock)
    load.hold(20)
    clock.now += 5
    load.hold(2)
    clock.now += 14
    assert load.lane() == NO_LANE
    clock.now += 1
    assert load.lane() == BATCH


def test_a_stop_does_not_last_until_an_hour_that_was_wrong(clock: Clock) -> None:
    load = Load(CallBounds(), clock)
    load.hold(20)
    clock.now -= 86_400  # set back
    assert load.lane() == BATCH
    load.hold(20)
    assert load.lane() == NO_LANE


def test_an_upstream_that_gets_slower_is_asked_less_again(clock: Clock) -> None:
    load = Load(CallBounds(concurrency=1, peak=5), clock)
    load.began(waited_s=60)
    for _ in range(6):
        load.answered(1.0)
    assert load.limit == 5
    for _ in range(5):
        load.answered(4.0)
    assert load.limit == 1


def test_a_process_without_processor_time_left_asks_for_no_more_and_goes_back(clock: Clock) -> None:
    worked = 0.0
    load = Load(CallBounds(concurrency=1, peak=5), clock, worked=lambda: worked)
    load.began(waited_s=60)

    def answered_in_a_second(used_s: float) -> int:
        nonlocal worked
        clock.now, worked = clock.now + 1, worked + used_s
        load.answered(1.0)
        return load.limit

    assert [answered_in_a_second(0.3) for _ in range(3)] == [2, 3, 4]
    assert [answered_in_a_second(0.95) for _ in range(4)] == [3, 2, 1, 1]
    assert answered_in_a_second(0.3) == 2


def test_a_clock_that_is_put_back_stops_nothing(clock: Clock) -> None:
    worked = 0.0
    load = Load(CallBounds(concurrency=1, peak=5), clock, worked=lambda: worked)
    load.began(waited_s=60)
    clock.now, worked = clock.now - 3600, 0.9
    load.answered(1.0)
    assert load.limit == 2


def test_a_peak_below_the_concurrency_means_never_more(clock: Clock) -> None:
    load = Load(CallBounds(concurrency=2, peak=1), clock)
    load.began(waited_s=60)
    load.answered(1.0)
    assert load.limit == 2


async def test_every_call_is_told_with_its_end(clock: Clock) -> None:
    told: list[CallOutcome] = []
    completer = ScriptedCompleter(
        "{}",
        CompletionFailed("500"),
        CompletionRefused("400"),
        CredentialNeeded("401"),
        CompletionPostponed("429", retry_after_s=1, shared=False),
    )
    metered = MeteredCompleter(completer, Load(CallBounds(), clock), told.append)
    await metered.complete(question())
    for _ in range(4):
        with pytest.raises(CompletionFailed):
            await metered.complete(question())
    assert [c.ended for c in told] == ["answered", "failed", "refused", "no_credential", "postponed"]
    assert {c.role for c in told} == {"memory_extraction"}


async def test_a_call_that_was_not_made_is_none_of_the_hours(clock: Clock) -> None:
    load = Load(CallBounds(calls_per_hour=2), clock)
    metered = MeteredCompleter(
        ScriptedCompleter(CompletionPostponed("429", retry_after_s=1, shared=False), "{}", "{}"), load
    )
    with pytest.raises(CompletionPostponed):
        await metered.complete(question())
    assert load.calls_left() == 2
    await metered.complete(question())
    await metered.complete(question())
    assert load.calls_left() == 0
    with pytest.raises(CompletionPostponed, match="hour"):
        await metered.complete(question())


async def test_a_429_to_another_role_does_not_hold_the_jobs(clock: Clock) -> None:
    refusal = CompletionPostponed("429", retry_after_s=30, shared=True)
    load = Load(CallBounds(), clock)
    metered = MeteredCompleter(ScriptedCompleter(refusal, refusal), load)
    with pytest.raises(CompletionPostponed):
        await metered.complete(question("memory_summary"))
    assert load.lane() == BATCH
    with pytest.raises(CompletionPostponed):
        await metered.complete(question())
    assert load.lane() == NO_LANE
