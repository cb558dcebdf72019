"""Route the requests beside `POST /v1/responses`: to the upstream, or to our own endpoints where we keep
the objects.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from proxy.edge.identity.caller import admitted, caller_of
from proxy.edge.reply import ASGIScope, Header, Receive, Send, send_error
from proxy.edge.responses.auto import Hearing, Speech
from proxy.edge.responses.makers import CONVERSATION, Makers, Sighting, absent, in_plain, tells_apart
from proxy.edge.responses.owners import credential_of, is_ours
from proxy.edge.responses.probing import REFUSAL_BYTES
from proxy.edge.routes import App
from proxy.edge.turns import is_readable
from proxy.errors import ClientError, InvalidRequest, NotFound, StoreError, TooLarge, UpstreamError
from proxy.ports import Clock
from proxy.upstream import troubles
from proxy.upstream.client import Upstream
from proxy.upstream.downstream import Downstream
from proxy.upstream.headers import request_headers
from proxy.upstream.relay import raw_target, relay
from proxy.wire import body as json_body
from proxy.wire.extensions import take_extensions

_OURS = b"memory_c"  # memory_config and memory_context begin so


@dataclass(frozen=True, slots=True)
class Door:
    """Routes of objects that have ids. An id tells who made the object; without one, who makes such objects
    is found out as for responses, and apart from them: by asking the upstream."""

    speech: Speech
    hearing: Hearing
    making: Hearing  # of the endpoint that makes such objects: with responses there may be no conversations
    ours: App
    passthrough: App
    upstream: Upstream
    max_body_bytes: int
    clock: Clock
    makers: Makers | None = None  # who made what the upstream keeps; None where nobody has to know

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        id_ = scope["path"].split("/")[3:4]
        native = self.speech is Speech.NATIVE
        is_kept_here = is_ours(id_[0]) if id_ else self._makes_none(scope)
        if not native and (self.hearing.known_absent() or is_kept_here):
            await self.ours(scope, receive, send)
        elif self.makers is not None and tells_apart(admitted(scope)):
            await self._guarded(self.makers, scope, receive, send)
        elif id_:
            await self.passthrough(scope, receive, send)
        else:
            await self._ask(scope, receive, send)

    def _makes_none(self, scope: ASGIScope) -> bool:
        return scope["method"] == "POST" and not self.making.speaks(self.clock())

    async def _guarded(self, makers: Makers, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Let the caller reach what the upstream keeps for it, and nothing that another has made."""
        caller, id_ = admitted(scope), scope["path"].split("/")[3:4]
        try:
            if id_:
                await makers.require(caller, id_[0], _absent(scope["path"], id_[0]))
            if scope["method"] == "POST" and id_ and len(scope["path"].split("/")) == 4:
                # An update, or an operation that names what it works on in its body (`/compact`).
                receive = await self._with_own(makers, scope, receive)
        except (ClientError, StoreError) as error:
            await send_error(send, error)
            return
        if id_:
            await self.passthrough(scope, receive, send)
            return
        sighting = Sighting(send, CONVERSATION)
        await self._ask({**scope, "headers": in_plain(scope["headers"])}, receive, sighting)
        if sighting.id and scope["method"] == "POST" and not is_ours(sighting.id):
            await makers.note(caller, None, sighting.id, credential_of(scope["headers"]))

    async def _with_own(self, makers: Makers, scope: ASGIScope, receive: Receive) -> Receive:
        """Return the `receive` of a body that continues nothing of another's. Raises ClientError."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return receive
            body += message.get("body", b"")
            if len(body) > self.max_body_bytes:
                raise TooLarge(f"The request body is larger than {self.max_body_bytes} bytes.")
            if not message.get("more_body", False):
                break
        if body.strip() and is_readable(scope["headers"]):
            await makers.require_all(admitted(scope), json_body.parse(bytes(body)))
        elif body.strip():
            raise InvalidRequest("Send plain JSON: what the request works on must be known here.")
        return _first(bytes(body), receive)

    async def _ask(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Let the upstream make the object; one that does not know how leaves it to us."""
        headers: list[Header] = scope["headers"]
        async with Downstream(receive) as downstream:
            try:
                body = await downstream.read(self.max_body_bytes)
                opened = await self.upstream.open(
                    scope["method"], raw_target(scope), request_headers(headers), _for_upstream(scope, body)
                )
                with opened:
                    # That there is no list of them says nothing of how they are made.
                    makes = scope["method"] == "POST"
                    refusal = await opened.peek(REFUSAL_BYTES) if makes and opened.status >= 400 else b""
                    if not makes or not self.making.heard(opened.status, refusal, self.clock()):
                        await relay(opened, downstream, send)
                        return
            except ClientError as error:
                await send_error(send, error)
                return
            except UpstreamError as error:
                troubles.failed(error)
                await send_error(send, error)
                return
            await self.ours(scope, _again(body), send)


def _for_upstream(scope: ASGIScope, body: bytes) -> bytes:
    """Return the body without our own fields. Raises Forbidden where they name another user than the
    credential's, InvalidRequest where they are malformed."""
    if _OURS not in body or not is_readable(scope["headers"]):
        return body
    try:
        parsed = json_body.parse(body)
    except InvalidRequest:
        return body  # whoever makes the object will say so
    before = len(parsed)
    caller_of(scope).narrow(take_extensions(parsed).user_id, "memory_context.user_id")
    return body if len(parsed) == before else json_body.dump(parsed)


def _absent(path: str, id_: str) -> NotFound:
    is_response = path.startswith("/v1/responses/")
    what, param = ("Response", "response_id") if is_response else ("Conversation", "conversation_id")
    return absent(what, id_, param)


def _first(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, which has been read, and then what comes after it."""
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _again(body: bytes) -> Receive:
    """Return a `receive` for a body that has been read."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
