"""The authentication middleware: every request that touches somebody's data passes it first.

It identifies the caller, once; stores the caller in the ASGI scope, where the rest of the proxy reads it
(`caller_of`); and replaces the scope's headers by those that the rest, and the upstream, may see. Where
identification fails the request ends here, with nothing forwarded.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from urllib.parse import parse_qsl

from proxy import observe
from proxy.edge.identity import browsers
from proxy.edge.identity.browsers import Browsers, Visitor
from proxy.edge.identity.caller import USER_HEADER, Caller, admit
from proxy.edge.identity.modes import ByTrust, Mode
from proxy.edge.reply import ASGIScope, Header, Receive, Send, send_error
from proxy.errors import ClientError, IdentityUnavailable, Unauthorized
from proxy.wire.extensions import checked_id, take_header_extensions

App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

_USER = USER_HEADER.lower().encode()
_CHALLENGE = [(b"www-authenticate", b"Bearer")]
_LATER = [(b"retry-after", b"1")]


class Area(Enum):
    """What a route gives access to."""

    PUBLIC = auto()  # nothing of anybody's
    PAGE = auto()  # /ui: the page itself; what it shows it asks the memory API for
    MEMORY = auto()  # the memory API
    MODEL = auto()  # the model, with memory; stored responses and conversations
    PASSING = auto()  # the upstream's own affair


@dataclass(frozen=True, slots=True)
class Entrance:
    """Guards the routes, in one mode."""

    mode: Mode = field(default_factory=ByTrust)
    browsers: Browsers = field(default_factory=Browsers)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send, app: App, area: Area) -> None:
        """Serve the request with `app`, or refuse it."""
        if area is Area.PASSING and self.mode.anyone is not None:
            admit(scope, self.mode.anyone)  # the common case costs no more than this
        elif area is not Area.PUBLIC:
            visitor = self._visitor(scope, area)
            if area is Area.MEMORY and visitor is Visitor.ALLOWED:
                send = browsers.letting_read(send, scope["headers"])
            try:
                if area is Area.MEMORY and browsers.is_preflight(scope):
                    await browsers.answer_preflight(send, visitor)
                    return
                await self._enter(scope, area, visitor)
            except ClientError as error:
                observe.log.debug("identity.refused", status=error.status, code=error.code)
                await send_error(send, error, _told_with(error))
                return
        await app(scope, receive, send)

    def _visitor(self, scope: ASGIScope, area: Area) -> Visitor:
        guarded = area in (Area.MEMORY, Area.MODEL)
        return self.browsers.visitor(scope["headers"]) if guarded else Visitor.OURS

    async def _enter(self, scope: ASGIScope, area: Area, visitor: Visitor) -> None:
        """Admit the caller. Raises ClientError."""
        foreign = visitor is Visitor.FOREIGN and self.mode.ambient
        if area is Area.MEMORY and foreign:
            raise browsers.foreign_page()
        if area in (Area.MEMORY, Area.PAGE):
            self.browsers.require_host(scope["headers"])
        if area is Area.PAGE:
            return
        admitted = await self.mode.admit(scope)
        caller = replace(admitted.caller, foreign=True) if foreign else admitted.caller
        if area is not Area.MEMORY:  # the memory API has rights of its own
            caller.require("chat")
        scope["headers"] = admitted.headers
        admit(scope, caller)
        if caller.user is not None:
            _stays_with_itself(scope, caller)


def _stays_with_itself(scope: ASGIScope, caller: Caller) -> None:
    """Raise Forbidden if the request's header or query names another user than the credential's. What its
    body names is checked by whoever reads the body."""
    headers: list[Header] = scope["headers"]
    caller.narrow(take_header_extensions(h for h in headers if h[0] == _USER).user_id, USER_HEADER)
    if query := scope.get("query_string", b""):
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name == "user_id" and value:
                caller.narrow(checked_id(value, "user_id"))


def _told_with(error: ClientError) -> list[Header]:
    if isinstance(error, Unauthorized):
        return _CHALLENGE
    return _LATER if isinstance(error, IdentityUnavailable) else []
