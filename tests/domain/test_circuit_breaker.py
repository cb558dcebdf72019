from typing import Any

from proxy.domain.limits import CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def breaker(**options: Any) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    return CircuitBreaker(**{"open_s": 2, "clock": clock, **options}), clock


def test_it_opens_after_failures_in_a_row_and_a_success_starts_the_count_again() -> None:
    circuit, clock = breaker(trip_after=3)
    assert [circuit.failed(), circuit.failed()] == [0, 0]
    circuit.succeeded()
    assert [circuit.failed(), circuit.failed(), circuit.failed()] == [0, 0, 2]
    assert circuit.is_open
    assert circuit.acquire() == 2
    clock.now = 2
    assert not circuit.is_open
    assert circuit.failed() == 2  # not three more: it has not closed


def test_it_opens_for_longer_each_time_up_to_a_bound_until_a_success() -> None:
    circuit, clock = breaker(max_open_s=300)
    lengths = []
    for _ in range(10):
        lengths.append(circuit.failed(began_at=clock.now))
        clock.now += 1000
    assert lengths == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    circuit.succeeded()
    assert not circuit.is_open
    assert circuit.failed() == 2


def test_calls_under_way_together_are_one_failure() -> None:
    circuit, clock = breaker(max_open_s=300)
    clock.now = 1
    assert circuit.failed(began_at=0) == 2
    clock.now = 2
    assert circuit.failed(began_at=0.5) == 1
    assert circuit.failed(began_at=0.5, wanted_s=60) == 60


def test_one_call_at_a_time_finds_out_whether_the_other_side_is_back() -> None:
    circuit, clock = breaker(probe_s=5)
    assert circuit.acquire() == circuit.acquire() == 0  # closed
    circuit.failed()
    clock.now = 2
    assert [circuit.acquire(), circuit.acquire()] == [0, 5]
    clock.now = 7
    assert circuit.acquire() == 0
    circuit.succeeded()
    assert circuit.acquire() == circuit.acquire() == 0


def test_a_recent_success_keeps_it_closed() -> None:
    circuit, clock = breaker(quiet_s=1)
    circuit.succeeded()
    clock.now = 0.9
    assert circuit.failed() == 0
    clock.now = 1
    assert circuit.failed() == 2


def test_the_time_that_the_other_side_asks_for_is_kept_with_some_jitter() -> None:
    circuit, _ = breaker(jitter=lambda: 0.5)
    assert circuit.failed(wanted_s=30) == 30.5
