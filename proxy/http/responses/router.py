"""Routes requests about responses and conversations to the upstream or to our own endpoints.

An id says who made the object. Without one the upstream is asked, with a real request, repeated now and then.
If it turns out not to know the route, the same request is sent again in a translation (`AutoForwarding`, for
`POST /v1/responses`) or answered here (`ResponsesRouter`, for all else), and later ones from the start, until
it is time to ask again. Each process finds out for itself.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from urllib.parse import parse_qsl

from proxy.domain.errors import InvalidRequest
from proxy.domain.ports import Clock
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, body_first, read_body
from proxy.http.auth.identity import Caller, admitted, caller_of
from proxy.http.forwarding import Draft, Forwarding, Relayed, first_draft
from proxy.http.responses.ownership import (
    CONVERSATION,
    RESPONSE,
    IdWatcher,
    Maker,
    NativeOwnership,
    absent,
    in_plain,
    is_ours,
    is_plain,
    maker_of,
    tells_apart,
)
from proxy.http.responses.translated import TranslatedForwarding
from proxy.http.turns import OFF_LOOP, ParsedRequest, parsed
from proxy.upstream.client import Upstream
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import Form, Learning, RequestTraits
from proxy.upstream.relay import CLIENT_CONNECTION, Downstream, Ending, raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.body import Body, BodyLimits, loads
from proxy.wire.dialect import Answer
from proxy.wire.extensions import take_extensions
from proxy.wire.history import HistoryFormat
from proxy.wire.http import request_headers
from proxy.wire.translation.items import referenced_ids, response_of

REPROBE_S = 600.0  # how long "no" is believed: upstreams get upgraded


class ResponsesMode(StrEnum):
    """The setting `upstream.responses`."""

    AUTO = "auto"
    NATIVE = "native"
    TRANSLATE = "translate"


class EndpointProbe:
    """Whether one endpoint of the upstream exists, by its answers."""

    def __init__(self, mode: ResponsesMode, reprobe_s: float = REPROBE_S) -> None:
        self._mode, self._reprobe_s = mode, reprobe_s
        self._absent_since: float | None = None

    def speaks(self, now: float) -> bool:
        """True if a request is to be sent as it is. While one asks again, the others stay translated."""
        if self._mode is not ResponsesMode.AUTO:  # nothing to find out
            return self._mode is ResponsesMode.NATIVE
        if self._absent_since is None:
            return True
        if 0 <= now - self._absent_since < self._reprobe_s:  # below: the clock was set back
            return False
        self._absent_since = now
        return True

    def known_absent(self) -> bool:
        """True if the endpoint was not there when last asked for."""
        return self._mode is ResponsesMode.TRANSLATE or self._absent_since is not None

    def heard(self, status: int, body: bytes, now: float) -> bool:
        """Note an answer of the endpoint; True if it says that there is no such endpoint. `body` matters
        for 404 only."""
        if self._mode is not ResponsesMode.AUTO:
            return False
        absent = is_absence(status, body)
        if absent:
            self._absent_since = now
        elif status < 500:  # a failing gateway says nothing about what is behind it
            self._absent_since = None
        return absent


# Servers name what they lack in the error's code, in `param`, or only in its text.
_THING_CODE = re.compile(r"(model|response|conversation|item|file|prompt|deployment)\w*not_?found", re.I)
_LONGEST_CODE = 200  # characters; a longer text is not a code
_THING_TEXT = re.compile(r"\bmodel\b|\bdeployment\b|\bwith id\b", re.I)


def is_absence(status: int, body: bytes) -> bool:
    """True if an answer means that the upstream lacks the endpoint, not something that the request names (a
    model, a stored response)."""
    if status != 404:
        return status in (405, 501)
    try:
        answer = loads(body)
    except (ValueError, RecursionError, InvalidRequest):
        return True
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, str):
        return not _THING_TEXT.search(error)
    if not isinstance(error, dict):
        return True
    code, param, text = (str(error.get(name) or "") for name in ("code", "param", "message"))
    return not (param or _THING_CODE.search(code[:_LONGEST_CODE]) or _THING_TEXT.search(text))


REFUSAL_BYTES = 64 * 1024  # a longer body is not a plain "not found"
_MAY_BE_ABSENT = (404, 405, 501)


class AutoForwarding:
    """Relays if the upstream speaks the Responses API, else translates. See Forwarding for when the methods
    are called."""

    def __init__(
        self,
        relayed: Relayed,
        translated: TranslatedForwarding,
        probe: EndpointProbe,
        clock: Clock,
        learning: Learning,
        ownership: NativeOwnership,
    ) -> None:
        self._relayed, self._translated = relayed, translated
        self._probe, self._clock, self._learning, self._ownership = probe, clock, learning, ownership
        self._way: Forwarding = relayed
        self._maker: Maker | None = None
        self._watcher: IdWatcher | None = None

    @property
    def route(self) -> str:
        return self._way.route

    @property
    def draft(self) -> Draft | None:
        return self._way.draft

    @property
    def answered(self) -> bool:
        return self._way.answered

    @property
    def promised(self) -> bool:
        return self._way.promised

    async def adopt(self, request: ParsedRequest) -> ParsedRequest:
        """Choose the way. What continues something that is stored here has no other."""
        if continues_ours(request.body) or not self._probe.speaks(self._clock()):
            self._way = self._translated
        elif tells_apart(request.caller):
            if not request.is_json:
                raise InvalidRequest("Send plain JSON: what the request continues must be known here.")
            await self._ownership.require_all(request.caller, request.body)
            # As parsed here: the upstream might take the other one of a repeated key.
            request = replace(request, payload=json_body.dump(request.body))
        return await self._way.adopt(request)

    def conversation(self, form: Form) -> tuple[Body, HistoryFormat]:
        return self._way.conversation(form)

    def changeable(self, traits: RequestTraits) -> RequestTraits:
        return self._way.changeable(traits)

    def write(self, body: Body, form: Form) -> bytes:
        return self._way.write(body, form)

    async def acknowledge(self, draft: Draft) -> None:
        await self._way.acknowledge(draft)

    async def open(self, draft: Draft) -> tuple[Draft, UpstreamResponse]:
        """Ask the upstream; if it has no such route, ask it again in a translation."""
        draft, opened = await self._way.open(draft)
        if self._way is self._translated:
            return draft, opened
        try:
            body = await opened.peek(REFUSAL_BYTES) if opened.status in _MAY_BE_ABSENT else b""
        except BaseException:
            opened.close()
            raise
        if not self._probe.heard(opened.status, body, self._clock()):
            return draft, opened
        opened.close()
        self._way = self._translated
        await self._way.adopt(draft.request)
        # This once without a shorter history: the next request is translated from the start.
        translated = first_draft(replace(draft.recalled, shortened=None), self._way, self._learning)
        draft = replace(translated, forwarded_at=draft.forwarded_at)
        await self._way.acknowledge(draft)
        return await self._way.open(draft)

    async def answer(
        self, draft: Draft, opened: UpstreamResponse, send: Send, headers: list[Header]
    ) -> Ending:
        request = draft.request
        if self._way is self._relayed and tells_apart(request.caller):
            self._maker = maker_of(request.caller, request.user, request.client.headers)
            claim = partial(self._ownership.claim, self._maker)
            send = self._watcher = IdWatcher(send, RESPONSE, claim, request.body)
        return await self._way.answer(draft, opened, send, headers)

    async def conclude(self, *, refused: bool) -> Answer:
        """Conclude as the chosen way does, and store the owner of the response."""
        answer = await self._way.conclude(refused=refused)
        if self._watcher is not None and self._maker is not None:
            await self._ownership.note(self._maker, self._watcher.ids)
        return answer


def continues_ours(body: Body) -> bool:
    """True if the request builds on a response, a conversation or an item that no upstream knows."""
    conversation = body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, dict) else conversation
    made_in = (response_of(item_id) for item_id in referenced_ids(body.get("input")))
    return any(map(is_ours, (body.get("previous_response_id"), named, *made_in)))


# ---------------------------------------------------------------- everything but POST /v1/responses
_OPERATIONS = frozenset(("/v1/responses/compact", "/v1/responses/input_tokens"))
_OUR_FIELDS = b"memory_c"  # the beginning of memory_config and memory_context
_FRAMING = {b"content-length", b"transfer-encoding"}


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
        caller, operates, creates = admitted(scope), _is_operation(scope), scope["method"] == "POST"
        if not operates and self._is_stored_here(scope):
            await self.stored(scope, receive, send)
            return
        headers, guards, named = scope["headers"], tells_apart(caller), Body()
        if guards and not operates:
            await self._require_path(caller, scope)
        framed_by = {name for name, value in headers if value.strip() not in (b"", b"0")} & _FRAMING
        if operates or (guards and framed_by):
            body = await read_body(receive, self.max_body_bytes)
            if body is None:
                return  # the client left
            found: Body | None = {}
            if body.strip():
                found = await OFF_LOOP.run(len(body), parsed, headers, body, BodyLimits(), "input")
            named = found or {}
            known_absent = self.responses_probe.known_absent() or self.operations_probe.known_absent()
            ours = known_absent or (self.mode is not ResponsesMode.NATIVE and continues_ours(named))
            if operates and ours:
                await self.compact(scope, body_first(body, receive), send)
                return
            if guards and body.strip():
                if found is None:
                    raise InvalidRequest("Send plain JSON: what the request works on must be known here.")
                await self.ownership.require_all(caller, named)
                # As parsed here: of a repeated key, the upstream might take the other value.
                body = await OFF_LOOP.run(len(body), json_body.dump, named)
                headers = [header for header in headers if header[0] not in _FRAMING]
                headers.append((b"content-length", b"%d" % len(body)))
                scope = {**scope, "headers": headers}
            receive = body_first(body, receive)
        if not guards:
            await self._forward(scope, receive, send)
            return
        is_response, maker = _is_response(scope), maker_of(caller, None, headers)
        watcher = IdWatcher(
            send,
            RESPONSE if is_response else CONVERSATION,
            partial(self.ownership.claim, maker),
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
        async with Downstream(receive, scope.get(CLIENT_CONNECTION)) as downstream:
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
