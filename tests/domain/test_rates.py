"""Rate limits: a burst at once, then the rate, and correct waiting times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.limits import Rate, check_rate


def test_a_burst_passes_at_once_and_then_one_an_interval() -> None:
    rate, at, passed = Rate(per_minute=60, burst=3), 0.0, []
    for now in (100.0, 100.0, 100.0, 100.0, 100.5, 101.0, 101.0, 103.0, 103.0, 103.0):
        at, verdict = check_rate(rate, now, at)
        passed.append(verdict.passes)
    assert passed == [True, True, True, False, False, True, False, True, True, False]


def test_the_verdict_says_what_is_left_when_it_is_whole_again_and_when_to_come_back() -> None:
    rate = Rate(per_minute=30, burst=2)  # one in two seconds
    at, first = check_rate(rate, 100.0, 0.0)
    at, second = check_rate(rate, 100.5, at)
    at, third = check_rate(rate, 101.0, at)
    assert (first.passes, first.remaining, first.reset_s) == (True, 1, pytest.approx(2.0))
    assert (second.passes, second.remaining, second.reset_s) == (True, 0, pytest.approx(3.5))
    assert (third.passes, third.remaining, third.retry_after_s) == (False, 0, pytest.approx(1.0))
    assert check_rate(rate, 102.0, at)[1].passes


def test_being_refused_costs_nothing() -> None:
    rate = Rate(per_minute=60, burst=1)
    at, _ = check_rate(rate, 100.0, 0.0)
    for _ in range(50):
        at, verdict = check_rate(rate, 100.5, at)
        assert not verdict.passes
    assert check_rate(rate, 101.0, at)[1].passes


def test_a_time_from_before_the_clock_was_set_back_delays_by_no_more_than_a_burst() -> None:
    rate = Rate(per_minute=60, burst=5)
    _, verdict = check_rate(rate, 100.0, 1e9)
    assert not verdict.passes
    assert verdict.retry_after_s == pytest.approx(1.0)


def test_zero_means_unlimited_and_the_default_burst_is_a_minute_s_worth() -> None:
    assert Rate.of(0, 5) is None
    assert Rate.of(60, 0) == Rate(60, 60)
    assert Rate.of(60, 7) == Rate(60, 7)


@given(st.integers(1, 10_000), st.integers(1, 500), st.lists(st.floats(0, 90), min_size=1, max_size=200))
def test_no_window_ever_holds_more_than_its_rate_and_a_burst(
    per_minute: int, burst: int, gaps: list[float]
) -> None:
    rate, now, at, passed = Rate(per_minute, burst), 1_000.0, 0.0, []
    for gap in gaps:
        now += gap / 60
        at, verdict = check_rate(rate, now, at)
        assert 0 <= verdict.remaining < burst
        if verdict.passes:
            passed.append(now)
        else:
            assert check_rate(rate, now + verdict.retry_after_s + 1e-6, at)[1].passes
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            most = burst + (passed[last] - passed[first]) / rate.interval_s
            assert last - first + 1 <= most + 1e-3
