"""Turns that an operator wants left without memories, whatever they ask: by default there are none.

Anchors and the session's last turns are shown all the same: they are the conversation's own.
"""

from dataclasses import dataclass

from proxy.domain import Turn
from proxy.errors import StoreError
from proxy.ports import SessionStore
from proxy.reasons import Reason


@dataclass(frozen=True, slots=True)
class Restraint:
    """The settings of that name."""

    skip_first_turn: bool = False
    min_query_chars: int = 0

    async def holds_back(self, turn: Turn, sessions: SessionStore) -> Reason | None:
        """Return why the turn gets no memories, None where it may."""
        if 0 < len(turn.query.strip()) < self.min_query_chars:
            return Reason.SHORT_QUERY
        if self.skip_first_turn and await _is_first(turn, sessions):
            return Reason.FIRST_TURN
        return None


async def _is_first(turn: Turn, sessions: SessionStore) -> bool:
    """True where nothing was answered in the conversation before, as far as that can be known."""
    if turn.continues is not None or any(m.role == "assistant" for m in turn.messages):
        return False
    if not turn.standalone:
        return True
    try:
        return not await sessions.recent(turn.scope, turn.session_id, 1)
    except StoreError:
        return False
