"""The authentication middleware: every request that touches somebody's data passes it first.

It identifies the caller, once; stores the caller in the ASGI scope, where the rest of the proxy reads it
(`caller_of`); and replaces the scope's headers by those that the rest, and the upstream, may see. Where
identification fails the request ends here, with nothing forwarded.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from urllib.parse import parse_qsl

from proxy import telemetry
from proxy.domain.errors import ClientError, IdentityUnavailable, Unauthorized
from proxy.domain.reasons import Reason
from proxy.http.auth.browsers import Browsers, Visit, Visitor, foreign_page, reason_of
from proxy.http.auth.caller import USER_HEADER, Caller, admit
from proxy.http.auth.modes import ByTrust, Mode
from proxy.http.reply import ASGIScope, Header, Receive, Send, send_error
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
    MODEL = auto()  # the model, with memory
    KEPT = auto()  # stored responses and conversations
    PASSING = auto()  # the upstream's own affair


@dataclass(frozen=True, slots=True)
class Entrance:
    """Guards the routes, in one mode."""

    mode: Mode = field(default_factory=ByTrust)
    browsers: Browsers = field(default_factory=Browsers)
    refused: Callable[[Reason], None] = lambda reason: None  # counts pages and hosts that are not trusted

    async def __call__(
        self, scope: ASGIScope, receive: Receive, send: Send, app: App, area: Area, visit: Visit
    ) -> None:
        """Serve the request with `app`, or refuse it. `send` lets the page behind `visit` read the answer."""
        try:
            if visit.is_preflight and visit.visitor is not Visitor.OURS:
                if self._agrees(scope, visit, area):
                    await visit.answer_preflight(scope, send)
                    return
            elif area is not Area.PUBLIC:
                await self._enter(scope, area, visit)
        except ClientError as error:
            telemetry.log.debug("identity.refused", status=error.status, code=error.code)
            if reason := reason_of(error):
                self._note(visit, reason)
            await send_error(send, error, _headers_of(error))
            return
        await app(scope, receive, send)

    def _agrees(self, scope: ASGIScope, visit: Visit, area: Area) -> bool:
        """True if the proxy answers the preflight with yes; False if the upstream answers it. Raises
        Forbidden."""
        if visit.visitor is Visitor.ALLOWED:
            return True
        if area is Area.PUBLIC:
            return False
        if self.browsers.allowed_origins or area is not Area.PASSING or self.mode.anyone is None:
            raise foreign_page()
        if not self.browsers.server_key:  # a preflight has no credential: the upstream would be sent the key
            admit(scope, self.mode.anyone)
            return False
        if visit.wants_own_credential(scope):
            return True
        raise foreign_page()

    async def _enter(self, scope: ASGIScope, area: Area, visit: Visit) -> None:
        """Admit the caller. Raises ClientError."""
        foreign = visit.visitor is Visitor.FOREIGN and self.mode.ambient
        if foreign and (area is Area.MEMORY or "tunnel" in scope):  # browsers ask no leave for a WebSocket
            raise foreign_page()
        if area in (Area.MEMORY, Area.PAGE):
            visit.require_host()
        if area is Area.KEPT:  # a page of the same origin by DNS rebinding may GET without Origin
            foreign = foreign or not visit.knows_host()
        if area is Area.PAGE:
            return
        if self.mode.ambient and area is not Area.MEMORY:
            visit.require_key_may_be_spent()
        if area is Area.PASSING and self.mode.anyone is not None:
            admit(scope, self.mode.anyone)  # the common case costs no more than this
            return
        admitted = await self.mode.admit(scope)
        caller = replace(admitted.caller, foreign=True) if foreign else admitted.caller
        if foreign:
            is_host = visit.visitor is not Visitor.FOREIGN
            self._note(visit, Reason.FOREIGN_HOST if is_host else Reason.FOREIGN_ORIGIN)
        if area is not Area.MEMORY:  # the memory API has rights of its own
            caller.require("chat")
        scope["headers"] = admitted.headers
        admit(scope, caller)
        if caller.user is not None:
            _stays_with_itself(scope, caller)

    def _note(self, visit: Visit, reason: Reason) -> None:
        self.browsers.note(visit, reason)
        self.refused(reason)


def _stays_with_itself(scope: ASGIScope, caller: Caller) -> None:
    """Raise Forbidden if the request's header or query names another user than the credential's. What its
    body names is checked by whoever reads the body."""
    headers: list[Header] = scope["headers"]
    caller.narrow(take_header_extensions(h for h in headers if h[0] == _USER).user_id, USER_HEADER)
    if query := scope.get("query_string", b""):
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name == "user_id" and value:
                caller.narrow(checked_id(value, "user_id"))


def _headers_of(error: ClientError) -> list[Header]:
    if isinstance(error, Unauthorized):
        return _CHALLENGE
    if reason := reason_of(error):
        return [(b"x-memory-status", b"off"), (b"x-memory-reason", reason.value.encode())]
    return _LATER if isinstance(error, IdentityUnavailable) else []
