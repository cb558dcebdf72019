"""Who is calling, and what that lets them access.

A credential decides the tenant, and often the user; what a request names can only narrow that. `Entrance`
identifies the caller once and puts it into the ASGI scope, where the rest of the proxy reads it
(`caller_of`); nothing else decides whose memories are accessed.

Modes:
open    One tenant; the user that the caller names is believed. For an application's own backend and for
        local use; beyond loopback it takes an explicit `--allow-open`.
keys    Our own API keys: each has a tenant and rights, may fix a user, and may stand for an upstream key.
header  An authenticating proxy in front names the user. It is trusted by its address alone.
jwt     A token of an identity provider (jwt.py).

In `open` and `header` the client's Authorization is the upstream's and passes. In `keys` and `jwt` it is
ours: it never reaches the upstream, and a client whose own credential fails gets our 401 and nothing else.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol
from urllib.parse import parse_qsl, unquote

from proxy import telemetry
from proxy.domain.core import Scope
from proxy.domain.errors import (
    ClientError,
    ConfigError,
    Forbidden,
    IdentityUnavailable,
    InvalidRequest,
    StoreError,
    Unauthorized,
)
from proxy.domain.oversight import RIGHTS
from proxy.domain.reasons import Reason
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, send_error
from proxy.http.auth.browsers import Browsers, Visit, Visitor, foreign_page, reason_of
from proxy.http.auth.keys import Found, KeyRing, is_key
from proxy.upstream.headers import CREDENTIALS
from proxy.wire.extensions import checked_id, is_placeholder, is_usable_id, take_header_extensions

OPEN_TENANT = "default"
USER_HEADER = "X-Memory-User-Id"
PROJECT_HEADER = "X-Memory-Project-Id"
_CALLER = "memory_proxy.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A credential's meaning. `user` is fixed by the credential, or None where the caller may name one."""

    tenant: str
    user: str | None = None
    named: str | None = None  # the user that the request's header names
    project: str | None = None  # the project that the request's header names
    timezone: str | None = None  # that the request's header names
    rights: frozenset[str] = RIGHTS
    label: str = "open"  # who did it, in receipts: "open", "key:<id>", "jwt", "header"
    foreign: bool = False  # a web page of another origin asks: it gets no memory (see browsers.py)
    project_key: Callable[[str], str] = str  # what a project's id is stored as: a digest, if it is a secret

    def stored_project(self, project_id: str | None) -> str | None:
        """Return what the project is stored under."""
        return None if project_id is None else self.project_key(project_id)

    def require(self, right: str) -> None:
        """Raise Forbidden unless the credential carries the right (see oversight.RIGHTS)."""
        if right not in self.rights:
            raise Forbidden(f"This credential lacks the right `{right}`.", code="missing_right")

    def narrow(self, user_id: str | None, param: str = "user_id") -> str | None:
        """Return the user to look inside, None for all of the tenant. Where the credential fixes the user,
        naming another one is Forbidden, wherever the request names it: `param` is what the request calls
        the place of `user_id`. Ids are compared exactly."""
        if self.user is None:
            return self.named if user_id is None else user_id
        for wanted, place in ((user_id, param), (self.named, USER_HEADER)):
            if wanted is not None and wanted != self.user:
                raise Forbidden("This credential belongs to another user.", param=place)
        return self.user

    def scope(self, user_id: str | None, project_id: str | None) -> Scope:
        """Return the scope that the request asks for; a user must be known."""
        user = self.narrow(None if user_id is None else checked_id(user_id, "user_id"))
        if user is None:
            why, code = "`user_id` is required.", "missing_required_parameter"
            raise InvalidRequest(why, param="user_id", code=code)
        return Scope(self.tenant, user, self.project_of(project_id))

    def project_of(self, project_id: str | None) -> str | None:
        """Return the project that the request asks for, by `project_id` or by its header. Raises
        InvalidRequest where they differ: whichever won, more or something else could be meant."""
        project = None if project_id is None else self.project_key(checked_id(project_id, "project_id"))
        if project is None or self.project in (None, project):
            return project or self.project
        why = f"`project_id` and {PROJECT_HEADER} name two projects."
        raise InvalidRequest(why, param=PROJECT_HEADER, code="invalid_value")

    def sees(self, project: str | None) -> bool:
        """True unless what lies in the project is kept from a request whose header names another one. What
        is of no project belongs to each."""
        return self.project is None or project in (None, self.project)


