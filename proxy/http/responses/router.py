"""Routes requests about responses and conversations, other than `POST /v1/responses`, to the upstream or to
our own endpoints: an id says who made the object, and without one the upstream is asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from proxy.domain.errors import InvalidRequest
from proxy.domain.ports import Clock
from proxy.http.asgi import OFF_LOOP, ASGIApp, ASGIScope, Header, Receive, Send, body_first, read_body
from proxy.http.auth.identity import Caller, admitted, caller_of
from proxy.http.responses.capability_probe import REFUSAL_BYTES, EndpointProbe, ResponsesMode, continues_ours
from proxy.http.responses.native_ownership import (
    CONVERSATION,
    RESPONSE,
    NativeOwnership,
    in_plain,
    is_plain,
    maker_of,
    tells_apart,
)
from proxy.http.responses.owners import absent, is_ours
from proxy.http.turns import parsed
from proxy.upstream.client import Upstream
from proxy.upstream.headers import request_headers
from proxy.upstream.relay import Downstream, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits
from proxy.wire.extensions import take_extensions

_OPERATIONS = frozenset(("/v1/responses/compact", "/v1/responses/input_tokens"))
_OUR_FIELDS = b"memory_c"  # the beginning of memory_config and memory_context


@dataclass(slots=True)
class ResponsesRouter:
    """An ASGI app. If several of our users share the upstream's key, it lets each of them reach only what was
    made for them."""

    mode: ResponsesMode
    responses_probe: EndpointProbe
    upstream: Upstream
    ownership: NativeOwnership
    stored: ASGIApp  # serves the objects that we store
    compact: ASGIApp  # serves the paths in _OPERATIONS
    passthrough: ASGIApp
    max_body_bytes: int
    clock: Clock
    conversations_probe: EndpointProbe = field(init=False)
    operations_probe: EndpointProbe = field(init=False)

    def __post_init__(self) -> None:
        self.conversations_probe, self.operations_probe = EndpointProbe(self.mode), EndpointProbe(self.mode)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        caller, operates = admitted(scope), _is_operation(scope)
        if not operates and self._is_stored_here(scope):
            await self.stored(scope, receive, send)
            return
        guards = tells_apart(caller)
        if guards and not operates:
            await self._require_path(caller, scope)
        named: Body = {}
        if operates or (guards and _has_body(scope)):
            body = await read_body(receive, self.max_body_bytes)
            if body is None:
                return  # the client left
            found: Body | None = {}
            if body.strip():
                size = len(body)
                found = await OFF_LOOP.run(size, parsed, scope["headers"], body, BodyLimits(), "input")
            named = found or {}
            if operates and self._operates_here(named):
                await self.compact(scope, body_first(body, receive), send)
                return
            if guards and body.strip():
                if found is None:
                    raise InvalidRequest("Send plain JSON: what the request works on must be known here.")
                await self.ownership.require_all(caller, named)
                # As parsed here: of a repeated key, the upstream might take the other value.
                body = await OFF_LOOP.run(len(body), json_body.dump, named)
                scope = {**scope, "headers": _with_length(scope["headers"], len(body))}
            receive = body_first(body, receive)
        if not guards:
            await self._forward(scope, receive, send)
            return
        headers, creates, is_response = scope["headers"], scope["method"] == "POST", _is_response(scope)
        maker = maker_of(caller, None, headers)
        watcher = self.ownership.watcher(
            send,
            RESPONSE if is_response else CONVERSATION,
            maker,
            named,
            makes=creates and (operates or not is_response),
            lists=creates,
        )
        await self._forward({**scope, "headers": in_plain(headers)}, receive, watcher)
        await self.ownership.note(maker, watcher.ids)

    def _is_stored_here(self, scope: ASGIScope) -> bool:
        if self.responses_probe.known_absent():
            return True
        if (id_ := _id_in(scope)) is not None:
            return self.mode is not ResponsesMode.NATIVE and is_ours(id_)
        return scope["method"] == "POST" and not self.conversations_probe.speaks(self.clock())

    def _operates_here(self, body: Body) -> bool:
        if self.responses_probe.known_absent() or self.operations_probe.known_absent():
            return True
        return self.mode is not ResponsesMode.NATIVE and continues_ours(body)

    async def _forward(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if _is_operation(scope):
            await self._ask(scope, receive, send, self.operations_probe, self.compact)
        elif _id_in(scope) is None:
            await self._ask(scope, receive, send, self.conversations_probe, self.stored)
        else:
            await self.passthrough(scope, receive, send)

    async def _ask(
        self, scope: ASGIScope, receive: Receive, send: Send, probe: EndpointProbe, ours: ASGIApp
    ) -> None:
        """Let the upstream answer; if it has no such endpoint, `ours` does."""
        async with Downstream(receive) as downstream:
            body = await downstream.read(self.max_body_bytes)
            payload = await OFF_LOOP.run(len(body), _for_upstream, scope, body)
            headers = request_headers(scope["headers"])
            opened = await self.upstream.open(scope["method"], raw_target(scope), headers, payload)
            with opened:
                # A 404 on the list endpoint does not imply that creation is unsupported.
                creates = scope["method"] == "POST"
                refusal = await opened.peek(REFUSAL_BYTES) if creates and opened.status >= 400 else b""
                if not creates or not probe.heard(opened.status, refusal, self.clock()):
                    await relay(opened, downstream, send)
                    return
            await ours(scope, body_first(body, receive), send)

    # ------------------------------------------------------------ objects of several users
    async def _require_path(self, caller: Caller, scope: ASGIScope) -> None:
        """Raise NotFound for a path or a cursor that names another's object, or that servers read
        differently."""
        parts = scope["path"].split("/")[3:]
        kind = "Response" if _is_response(scope) else "Conversation"
        refusal = absent(kind, parts[0] if parts else "", f"{kind.lower()}_id")
        if not all(map(is_plain, parts)):
            raise refusal
        if parts:
            await self.ownership.require(caller, parts[0], refusal)
        items = [("item_id", parts[2])] if len(parts) > 2 else []  # /v1/conversations/{id}/items/{item_id}
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        items += [(name, value) for name, value in query if name in ("after", "before")]
        for name, item_id in items:
            await self.ownership.require(caller, item_id, absent("Item", item_id, name))


def _is_operation(scope: ASGIScope) -> bool:
    """True for a request that compacts or counts, and names what it works on in its body."""
    return scope["method"] == "POST" and scope["path"] in _OPERATIONS


def _is_response(scope: ASGIScope) -> bool:
    path: str = scope["path"]
    return path.startswith("/v1/responses/")


def _id_in(scope: ASGIScope) -> str | None:
    """Return the id in the path, None without one."""
    return next(iter(scope["path"].split("/")[3:4]), None)


def _for_upstream(scope: ASGIScope, body: bytes) -> bytes:
    """Return the body without our own fields. Raises Forbidden if they name another user than the
    credential's, InvalidRequest if they are malformed."""
    if _OUR_FIELDS not in body:
        return body
    try:
        found = parsed(scope["headers"], body, BodyLimits(), "items")
    except InvalidRequest:
        return body  # the endpoint reports it
    if found is None:
        return body
    fields = len(found)
    caller_of(scope).narrow(take_extensions(found).user_id, "memory_context.user_id")
    return body if len(found) == fields else json_body.dump(found)


def _has_body(scope: ASGIScope) -> bool:
    names = {name for name, value in scope["headers"] if value.strip() not in (b"", b"0")}
    return not names.isdisjoint((b"content-length", b"transfer-encoding"))


def _with_length(headers: Iterable[Header], length: int) -> list[Header]:
    others = [header for header in headers if header[0] not in (b"content-length", b"transfer-encoding")]
    return [*others, (b"content-length", b"%d" % length)]
