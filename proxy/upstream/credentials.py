"""What clients authenticate with, kept in memory only, for our own calls on their behalf."""

from collections import OrderedDict

from proxy.domain import Scope
from proxy.upstream.headers import Headers

_CARRIED = frozenset({b"authorization", b"api-key", b"openai-organization", b"openai-project"})


class Credentials:
    """The last credential of each user, the least recently used forgotten first."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, str], Headers] = OrderedDict()

    def remember(self, scope: Scope, headers: Headers) -> None:
        """Keep what among the request's headers is the user's credential; without any, change nothing."""
        carried = [(name, value) for name, value in headers if name in _CARRIED]
        if not any(name in (b"authorization", b"api-key") for name, _ in carried):
            return
        key = (scope.tenant, scope.user)
        self._held[key] = carried
        self._held.move_to_end(key)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)

    def get(self, scope: Scope) -> Headers:
        """Return the headers that carry the user's credential, none if it is not known."""
        key = (scope.tenant, scope.user)
        if key in self._held:
            self._held.move_to_end(key)
        return list(self._held.get(key, ()))

    def forget(self, scope: Scope) -> None:
        """Drop the user's credential."""
        self._held.pop((scope.tenant, scope.user), None)