OPEN = Caller(OPEN_TENANT)
"""Whoever calls in mode `open`: one tenant, and the user that the request names is believed."""


def admit(scope: ASGIScope, caller: Caller) -> None:
    """Note in the scope who calls. Only the entrance does."""
    scope[_CALLER] = caller


def admitted(scope: ASGIScope) -> Caller:
    """Return who calls, whomever the request names. Raises KeyError where nobody was admitted."""
    caller: Caller = scope[_CALLER]
    return caller


def caller_of(scope: ASGIScope, project_key: Callable[[str], str] = str) -> Caller:
    """Return who calls, with the user and the project that the request's headers name. `project_key`: see
    Caller.

    Raises Forbidden if the credential belongs to another, InvalidRequest for a malformed header; and
    KeyError where nobody was admitted: a route that the entrance does not guard must not answer.
    """
    caller = admitted(scope)
    said = take_header_extensions(scope["headers"])
    if said.user_id is not None:
        caller.narrow(said.user_id, USER_HEADER)
    caller = replace(caller, named=said.user_id, timezone=said.timezone, project_key=project_key)
    return replace(caller, project=caller.stored_project(said.project_id))


# ---------------------------------------------------------------- credentials
MAX_CHARS = 16_384  # a token with many claims has some 4,000

_SCHEME = b"bearer"
_TOKEN = re.compile(rb"[\x21-\x7e]+")  # printable ASCII without a blank: two of them joined are not one
_NEEDED = "Send your key as `Authorization: Bearer …`: it is what an OpenAI client calls `api_key`."


def presented(headers: Iterable[Header]) -> str:
    """Return the one credential of the request: a Bearer token, or the value of `api-key` or `x-api-key`.

    Raises Unauthorized without one, and for two that differ: a request must not have two identities.
    """
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            found.add(_bearer(value))
        elif name in CREDENTIALS:
            found.add(value.strip(b" \t"))
    if not found:
        raise Unauthorized(f"No credential. {_NEEDED}")
    if len(found) > 1:
        raise Unauthorized("The request carries two different credentials.")
    credential = found.pop()
    if len(credential) > MAX_CHARS or not _TOKEN.fullmatch(credential):
        raise Unauthorized(f"The credential is malformed. {_NEEDED}")
    return credential.decode("ascii")


def keep_out_of_target(credential: str, scope: ASGIScope) -> None:
    """Raise Unauthorized if the credential stands in the request's path or query as well: from there it would
    go to the upstream, and into the logs of whatever is on the way."""
    target = scope["path"] + unquote(scope.get("query_string", b"").decode("latin-1"))
    if credential in target:
        raise Unauthorized("The credential stands in the URL. Send it as a header only, and replace it.")


def replaced(headers: Sequence[Header], ours: str, upstream_key: str | None) -> list[Header]:
    """Return the headers as the upstream may see them: our credential in none of them, wherever the client
    has put it, and the upstream key in its place, if there is one."""
    secret = ours.encode("ascii")
    kept = [header for header in headers if secret not in header[1]]
    if upstream_key is not None:
        kept.append((b"authorization", b"Bearer " + upstream_key.encode("ascii")))
    return kept


def is_sendable(key: str) -> bool:
    """True for a key that can go into an Authorization header."""
    return len(key) <= MAX_CHARS and key.isascii() and _TOKEN.fullmatch(key.encode("ascii")) is not None


def _bearer(value: bytes) -> bytes:
    scheme, _, token = value.strip(b" \t").partition(b" ")
    if scheme.lower() != _SCHEME:
        raise Unauthorized(f"The Authorization is no Bearer token. {_NEEDED}")
    return token.strip(b" \t")


# ---------------------------------------------------------------- modes
USER_RIGHTS = frozenset(("chat", "memory"))
"""What a fixed user may do: all of their own, nothing of the tenant's."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who calls, and the headers that what follows, and the upstream, may see."""

    caller: Caller
    headers: list[Header]


