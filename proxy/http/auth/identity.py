"""Who is calling, and what that lets them access.

A credential decides the tenant, and often the user; what a request names can only narrow that.
`AuthMiddleware` identifies the caller once and puts it into the ASGI scope, where the rest of the proxy reads
it (`caller_of`); nothing else decides which memories are accessed.

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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Protocol
from urllib.parse import parse_qsl, unquote

from proxy import telemetry
from proxy.domain.core import Reason, Scope
from proxy.domain.errors import (
    ClientError,
    ConfigError,
    Forbidden,
    IdentityUnavailable,
    InvalidRequest,
    StoreError,
    Unauthorized,
)
from proxy.domain.ports import RIGHTS
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send
from proxy.http.auth.browsers import Browsers, Visit, Visitor, foreign_page, reason_of
from proxy.http.auth.keys import KeyRing, is_key
from proxy.wire.extensions import (
    NOTHING_ASKED,
    checked_id,
    is_placeholder,
    is_usable_id,
    take_header_extensions,
)
from proxy.wire.http import CREDENTIALS

OPEN_TENANT = "default"
USER_HEADER = "X-Memory-User-Id"
PROJECT_HEADER = "X-Memory-Project-Id"
USER_RIGHTS = frozenset(("chat", "memory"))
"""The rights of a fixed user: all of their own, nothing of the tenant's."""

MAX_CREDENTIAL_CHARS = 16_384  # a token with many claims has some 4,000
_CALLER = "memory_proxy.caller"
_USER = USER_HEADER.lower().encode()
_TOKEN = re.compile(rb"[\x21-\x7e]+")  # printable ASCII without a blank: two of them joined are not one
_NEEDED = "Send your key as `Authorization: Bearer …`: it is what an OpenAI client calls `api_key`."


# ---------------------------------------------------------------- the caller
@dataclass(frozen=True, slots=True)
class Caller:
    """A credential's meaning. `user` is fixed by the credential, or None if the caller may name one."""

    tenant: str
    user: str | None = None
    named: str | None = None  # the user that the request's header names
    project: str | None = None  # the project that the request's header names
    timezone: str | None = None  # that the request's header names
    rights: frozenset[str] = RIGHTS
    label: str = "open"  # the author in receipts: "open", "key:<id>", "jwt", "header"
    foreign: bool = False  # a web page of another origin asks: it gets no memory (browsers.py)
    project_key: Callable[[str], str] = str  # what a project's id is stored as: a digest, if it is a secret

    def stored_project(self, project_id: str | None) -> str | None:
        return None if project_id is None else self.project_key(project_id)

    def require(self, right: str) -> None:
        """Raise Forbidden unless the credential carries the right (ports.RIGHTS)."""
        if right not in self.rights:
            raise Forbidden(f"This credential lacks the right `{right}`.", code="missing_right")

    def narrow(self, user_id: str | None, param: str = "user_id") -> str | None:
        """Return the user to look inside, None for all of the tenant. Raises Forbidden if the credential
        fixes another user than the request names, anywhere. `param`: what the request calls the place of
        `user_id`. Ids are compared exactly."""
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
            message, code = "`user_id` is required.", "missing_required_parameter"
            raise InvalidRequest(message, param="user_id", code=code)
        return Scope(self.tenant, user, self.project_of(project_id))

    def project_of(self, project_id: str | None) -> str | None:
        """Return the project that the request asks for, by `project_id` or by its header. Raises
        InvalidRequest if they differ: neither is a safe guess."""
        project = None if project_id is None else self.project_key(checked_id(project_id, "project_id"))
        if project is None or self.project in (None, project):
            return project or self.project
        message = f"`project_id` and {PROJECT_HEADER} name two projects."
        raise InvalidRequest(message, param=PROJECT_HEADER, code="invalid_value")

    def sees(self, project: str | None) -> bool:
        """True unless the request's header names another project. What has no project is visible in each."""
        return self.project is None or project in (None, self.project)


OPEN = Caller(OPEN_TENANT)
"""The caller in mode `open`: one tenant, and the user that the request names is believed."""


