"""Route the requests beside `POST /v1/responses`: to the upstream, or to our own endpoints where we keep
the objects.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from proxy.domain.errors import InvalidRequest, NotFound
from proxy.domain.ports import Clock
from proxy.http.asgi import OFF_LOOP, ASGIApp, ASGIScope, Header, Receive, Send, body_first, read_body
from proxy.http.auth.identity import Caller, admitted, caller_of
from proxy.http.responses.capability_probe import REFUSAL_BYTES, EndpointProbe, ResponsesMode, continues_ours
from proxy.http.responses.native_ownership import (
    CONVERSATION,
    RESPONSE,
    IdWatcher,
    NativeOwnership,
    absent,
    in_plain,
    is_plain,
    named_in,
    tells_apart,
)
from proxy.http.responses.owners import credential_of, is_ours
from proxy.http.turns import parsed
from proxy.upstream.client import Upstream
from proxy.upstream.headers import request_headers
from proxy.upstream.relay import Downstream, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits
from proxy.wire.extensions import take_extensions

_OURS = b"memory_c"  # memory_config and memory_context begin so


@dataclass(frozen=True, slots=True)
class ResponsesRouter:
    """Routes of objects that have ids. An id tells who made the object; without one, who makes such objects
    is found out as for responses, and apart from them: by asking the upstream."""

    speech: ResponsesMode
    hearing: EndpointProbe
    making: EndpointProbe  # the endpoint that creates such objects
    operating: EndpointProbe  # `/compact` and `/input_tokens`
    ours: ASGIApp
    compact: ASGIApp  # what is ours of `/compact` and `/input_tokens`
    passthrough: ASGIApp
    upstream: Upstream
    max_body_bytes: int
    clock: Clock
    makers: NativeOwnership | None = None  # who made what the upstream keeps; None where nobody has to know

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        id_ = scope["path"].split("/")[3:4]
        native = self.speech is ResponsesMode.NATIVE
        is_kept_here = is_ours(id_[0]) if id_ else self._makes_none(scope)
        if is_operation(scope):
            await self._operate(scope, receive, send)
        elif not native and (self.hearing.known_absent() or is_kept_here):
            await self.ours(scope, receive, send)
        elif self.makers is not None and tells_apart(admitted(scope)):
            await self._guarded(self.makers, scope, receive, send)
        elif id_:
            await self.passthrough(scope, receive, send)
        else:
            await self._ask(scope, receive, send, self.making)

    def _makes_none(self, scope: ASGIScope) -> bool:
        return scope["method"] == "POST" and not self.making.speaks(self.clock())

    async def _operate(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Compact or count a conversation: the upstream does, else we do. Neither has memory."""
        ours = (
            self.speech is ResponsesMode.TRANSLATE
            or self.hearing.known_absent()
            or self.operating.known_absent()
        )
        body = await read_body(receive, self.max_body_bytes)
        if body is None:
            return
        named = await _parsed(scope, body) or {}
        if ours or (self.speech is not ResponsesMode.NATIVE and continues_ours(named)):
            await self.compact(scope, body_first(body, receive), send)
            return
        makers, caller = self.makers, admitted(scope)
        if makers is not None and tells_apart(caller):
            if body.strip() and not named:
                raise _unreadable()
            await makers.require_all(caller, named)
            # As parsed here: the upstream might take the other one of a repeated key.
            body = await OFF_LOOP.run(len(body), json_body.dump, named)
            await self._watched(makers, scope, body_first(body, receive), send, named, self.operating)
            return
        await self._ask(scope, body_first(body, receive), send, self.operating)

    async def _guarded(self, makers: NativeOwnership, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Let the caller reach what the upstream keeps for it, and nothing that another has made."""
        caller, parts = admitted(scope), scope["path"].split("/")[3:]
        named: Body = {}
        await _require_path(makers, caller, scope)
        if _has_body(scope):
            body = await read_body(receive, self.max_body_bytes)
            if body is None:
                return
            if body.strip():
                if (found := await _parsed(scope, body)) is None:
                    raise _unreadable()
                named = found
                await makers.require_all(caller, named)
                body = await OFF_LOOP.run(len(body), json_body.dump, named)
                scope = {**scope, "headers": _with_length(scope["headers"], len(body))}
            receive = body_first(body, receive)
        await self._watched(makers, scope, receive, send, named, None if parts else self.making)

    async def _watched(
        self,
        makers: NativeOwnership,
        scope: ASGIScope,
        receive: Receive,
        send: Send,
        named: Body,
        hearing: EndpointProbe | None,
    ) -> None:
        """Let the upstream answer, and note what it has made for the caller."""
        caller, credential = admitted(scope), credential_of(scope["headers"])
        is_response = scope["path"].startswith("/v1/responses/")
        makes = scope["method"] == "POST"
        sighting = IdWatcher(
            send,
            RESPONSE if is_response else CONVERSATION,
            lambda ids: makers.claim(caller, None, _theirs(ids), credential),
            (each.id for each in named_in(named)),
            makes=makes and (is_operation(scope) or not is_response),
            lists=makes,
        )
        plain = {**scope, "headers": in_plain(scope["headers"])}
        if hearing is None:
            await self.passthrough(plain, receive, sighting)
        else:
            await self._ask(plain, receive, sighting, hearing)
        await makers.note(caller, None, _theirs(sighting.ids), credential)

    async def _ask(self, scope: ASGIScope, receive: Receive, send: Send, hearing: EndpointProbe) -> None:
        """Let the upstream make the object; one that does not know how leaves it to us."""
        headers: list[Header] = scope["headers"]
        async with Downstream(receive) as downstream:
            body = await downstream.read(self.max_body_bytes)
            ours_out = await OFF_LOOP.run(len(body), _for_upstream, scope, body)
            opened = await self.upstream.open(
                scope["method"], raw_target(scope), request_headers(headers), ours_out
            )
            with opened:
                # A 404 on the list endpoint does not imply that creation is unsupported.
                makes = scope["method"] == "POST"
                refusal = await opened.peek(REFUSAL_BYTES) if makes and opened.status >= 400 else b""
                if not makes or not hearing.heard(opened.status, refusal, self.clock()):
                    await relay(opened, downstream, send)
                    return
            await (self.compact if is_operation(scope) else self.ours)(scope, body_first(body, receive), send)


async def _parsed(scope: ASGIScope, body: bytes) -> Body | None:
    """Return the JSON object that the body is, None if it is none. Raises InvalidRequest."""
    if not body.strip():
        return None
    return await OFF_LOOP.run(len(body), parsed, scope["headers"], body, BodyLimits(), "input")


def _for_upstream(scope: ASGIScope, body: bytes) -> bytes:
    """Return the body without our own fields. Raises Forbidden where they name another user than the
    credential's, InvalidRequest where they are malformed."""
    if _OURS not in body:
        return body
    try:
        found = parsed(scope["headers"], body, BodyLimits(), "items")
    except InvalidRequest:
        found = None  # the handler reports it
    if found is None:
        return body
    before = len(found)
    caller_of(scope).narrow(take_extensions(found).user_id, "memory_context.user_id")
    return body if len(found) == before else json_body.dump(found)


def _absent(path: str, id_: str) -> NotFound:
    is_response = path.startswith("/v1/responses/")
    what, param = ("Response", "response_id") if is_response else ("Conversation", "conversation_id")
    return absent(what, id_, param)


_OPERATIONS = frozenset(("/v1/responses/compact", "/v1/responses/input_tokens"))


def is_operation(scope: ASGIScope) -> bool:
    """True for a request that compacts or counts, and names what it works on in its body."""
    return scope["method"] == "POST" and scope["path"] in _OPERATIONS


async def _require_path(makers: NativeOwnership, caller: Caller, scope: ASGIScope) -> None:
    """Raise NotFound for a path or a cursor that names another's object, or that servers read differently."""
    parts = scope["path"].split("/")[3:]
    refusal = _absent(scope["path"], parts[0] if parts else "")
    if not all(is_plain(part) for part in parts):
        raise refusal
    if parts:
        await makers.require(caller, parts[0], refusal)
    if len(parts) > 2:  # /v1/conversations/{id}/items/{item_id}
        await makers.require(caller, parts[2], absent("Item", parts[2], "item_id"))
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
    for name, value in query:
        if name in ("after", "before") and value:
            await makers.require(caller, value, absent("Item", value, name))


def _has_body(scope: ASGIScope) -> bool:
    names = {name for name, value in scope["headers"] if value.strip() not in (b"", b"0")}
    return not names.isdisjoint((b"content-length", b"transfer-encoding"))


def _theirs(ids: Iterable[str]) -> list[str]:
    return [id_ for id_ in ids if not is_ours(id_)]


def _with_length(headers: Iterable[Header], length: int) -> list[Header]:
    kept = [header for header in headers if header[0] not in (b"content-length", b"transfer-encoding")]
    return [*kept, (b"content-length", str(length).encode())]


def _unreadable() -> InvalidRequest:
    return InvalidRequest("Send plain JSON: what the request works on must be known here.")
