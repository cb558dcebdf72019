"""Remember in which session a response was made, and what it was shown, before that is on disk: a client may
continue it at once.

At another replica it may not be on disk yet: see Relayed.patience_s.
"""

from collections import OrderedDict
from collections.abc import Iterable

from proxy.domain.core import Turn


class RecentChains:
    """The sessions of the last responses of this process, by their owner; the store knows all of them."""

    def __init__(self, limit: int = 1_000) -> None:
        self._limit = limit
        self._sessions: OrderedDict[tuple[str, str, str], tuple[str, frozenset[str]]] = OrderedDict()

    def note(self, turn: Turn, response_id: str, shown: Iterable[str] = ()) -> None:
        """Remember that the response was made in the turn's session, with these memories in its input."""
        made = turn.session_id, turn.shown.union(shown)
        self._sessions[turn.scope.tenant, turn.scope.user, response_id] = made
        if len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)

    def session_of(self, turn: Turn, response_id: str) -> str | None:
        """Return the session of a response that the turn's user made."""
        return self._known(turn, response_id)[0]

    def shown(self, turn: Turn, response_id: str) -> frozenset[str]:
        """Return the memories that the chain up to the response was given, as far as this process knows."""
        return self._known(turn, response_id)[1]

    def _known(self, turn: Turn, response_id: str) -> tuple[str | None, frozenset[str]]:
        unknown: tuple[None, frozenset[str]] = None, frozenset()
        return self._sessions.get((turn.scope.tenant, turn.scope.user, response_id), unknown)
