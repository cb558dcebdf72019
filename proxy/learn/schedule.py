"""Triggers: pure functions by which the session store decides when pending exchanges become an extraction
job.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.domain.core import NewJob, Scope, SessionState
from proxy.domain.lanes import BATCH, EXPLICIT, ORDINARY, rest_of
from proxy.domain.ports import Trigger

TOOLS_S = 120.0  # that tools may take, from the question on, before the exchange is read without its end


@dataclass(frozen=True, slots=True)
class Policy:
    """How long exchanges may wait. One LLM call a batch: larger batches cost less and come later."""

    batch_size: int = 5
    idle_seconds: float = 600
    personal_idle_seconds: float = 15


def on_completion(policy: Policy) -> Trigger:
    """Return the trigger for a completed exchange: an explicit ask, or a full batch."""

    def trigger(state: SessionState) -> NewJob | None:
        if state.pending and state.explicit:
            return _job(state, EXPLICIT)
        if state.pending >= policy.batch_size * (2 if state.at_work else 1):
            return _job(state, ORDINARY)
        return None

    return trigger


def on_sweep(policy: Policy, now: float) -> Trigger:
    """Return the trigger for idle sessions. One that says something about the user is due sooner, so
    that a user who opens a new conversation right away is known in it."""
    completed = on_completion(policy)

    def trigger(state: SessionState) -> NewJob | None:
        if due := completed(state):  # left over by a crash, or by a larger batch size
            return due
        idle = now - state.last_at
        is_personal = state.pending and state.personal and idle >= policy.personal_idle_seconds
        if (is_personal or state.pending >= policy.batch_size) and (not state.at_work or idle >= TOOLS_S):
            return _job(state, ORDINARY)
        if state.pending and idle >= policy.idle_seconds:
            return _job(state, BATCH)
        return None

    return trigger


def on_end(state: SessionState) -> NewJob | None:
    """Trigger for the end of a session and for shutdown: everything that is pending."""
    return rest_of(state) if state.pending else None


def unless_due(trigger: Trigger, others: list[SessionState]) -> Trigger:
    """Return the trigger, which also notes the sessions that have something pending and not due."""

    def noting(state: SessionState) -> NewJob | None:
        wanted = trigger(state)
        if wanted is None and state.pending:
            others.append(state)
        return wanted

    return noting


def up_to(left: Mapping[tuple[Scope, str], int]) -> Trigger:
    """Return the trigger for these sessions: (scope, session id) to the last exchange that is due."""

    def trigger(state: SessionState) -> NewJob | None:
        seq = left.get((state.scope, state.session_id))
        return None if seq is None else NewJob(session_id=state.session_id, upto=seq, lane=ORDINARY)

    return trigger


def _job(state: SessionState, lane: int) -> NewJob:
    return NewJob(session_id=state.session_id, upto=state.last_seq, lane=lane)
