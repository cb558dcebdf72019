"""The cache, the circuit breaker and the rate limits keep their bounds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.limits import CircuitBreaker, Rate, TTLCache, check_rate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------- cache


def test_sizes_are_bounded_together():
    cache = TTLCache[str, bytes](10, size_of=len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    cache.put("a", b"123456")  # replaced: its old size no longer counts
    assert list(cache) == ["b", "a"]
    cache.put("b", b"x" * 11)  # too large, and the old value is not valid any more
    assert list(cache) == ["a"]
    cache.put("c", b"12345")
    assert list(cache) == ["c"]


# ---------------------------------------------------------------- circuit breaker
def breaker(**options: Any) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    return CircuitBreaker(**{"open_s": 2, "clock": clock, **options}), clock


def test_it_opens_after_failures_in_a_row_and_a_success_starts_the_count_again():
    circuit, clock = breaker(trip_after=3)
    assert [circuit.failed(), circuit.failed()] == [0, 0]
    circuit.succeeded()
    assert [circuit.failed(), circuit.failed(), circuit.failed()] == [0, 0, 2]
    assert circuit.is_open
    assert circuit.acquire() == 2
    clock.now = 2
    assert not circuit.is_open
    assert circuit.failed() == 2  # not three more: it has not closed


def test_it_opens_for_longer_each_time_up_to_a_bound_until_a_success():
    circuit, clock = breaker(max_open_s=300)
    lengths = []
    for _ in range(10):
        lengths.append(circuit.failed(began_at=clock.now))
        clock.now += 1000
    assert lengths == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    circuit.succeeded()
    assert not circuit.is_open
    assert circuit.failed() == 2


def test_one_call_at_a_time_finds_out_whether_the_other_side_is_back():
    circuit, clock = breaker(probe_s=5)
    assert circuit.acquire() == circuit.acquire() == 0  # closed
    circuit.failed()
    clock.now = 2
    assert [circuit.acquire(), circuit.acquire()] == [0, 5]
    clock.now = 7
    assert circuit.acquire() == 0
    circuit.succeeded()
    assert circuit.acquire() == circuit.acquire() == 0


# ---------------------------------------------------------------- rate limits


def test_the_verdict_says_what_is_left_when_it_is_whole_again_and_when_to_come_back():
    rate = Rate(per_minute=30, burst=2)  # one in two seconds
    at, first = check_rate(rate, 100.0, 0.0)
    at, second = check_rate(rate, 100.5, at)
    at, third = check_rate(rate, 101.0, at)
    assert (first.passes, first.remaining, first.reset_s) == (True, 1, pytest.approx(2.0))
    assert (second.passes, second.remaining, second.reset_s) == (True, 0, pytest.approx(3.5))
    assert (third.passes, third.remaining, third.retry_after_s) == (False, 0, pytest.approx(1.0))
    assert check_rate(rate, 102.0, at)[1].passes, "being refused costs nothing"
    assert check_rate(rate, 100.0, 1e9)[1].retry_after_s == pytest.approx(2.0), "the clock was set back"


@given(st.integers(1, 10_000), st.integers(1, 500), st.lists(st.floats(0, 90), min_size=1, max_size=60))
def test_no_window_ever_holds_more_than_its_rate_and_a_burst(per_minute, burst, gaps):
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
