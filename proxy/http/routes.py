"""The router: which path is served by what. A dictionary look-up, so that passthrough costs nothing.

`/v1/chat/completions` and `/v1/responses` (POST) are intercepted, `/v1/memory…` is ours, `/v1/responses/…`
and `/v1/conversations…` are ours where we keep what they name, `/health`, `/ready`, `/metrics`,
`/openapi.json` and `/ui` are ours and need no credential, and everything else under `/v1/` is the upstream's.
All that is somebody's lies behind the entrance (identity/entrance.py), which learns who calls.

A path that other servers would read as one of our routes, or as one outside of /v1 (`/v1//responses/r`,
`/v1/Responses/r`, `/v1/../admin`), and one that a wrong base URL leads to (`/chat/completions`,
`/v1/v1/models`), is a 404 that names the right one (paths.py).
"""

from asyncio import CancelledError
from dataclasses import dataclass
from functools import partial

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy import telemetry
from proxy.domain.errors import NotFound, ProxyError, Stopping, UpgradeRefused
from proxy.domain.reasons import Reason
from proxy.http.auth.entrance import App, Area, Entrance
from proxy.http.headers import give_request_id, with_request_id
from proxy.http.paths import canonical, is_another_chat, mistake
from proxy.http.reply import ASGIScope, Message, Receive, Send, error_of, send_error

__all__ = ["App", "Routes"]


async def _unknown(scope: ASGIScope, receive: Receive, send: Send) -> None:
    await send_error(send, _misspelt(scope["method"], canonical(scope["path"])))


def _misspelt(method: str, plain: str) -> NotFound:
    """Return a 404 that says what is wrong with the path, given in its canonical form."""
    if found := mistake(plain):
        right, why = found
    elif plain.startswith("/v1/"):
        right, why = plain, "its case, slashes, dots or encoding are not as documented"
    else:
        return NotFound(
            "Nothing here. OpenAI's API is under /v1: the client's base_url ends in /v1. The proxy's health"
            " is under /health.",
            code="unknown_url",
        )
    while again := mistake(right):
        right = again[0]
    return NotFound(
        f"Wrong path: {why}. The right one is {method} {canonical(right)[:200]}, with a base_url that ends"
        " in /v1.",
        param="path",
        code="unknown_url",
    )


async def _another_chat(app: App, scope: ASGIScope, receive: Receive, send: Send) -> None:
    """Forward, and say that there is no memory on this path."""

    async def said(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = [(b"x-memory-status", b"off"), (b"x-memory-reason", Reason.OTHER_PATH.value.encode())]
            message = {**message, "headers": [*message.get("headers", ()), *ours]}
        await send(message)

    await app(scope, receive, said)


def _unforeseen(request: Request, error: Exception) -> Response:
    status, body = error_of(ProxyError())
    return JSONResponse(body, status)


async def _plain_only(scope: ASGIScope, receive: Receive, send: Send) -> None:
    error = UpgradeRefused("This route has no WebSocket: send the request by POST, and stream by SSE.")
    await send_error(send, error, [(b"upgrade", b"HTTP/1.1")])


Route = tuple[str, App, Area]
_UNKNOWN: Route = ("unknown", _unknown, Area.PUBLIC)
_MISSPELT: Route = ("unknown", _unknown, Area.PASSING)  # told to those only who may use /v1
_PLAIN_ONLY: Route = ("unknown", _plain_only, Area.PUBLIC)  # at once, so that clients fall back
_INTERCEPTED = ("/v1/chat/completions", "/v1/responses")
_NO_WEBSOCKET = ("responses", "conversations")
_FOR_THE_UPSTREAM = (
    "passthrough",
    "responses",
    "conversations",
)  # what else there is judges its paths itself


@dataclass(frozen=True, slots=True)
class Routes:
    """The ASGI application, without its lifespan."""

    chat: App
    responses: App
    kept_responses: App
    conversations: App
    memory_api: App
    operations: App
    passthrough: App
    metrics: telemetry.Metrics
    openapi: App
    ui: App
    entrance: Entrance

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        name, app, area = self._find(scope["method"], scope["path"])
        if scope["path"].startswith("/v1") and not scope["raw_path"].startswith(b"/v1"):
            name, app, area = _UNKNOWN  # %76%31 is no spelling of v1 that an upstream would know
        elif name in _FOR_THE_UPSTREAM:
            plain = canonical(scope["path"])
            if self._is_misspelt(scope, name, plain):
                name, app, area = _MISSPELT
            elif name == "passthrough" and scope["method"] == "POST" and is_another_chat(plain):
                app = partial(_another_chat, app)
        if "tunnel" in scope and (name in _NO_WEBSOCKET or scope["path"] in _INTERCEPTED):
            name, app, area = _PLAIN_ONLY

        with telemetry.span(f"{scope['method']} {name}", "server", scope["headers"]) as span:
            span.tell(http__request__method=scope["method"], http__route=name)

            request_id = give_request_id(scope)
            telemetry.bind(request_id=request_id, route=name)
            begun = False

            async def counted(message: Message) -> None:
                nonlocal begun
                begun = True
                if message["type"] == "http.response.start":
                    status = message["status"]
                    self.metrics.requests.labels(name, f"{status // 100}xx").inc()
                    span.tell(http__response__status_code=status)
                    if status >= 500:
                        span.fail(str(status))
                    headers = with_request_id(message.get("headers", ()), request_id)
                    message = {**message, "headers": headers}
                await send(message)

            visit = self.entrance.browsers.visit(scope)
            readable = visit.readable(counted)
            # An unforeseen error is answered in OpenAI's shape, and raised again for the server's log.
            entrance = partial(self.entrance, app=app, area=area, visit=visit)
            guarded = ServerErrorMiddleware(entrance, handler=_unforeseen)
            try:
                await guarded(scope, receive, readable)
            except CancelledError:  # by uvicorn at the end of its patience; it would answer in plain text
                if not begun:
                    await send_error(readable, Stopping(), [(b"retry-after", b"1")])
                raise

    def _is_misspelt(self, scope: ASGIScope, name: str, plain: str) -> bool:
        """True if another server could read the path as a guarded route, or as none of its API."""
        path: str = scope["path"]
        if name != "passthrough" and b"%2f" in scope["raw_path"].lower():
            return True  # a slash in an id: servers do not agree where it ends
        if mistake(plain):
            return True
        return plain not in (path, "/v1") and self._find(scope["method"], plain)[0] != "passthrough"

    def _find(self, method: str, path: str) -> Route:
        """Return the route's name, what serves it, and what it gives access to."""
        if path == "/v1/chat/completions" and method == "POST":
            return "chat", self.chat, Area.MODEL
        if path == "/v1/responses" and method == "POST":
            return "responses", self.responses, Area.MODEL
        if path == "/v1/memory" or path.startswith("/v1/memory/"):
            return "memory", self.memory_api, Area.MEMORY
        if path.startswith("/v1/responses/"):
            return "responses", self.kept_responses, Area.KEPT
        if path == "/v1/conversations" or path.startswith("/v1/conversations/"):
            return "conversations", self.conversations, Area.KEPT
        if path.startswith("/v1/"):
            return "passthrough", self.passthrough, Area.PASSING
        if path in ("/health", "/ready", "/metrics", "/"):
            return "operations", self.operations, Area.PUBLIC
        if path == "/openapi.json":
            return "openapi", self.openapi, Area.PUBLIC
        if path == "/ui" or path.startswith("/ui/"):
            return "ui", self.ui, Area.PAGE
        return _UNKNOWN