def admit(scope: ASGIScope, caller: Caller) -> None:
    """Put the caller into the scope, where the rest of the proxy reads it."""
    scope[_CALLER] = caller


def admitted(scope: ASGIScope) -> Caller:
    """Return the caller, whomever the request names. Raises KeyError on a route that is not guarded."""
    caller: Caller = scope[_CALLER]
    return caller


def caller_of(scope: ASGIScope, project_key: Callable[[str], str] = str) -> Caller:
    """Return the caller, with the user and the project that the request's headers name.

    `project_key`: see Caller. Raises Forbidden if the credential belongs to another user, InvalidRequest for
    a malformed header, KeyError on a route that is not guarded.
    """
    caller = admitted(scope)
    extensions = take_header_extensions(scope["headers"])
    if extensions is NOTHING_ASKED:
        return _unnamed(caller, project_key)
    if extensions.user_id is not None:
        caller.narrow(extensions.user_id, USER_HEADER)
    return replace(
        caller,
        named=extensions.user_id,
        timezone=extensions.timezone,
        project=None if extensions.project_id is None else project_key(extensions.project_id),
        project_key=project_key,
    )


@lru_cache(maxsize=1024)
def _unnamed(caller: Caller, project_key: Callable[[str], str]) -> Caller:
    return replace(caller, project_key=project_key)


# ---------------------------------------------------------------- credentials
def presented(headers: Iterable[Header]) -> str:
    """Return the one credential of the request: a Bearer token, or the value of `api-key` or `x-api-key`.

    Raises Unauthorized without one, and for two that differ: a request must not have two identities.
    """
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip(b" \t").partition(b" ")
            if scheme.lower() != b"bearer":
                raise Unauthorized(f"The Authorization is not a Bearer token. {_NEEDED}")
            found.add(token.strip(b" \t"))
        elif name in CREDENTIALS:
            found.add(value.strip(b" \t"))
    if not found:
        raise Unauthorized(f"No credential. {_NEEDED}")
    if len(found) > 1:
        raise Unauthorized("The request carries two different credentials.")
    credential = found.pop()
    if len(credential) > MAX_CREDENTIAL_CHARS or not _TOKEN.fullmatch(credential):
        raise Unauthorized(f"The credential is malformed. {_NEEDED}")
    return credential.decode("ascii")


def keep_out_of_target(credential: str, scope: ASGIScope) -> None:
    """Raise Unauthorized if the credential is in the request's path or query as well: from there it would
    reach the upstream and logs on the way."""
    target = scope["path"] + unquote(scope.get("query_string", b"").decode("latin-1"))
    if credential in target:
        raise Unauthorized("The credential is in the URL. Send it as a header only, and replace it.")


def replaced(headers: Sequence[Header], ours: str, upstream_key: str | None) -> list[Header]:
    """Return the headers as the upstream may see them: our credential in none of them, and the upstream key
    in its place, if there is one."""
    secret = ours.encode("ascii")
    others = [header for header in headers if secret not in header[1]]
    if upstream_key is not None:
        others.append((b"authorization", b"Bearer " + upstream_key.encode("ascii")))
    return others


def is_sendable(key: str) -> bool:
    """True for a key that can go into an Authorization header."""
    return len(key) <= MAX_CREDENTIAL_CHARS and key.isascii() and bool(_TOKEN.fullmatch(key.encode("ascii")))


# ---------------------------------------------------------------- modes
@dataclass(frozen=True, slots=True)
class Identified:
    """The caller, and the headers that the rest of the proxy and the upstream may see."""

    caller: Caller
    headers: list[Header]


class Authenticator(Protocol):
    """Identifies the caller, in one mode."""

    @property
    def ambient(self) -> bool:
        """True if a request needs no credential of its own: any page could make a browser send it."""
        ...

    @property
    def only_caller(self) -> Caller | None:
        """The caller, if it is the same for all requests."""
        ...

    async def identify(self, scope: ASGIScope) -> Identified:
        """Return who calls. Raises Unauthorized, or IdentityUnavailable if it cannot be found out."""
        ...


