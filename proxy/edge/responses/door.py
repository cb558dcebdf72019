"""Whose are the routes beside `POST /v1/responses`: the upstream's, or ours where we keep the objects?"""

from dataclasses import dataclass

from proxy import observe
from proxy.edge.identity.caller import caller_of
from proxy.edge.reply import ASGIScope, Header, Receive, Send, send_error
from proxy.edge.responses.auto import Hearing, Speech
from proxy.edge.responses.owners import is_ours
from proxy.edge.responses.probing import REFUSAL_BYTES
from proxy.edge.routes import App
from proxy.edge.turns import is_readable
from proxy.errors import ClientError, InvalidRequest, UpstreamError
from proxy.ports import Clock
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
    is found out as for responses: by asking the upstream."""

    speech: Speech
    hearing: Hearing
    ours: App
    passthrough: App
    upstream: Upstream
    max_body_bytes: int
    clock: Clock

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        id_ = scope["path"].split("/")[3:4]
        if self.speech is Speech.NATIVE:
            await self.passthrough(scope, receive, send)
        elif self.hearing.known_absent() or (id_ and is_ours(id_[0])):
            await self.ours(scope, receive, send)
        elif id_:
            await self.passthrough(scope, receive, send)
        else:
            await self._ask(scope, receive, send)

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
                    refusal = await opened.peek(REFUSAL_BYTES) if opened.status >= 400 else b""
                    if not self.hearing.heard(opened.status, refusal, self.clock()):
                        await relay(opened, downstream, send)
                        return
            except ClientError as error:
                await send_error(send, error)
                return
            except UpstreamError as error:
                observe.log.warning("upstream.failed", error=type(error).__name__)
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
    caller_of(scope).narrow(take_extensions(parsed).user_id)
    return body if len(parsed) == before else json_body.dump(parsed)


def _again(body: bytes) -> Receive:
    """Return a `receive` for a body that has been read."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
