"""What the log says of trouble that comes, lasts, goes and comes back, on a virtual clock."""

from types import SimpleNamespace

import pytest

from proxy.app import maintenance
from proxy.domain.errors import StoreUnavailable
from proxy.storage.sql.outages import HOLD_S, REMIND_S, Outages
from tests.storage.recording import recorded


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(monkeypatch):
    """What is logged: event, and how long it was in trouble."""
    return recorded(monkeypatch, lambda facts: facts.get("seconds"))


def test_it_is_over_when_it_has_held_for_a_while_and_the_while_is_not_counted(clock, log):
    told = Outages(clock)
    told.failed("full", "write", "FULL")
    clock.now = 30
    told.over("full")
    told.over("full")
    clock.now = 30 + HOLD_S - 0.1
    told.settle()
    assert log == [("store.trouble", None)]
    clock.now = 30 + HOLD_S
    told.settle()
    assert log[1:] == [("store.recovered", 30)]


def test_what_comes_back_at_once_was_never_over(clock, log):
    told = Outages(clock)
    for clock.now in range(0, round(REMIND_S), 2):
        told.failed("full", "write", "FULL")
        told.over("full")
    clock.now += HOLD_S
    told.settle()
    assert log == [("store.trouble", None), ("store.recovered", REMIND_S - 2)]


def test_what_comes_back_later_is_told_anew_though_nobody_has_asked_in_between(clock, log):
    told = Outages(clock)
    told.failed("full", "write", "FULL")
    told.over("full")
    clock.now = HOLD_S
    told.failed("full", "write", "FULL")
    assert log == [("store.trouble", None), ("store.recovered", 0), ("store.trouble", None)]


def test_what_never_began_is_not_over(clock, log):
    told = Outages(clock)
    told.over("full")
    clock.now = HOLD_S
    told.settle()
    assert log == []


# ---------------------------------------------------------------- at a start
class Shut:
    """Stores that nobody can open."""

    is_open, place = False, "somewhere"

    async def open(self):
        raise StoreUnavailable("gone")


class Away:
    """Stores that were open, and cannot be reached any more."""

    is_open, place = True, "somewhere"

    def __init__(self, trouble=""):
        self.trouble = trouble

    async def upkeep(self):
        raise StoreUnavailable("gone")


@pytest.mark.parametrize(("trouble", "told_at"), [("", (1, 2)), ("store_disk_full", ())])
async def test_a_store_out_of_reach_is_told_of_once_a_minute_where_it_does_not_itself(
    clock, monkeypatch, trouble, told_at
):
    lines = recorded(monkeypatch, lambda facts: (clock.now, facts["place"]))
    keeping = maintenance.Care(SimpleNamespace(stores=Away(trouble)), clock)
    while clock.now < 2.5 * maintenance.REMIND_S:
        clock.now += maintenance.STORE_RETRY_S
        await keeping._catch_up()
    assert lines == [("store.unavailable", (at * maintenance.REMIND_S, "somewhere")) for at in told_at]


async def test_a_store_that_cannot_be_opened_is_tried_on_and_told_of_once_a_minute(clock, monkeypatch):
    lines = recorded(monkeypatch, lambda facts: (clock.now, facts["place"]))
    keeping = maintenance.Care(SimpleNamespace(stores=Shut(), embedder=None), clock)
    while clock.now < 2.5 * maintenance.REMIND_S:
        clock.now += maintenance.STORE_RETRY_S
        await keeping._open()
    assert lines == [("store.unavailable", (at * maintenance.REMIND_S, "somewhere")) for at in (1, 2)]