@dataclass(frozen=True, slots=True)
class OpenAuth:
    ambient: bool = True
    only_caller: Caller | None = OPEN

    async def identify(self, scope: ASGIScope) -> Identified:
        return Identified(OPEN, scope["headers"])


@dataclass(frozen=True, slots=True)
class KeyAuth:
    keys: KeyRing
    ambient: bool = False
    only_caller: Caller | None = None

    async def identify(self, scope: ASGIScope) -> Identified:
        """Find the key, and replace it by the upstream key that it stands for."""
        headers: list[Header] = scope["headers"]
        credential = presented(headers)
        keep_out_of_target(credential, scope)
        try:
            found = await self.keys.find(credential) if is_key(credential) else None
        except StoreError as error:
            raise IdentityUnavailable from error
        if found is None:
            raise Unauthorized("There is no such API key, or it has been revoked.")
        key = found.key
        rights = key.rights if key.user is None else key.rights & USER_RIGHTS
        caller = Caller(key.tenant, user=key.user, rights=rights, label=f"key:{key.id}")
        return Identified(caller, replaced(headers, credential, found.upstream_key))


IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class HeaderAuth:
    """Mode `header`. Only the peer of the socket counts as a trusted proxy, never X-Forwarded-For, which any
    client can write. The identity headers are removed."""

    user_header: bytes
    tenant_header: bytes | None
    trusted: tuple[IPNetwork, ...]
    ambient: bool = True
    only_caller: Caller | None = None

    @classmethod
    def of(cls, user_header: str, tenant_header: str | None, trusted_peers: Sequence[str]) -> "HeaderAuth":
        try:
            trusted = tuple(ipaddress.ip_network(peer) for peer in trusted_peers)
        except ValueError as error:
            raise ConfigError(f"identity.trusted_peers: {error}") from error
        if not trusted:
            raise ConfigError("identity.trusted_peers must name the proxy in front: mode header has no other")
        tenant = None if tenant_header is None else _header_name(tenant_header)
        return cls(_header_name(user_header), tenant, trusted)

    async def identify(self, scope: ASGIScope) -> Identified:
        """Believe the header, if its sender may write it. A Unix socket has no address."""
        client, peer = scope.get("client"), None
        with suppress(ValueError):
            peer = ipaddress.ip_address(str(client[0])) if client else None
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped  # how a socket that listens on :: shows IPv4 peers
        if peer is None or not any(peer in network for network in self.trusted):
            raise Unauthorized("This address may not say who is calling: it is not in trusted_peers.")
        headers: list[Header] = scope["headers"]
        user = _only_value(headers, self.user_header)
        tenant = OPEN_TENANT if self.tenant_header is None else _only_value(headers, self.tenant_header)
        others = [h for h in headers if h[0] not in (self.user_header, self.tenant_header)]
        return Identified(Caller(tenant, user=user, rights=USER_RIGHTS, label="header"), others)


def _header_name(name: str) -> bytes:
    lowered = name.lower()
    if not lowered.isascii() or not lowered.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"identity: {name!r} is not a header name")
    return lowered.encode("ascii")


def _only_value(headers: Sequence[Header], wanted: bytes) -> str:
    """Return the header's value, which must be there once: two may have two authors."""
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
class Area(Enum):
    """What a route gives access to."""

    PUBLIC = auto()  # no one's data
    PAGE = auto()  # /ui: the page itself; its data come from the memory API
    MEMORY = auto()  # the memory API
    MODEL = auto()  # the model, with memory
    STORED = auto()  # stored responses and conversations
    PASSTHROUGH = auto()  # the upstream's other routes


@dataclass(frozen=True, slots=True)
class Auth:
    """How requests are authenticated, in one mode."""

    authenticator: Authenticator = field(default_factory=OpenAuth)
    browsers: Browsers = field(default_factory=Browsers)
    refused: Callable[[Reason], None] = lambda reason: None  # counts pages and hosts that are not trusted

    def guard(self, app: ASGIApp, area: Area) -> "AuthMiddleware":
        spends = self.browsers.server_key or self.browsers.allowed_origins
        free = self.authenticator.only_caller if area is Area.PASSTHROUGH and not spends else None
        return AuthMiddleware(app, area, self, free)

    def note_refused(self, visit: Visit, reason: Reason) -> None:
        """Log and count that a page or host was not trusted."""
        self.browsers.note(visit, reason)
        self.refused(reason)


