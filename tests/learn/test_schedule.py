from dataclasses import replace

from proxy.domain.session import BATCH, EXPLICIT, ORDINARY, NewJob, SessionState
from proxy.learn.triggers import (
    TOOLS_S,
    TriggerPolicy,
    on_completion,
    on_end,
    on_sweep,
)
from tests.learn.support import ANA, NOON

POLICY = TriggerPolicy(batch_size=5, idle_seconds=600, personal_idle_seconds=15)


def state(
    *, pending: int = 1, explicit: bool = False, personal: bool = False, at_work: bool = False
) -> SessionState:
    return SessionState(
        scope=ANA,
        session_id="s",
        last_at=NOON,
        last_seq=9,
        pending=pending,
        explicit=explicit,
        personal=personal,
        at_work=at_work,
    )


def test_an_explicit_ask_is_due_at_once() -> None:
    assert on_completion(POLICY)(state(explicit=True)) == NewJob("s", upto=9, lane=EXPLICIT)


def test_a_full_batch_is_due() -> None:
    trigger = on_completion(POLICY)
    assert trigger(state(pending=5)) == NewJob("s", upto=9, lane=ORDINARY)
    assert trigger(state(pending=4, personal=True)) is None


def test_a_session_with_a_personal_statement_is_due_sooner_than_another() -> None:
    assert on_sweep(POLICY, NOON + 14)(state(personal=True)) is None
    assert on_sweep(POLICY, NOON + 15)(state(personal=True)) == NewJob("s", upto=9, lane=ORDINARY)
    assert on_sweep(POLICY, NOON + 599)(state()) is None
    assert on_sweep(POLICY, NOON + 600)(state()) == NewJob("s", upto=9, lane=BATCH)


def test_a_session_waits_for_tools_but_not_for_ever() -> None:
    for waits in (state(personal=True, at_work=True), state(pending=5, at_work=True)):
        assert on_completion(POLICY)(waits) is None
        assert on_sweep(POLICY, NOON + TOOLS_S - 1)(waits) is None
        assert on_sweep(POLICY, NOON + TOOLS_S)(waits) == NewJob("s", upto=9, lane=ORDINARY)
        assert on_sweep(replace(POLICY, idle_seconds=60), NOON + 60)(waits) == NewJob("s", upto=9, lane=BATCH)
        assert on_end(waits) == NewJob("s", upto=9, lane=ORDINARY)
    assert on_sweep(POLICY, NOON + TOOLS_S)(state(at_work=True)) is None
    assert on_completion(POLICY)(state(explicit=True, at_work=True)) == NewJob("s", upto=9, lane=EXPLICIT)
    assert on_completion(POLICY)(state(pending=10, at_work=True)) == NewJob("s", upto=9, lane=ORDINARY)


def test_a_sweep_picks_up_what_a_crash_left_unqueued() -> None:
    assert on_sweep(POLICY, NOON)(state(explicit=True)) == NewJob("s", upto=9, lane=EXPLICIT)
    assert on_sweep(POLICY, NOON)(state(pending=7)) == NewJob("s", upto=9, lane=ORDINARY)


def test_the_end_of_a_session_takes_everything_pending_and_nothing_from_nothing() -> None:
    assert on_end(state(pending=1)) == NewJob("s", upto=9, lane=ORDINARY)
    assert on_end(state(pending=0)) is None
    assert on_sweep(POLICY, NOON + 9999)(state(pending=0)) is None