class Mode(Protocol):
    """One way of finding out who calls."""

    @property
    def ambient(self) -> bool:
        """True if a request needs no credential of its own: then whatever a browser sends is believed, and
        the pages that make it do so have to be told apart (browsers.py)."""
        ...

    @property
    def anyone(self) -> Caller | None:
        """Who calls, if that is the same for all requests: then nobody has to be asked."""
        ...

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Return who calls. Raises Unauthorized, or IdentityUnavailable where nobody can say."""
        ...


@dataclass(frozen=True, slots=True)
class ByTrust:
    """Mode `open`."""

    ambient: bool = True
    anyone: Caller | None = OPEN

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Believe."""
        return Admitted(OPEN, scope["headers"])


@dataclass(frozen=True, slots=True)
class ByKey:
    """Mode `keys`."""

    keys: KeyRing
    ambient: bool = False
    anyone: Caller | None = None

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Find the key, and put the upstream key that it stands for in its place."""
        headers: list[Header] = scope["headers"]
        credential = presented(headers)
        keep_out_of_target(credential, scope)
        try:
            found = await self.keys.find(credential) if is_key(credential) else None
        except StoreError as error:
            raise IdentityUnavailable from error
        if found is None:
            raise Unauthorized("There is no such API key, or it has been revoked.")
        return Admitted(_caller(found), replaced(headers, credential, found.upstream_key))


def _caller(found: Found) -> Caller:
    key = found.key
    rights = key.rights if key.user is None else key.rights & USER_RIGHTS
    return Caller(key.tenant, user=key.user, rights=rights, label=f"key:{key.id}")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ByHeader:
    """Mode `header`. Whoever is not a trusted peer is refused, whatever the request says: only the peer of
    the socket counts, never X-Forwarded-For, which anybody can write. The headers do not pass on."""

    user_header: bytes
    tenant_header: bytes | None
    trusted: tuple[Network, ...]
    ambient: bool = True
    anyone: Caller | None = None

    @classmethod
    def of(cls, user_header: str, tenant_header: str | None, trusted_peers: Sequence[str]) -> "ByHeader":
        """Return the mode for these settings. Raises ConfigError."""
        names = [_header_name(name) for name in (user_header, tenant_header) if name is not None]
        try:
            trusted = tuple(ipaddress.ip_network(peer) for peer in trusted_peers)
        except ValueError as error:
            raise ConfigError(f"identity.trusted_peers: {error}") from error
        if not trusted:
            raise ConfigError("identity.trusted_peers must name the proxy in front: mode header has no other")
        return cls(names[0], names[1] if tenant_header is not None else None, trusted)

    async def admit(self, scope: ASGIScope) -> Admitted:
        """Believe the header, if its sender may write it."""
        if not self._is_trusted(scope.get("client")):
            raise Unauthorized("This address may not say who is calling: it is not in trusted_peers.")
        headers: list[Header] = scope["headers"]
        user = _the_one(headers, self.user_header)
        tenant = OPEN_TENANT if self.tenant_header is None else _the_one(headers, self.tenant_header)
        kept = [h for h in headers if h[0] not in (self.user_header, self.tenant_header)]
        return Admitted(Caller(tenant, user=user, rights=USER_RIGHTS, label="header"), kept)

    def _is_trusted(self, client: Sequence[object] | None) -> bool:
        """True for the address of a trusted peer; a Unix socket has none."""
        try:
            peer = ipaddress.ip_address(str(client[0])) if client else None
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped  # a socket that listens on :: shows IPv4 peers so
        return peer is not None and any(peer in network for network in self.trusted)


def _header_name(name: str) -> bytes:
    lowered = name.lower()
    if not lowered.isascii() or not lowered.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"identity: {name!r} is no header's name")
    return lowered.encode("ascii")


def _the_one(headers: Sequence[Header], wanted: bytes) -> str:
    """Return the header's value, which must be there once: two may be of two authors."""
    values = [value.strip(b" \t") for name, value in headers if name == wanted]
    try:
        # Strictly UTF-8: read as Latin-1 too, two spellings would be one user.
        value = values[0].decode() if len(values) == 1 else ""
    except UnicodeDecodeError:
        value = ""
    if not is_usable_id(value) or is_placeholder(value):
        raise Unauthorized(f"The header {wanted.decode()} must name the user or tenant, once.")
    return value


# ---------------------------------------------------------------- middleware
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
        self, scope: ASGIScope, receive: Receive, send: Send, app: ASGIApp, area: Area, visit: Visit
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
