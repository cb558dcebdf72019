"""A clock that jumps throws nothing off, unless it stays where it jumped to."""

import time

import pytest

from proxy.app.maintenance import SteadyClock

DAY = 86_400.0


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall, self.up = 1_000_000.0, 50.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.up, patience_s=600)

    def after(self, seconds: float, *, jump: float = 0.0) -> float:
        """Let time go by, with the clock set meanwhile; return what the process takes for the time."""
        self.up += seconds
        self.wall += seconds + jump
        return self.clock()


@pytest.mark.parametrize("jump", [DAY, -DAY, 3_650 * DAY])
def test_a_jump_is_not_believed_until_the_clock_has_kept_to_it(jump: float) -> None:
    machine = Machine()
    assert machine.after(10, jump=jump) == 1_000_010
    assert machine.after(599) == 1_000_609
    assert machine.after(2) == 1_000_611 + jump
    assert machine.after(5) == 1_000_616 + jump


def test_a_jump_that_is_taken_back_leaves_no_trace() -> None:
    machine = Machine()
    machine.after(10, jump=DAY)
    machine.after(300, jump=-DAY)
    assert machine.after(400) == 1_000_710
    assert machine.after(400) == 1_001_110


def test_a_clock_that_keeps_jumping_is_never_believed() -> None:
    machine = Machine()
    for _ in range(20):
        machine.after(400, jump=DAY)
    assert machine.after(0) == 1_000_000 + 8_000


def test_small_corrections_are_followed() -> None:
    machine = Machine()
    assert machine.after(10, jump=0.4) == pytest.approx(1_000_010.4)
    for _ in range(100):
        machine.after(10, jump=-0.4)
    assert machine.after(0) == pytest.approx(machine.wall)


def test_without_a_jump_it_is_the_time_of_day() -> None:
    assert SteadyClock()() == pytest.approx(time.time(), abs=1)
