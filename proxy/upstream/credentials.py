"""Each user's upstream credentials, kept in memory only, for our own calls on the user's behalf.

The headers are those that the upstream sees, after the entrance has done its work (edge/identity): a key or
token of ours is never among them, the upstream key that it stands for may be.
"""

from collections import OrderedDict

from proxy.domain.core import Scope
from proxy.upstream.headers import CREDENTIALS, Headers

_CARRIED = CREDENTIALS | {b"openai-organization", b"openai-project"}


class Credentials:
    """The last credential of each user, the least recently used forgotten first."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, str], Headers] = OrderedDict()

    def remember(self, scope: Scope, headers: Headers) -> None:
        """Keep what the upstream has just accepted for the user, or not refused. If that was a request
        without a credential (the server's key goes with it, or none is needed), an older one is no longer
        used either."""
        key = (scope.tenant, scope.user)
        self._held[key] = [(name, value) for name, value in headers if name in _CARRIED]
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
