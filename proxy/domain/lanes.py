"""The priorities ("lanes") of extraction jobs; the lowest number goes first: 1 an explicit request to
remember, at once; 2 ordinary; 3 idle sessions, when nothing else waits.
"""

from proxy.domain.core import NewJob, SessionState

EXPLICIT, ORDINARY, BATCH = LANES = (1, 2, 3)


def rest_of(state: SessionState, *, closing: bool = False) -> NewJob:
    """Return the job that reads all that a session holds."""
    lane = EXPLICIT if state.explicit else ORDINARY
    return NewJob(state.session_id, state.last_seq, lane, closing)