@dataclass(frozen=True, slots=True)
class AuthMiddleware:
    """Identifies the caller, or refuses the request before anything is forwarded. The headers of the scope
    are replaced by those that the app, and the upstream, may see."""

    app: ASGIApp
    area: Area
    auth: Auth
    free_for: Caller | None = None  # of all requests: a page gains nothing here that it cannot do by itself

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if self.free_for is not None and "tunnel" not in scope:
            admit(scope, self.free_for)
            await self.app(scope, receive, send)
            return
        visit = self.auth.browsers.visit(scope)
        try:
            if visit.is_preflight and visit.visitor is not Visitor.OURS:
                if self._allows_preflight(scope, visit):
                    await visit.answer_preflight(scope, send)
                    return
            elif self.area is not Area.PUBLIC:
                await self._admit(scope, visit)
        except ClientError as error:
            telemetry.log.debug("identity.refused", status=error.status, code=error.code)
            if reason := reason_of(error):
                self.auth.note_refused(visit, reason)
                error.headers = ((b"x-memory-status", b"off"), (b"x-memory-reason", reason.value.encode()))
            raise
        await self.app(scope, receive, send)

    def _allows_preflight(self, scope: ASGIScope, visit: Visit) -> bool:
        """True if the proxy answers the preflight with yes; False if the upstream answers it. Raises
        Forbidden."""
        if visit.visitor is Visitor.ALLOWED:
            return True
        if self.area is Area.PUBLIC:
            return False
        browsers, caller = self.auth.browsers, self.auth.authenticator.only_caller
        if browsers.allowed_origins or self.area is not Area.PASSTHROUGH or caller is None:
            raise foreign_page()
        if not browsers.server_key:  # a preflight has no credential: the upstream would be sent the key
            admit(scope, caller)
            return False
        if visit.wants_own_credential(scope):
            return True
        raise foreign_page()

    async def _admit(self, scope: ASGIScope, visit: Visit) -> None:
        """Put the caller into the scope. Raises ClientError."""
        area, authenticator = self.area, self.auth.authenticator
        foreign = visit.visitor is Visitor.FOREIGN and authenticator.ambient
        if foreign and (area is Area.MEMORY or "tunnel" in scope):  # a WebSocket has no preflight
            raise foreign_page()
        if area in (Area.MEMORY, Area.PAGE):
            visit.require_host()
        if area is Area.PAGE:
            return
        if authenticator.ambient and area is not Area.MEMORY:
            visit.require_key_may_be_spent()
        if area is Area.PASSTHROUGH and authenticator.only_caller is not None:
            admit(scope, authenticator.only_caller)
            return
        if area is Area.STORED:  # a page of the same origin by DNS rebinding may GET without Origin
            foreign = foreign or not visit.knows_host()
        identified = await authenticator.identify(scope)
        caller = identified.caller
        if foreign:
            is_host = visit.visitor is not Visitor.FOREIGN
            self.auth.note_refused(visit, Reason.FOREIGN_HOST if is_host else Reason.FOREIGN_ORIGIN)
            caller = replace(caller, foreign=True)
        if area is not Area.MEMORY:  # the memory API has rights of its own
            caller.require("chat")
        scope["headers"] = identified.headers
        admit(scope, caller)
        if caller.user is None:
            return
        # Header and query may name no other user. What the body names is checked by the endpoint.
        named = [header for header in identified.headers if header[0] == _USER]
        caller.narrow(take_header_extensions(named).user_id, USER_HEADER)
        for name, value in parse_qsl(scope.get("query_string", b"").decode("latin-1")):
            if name == "user_id":
                caller.narrow(checked_id(value, "user_id"))
