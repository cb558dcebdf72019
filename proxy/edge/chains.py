"""Which session a response was made in, known before it is on disk: a client may continue it at once.

At another replica it may not be on disk yet: see Relayed.patience_s.
"""

from collections import OrderedDict

from proxy.domain import Turn


class RecentChains:
    """The sessions of the last responses of this process, by their owner; the store knows all of them."""

    def __init__(self, limit: int = 2_000) -> None:
        self._limit = limit
        self._sessions: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def note(self, turn: Turn, response_id: str) -> None:
        """Remember that the response was made in the turn's session."""
        self._sessions[turn.scope.tenant, turn.scope.user, response_id] = turn.session_id
        if len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)

    def session_of(self, turn: Turn, response_id: str) -> str | None:
        """Return the session of a response that the turn's user made."""
        return self._sessions.get((turn.scope.tenant, turn.scope.user, response_id))
