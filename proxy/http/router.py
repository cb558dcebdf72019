"""The router: which path is served by what.

`/v1/chat/completions` and `/v1/responses` (POST) are intercepted, `/v1/memory…` is the memory API,
`/v1/responses/…` and `/v1/conversations…` are served here if the object is stored here, `/health`, `/ready`,
`/metrics`, `/openapi.json` and `/ui` need no credential, and everything else under `/v1/` is forwarded.

Servers read paths differently: some fold case, decode twice, merge slashes, resolve dots or trim. A path that
any of them could read as a guarded route must not bypass authentication, so each path is compared in the form
that the most lenient server would see (`canonical`), and is a 404 if only that form is guarded. The usual
mistakes in a client's base URL (`/chat/completions`, `/v1/v1/models`) are a 404 that names the right path.
"""

import re
import unicodedata
from asyncio import CancelledError
from dataclasses import dataclass
from functools import lru_cache, partial
from urllib.parse import unquote

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy import telemetry
from proxy.domain.errors import NotFound, ProxyError, Stopping, UpgradeRefused
from proxy.domain.reasons import Reason
from proxy.http.asgi import (
    ASGIApp,
    ASGIScope,
    Message,
    Receive,
    Send,
    error_of,
    give_request_id,
    send_error,
    with_request_id,
)
from proxy.http.auth.identity import Area, Entrance

# A path without these is read alike by all servers, but for its case.
_ODD = re.compile(r"//|/\.|\.(?:/|$)|/$|[;\\#?%]|[^\x21-\x7e]")
_GUARDED = ("responses", "conversations", "memory")
_OPERATIONS = ("completions", "compact", "input_tokens")  # what the second segment of a route may be
# First segments of OpenAI's API and of what compatible servers add.
_KNOWN = frozenset(
    "assistants audio batches chat completions containers conversations embeddings evals files fine_tuning"
    " images memory messages models moderations realtime rerank responses threads uploads vector_stores"
    " videos".split()
)
# A client's base_url ends in one of these, and the client adds another.
_ENDPOINTS = (("chat", "completions"), ("responses",), ("completions",), ("embeddings",))
_MOST_DECODINGS = 3


@lru_cache(maxsize=1024)
def canonical(path: str) -> str:
    """Return the decoded path as the most lenient server reads it: decoded again, without empty and dot
    segments, `;parameters`, control characters and trailing dots, with slashes for backslashes, and the names
    of routes in lower case. Ids keep their case."""
    if _ODD.search(path):
        path = _plain(path)
    segments = path.split("/")
    if segments[1:2] and not segments[1].islower():
        segments[1] = segments[1].lower()
    if segments[1] == "v1" and len(segments) > 2:
        segments[2] = _folded(segments[2], (*_GUARDED, "chat", "v1"))
        if len(segments) > 3:
            segments[3] = _folded(segments[3], _OPERATIONS)
    return "/".join(segments)


def _folded(segment: str, names: tuple[str, ...]) -> str:
    return lowered if (lowered := segment.lower()) in names else segment


def _plain(path: str) -> str:
    for _ in range(_MOST_DECODINGS):
        if "%" not in path:
            break
        path = unquote(path)
    path = unicodedata.normalize("NFKC", path).replace("\\", "/")
    path = re.split("[#?]", path)[0]
    segments: list[str] = []
    for segment in path.split("/"):
        name = "".join(filter(str.isprintable, segment.partition(";")[0])).strip()
        if name == "..":
            del segments[-1:]
        elif name := name.rstrip(". "):
            segments.append(name)
    return "/" + "/".join(segments)


@lru_cache(maxsize=1024)
def mistake(path: str) -> tuple[str, str] | None:
    """Return the path that was meant and what is wrong with this canonical one; None if its structure is
    right."""
    segments = path.split("/")[1:]
    if segments[:2] == ["v1", "v1"]:
        while segments[:2] == ["v1", "v1"]:
            del segments[0]
        return "/" + "/".join(segments), '"/v1" is in it twice: the base URL has it already'
    if segments[0] == "v1":
        rest = segments[1:]
        for endpoint in _ENDPOINTS:
            added = rest[len(endpoint) :]
            while added[:1] == ["v1"]:
                added = added[1:]
            if tuple(rest[: len(endpoint)]) == endpoint and _is_endpoint(added):
                return "/v1/" + "/".join(
                    added
                ), "the base URL ends in an endpoint, and the client adds another"
        return None
    if segments[0] in _KNOWN:
        return "/v1/" + "/".join(segments), '"/v1" is missing: the base URL ends without it'
    for endpoint in _ENDPOINTS:
        if tuple(segments[-len(endpoint) :]) == endpoint:
            return "/v1/" + "/".join(endpoint), f'nothing is served below "/{segments[0][:32]}"'
    return None


def _is_endpoint(segments: list[str]) -> bool:
    return tuple(segments) in _ENDPOINTS or segments == ["models"]


def is_another_chat(path: str) -> bool:
    """True for a canonical path below /v1 that reads like an intercepted route and is none."""
    return path.endswith(("/chat/completions", "/responses"))


# ---------------------------------------------------------------- routes
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


async def _another_chat(app: ASGIApp, scope: ASGIScope, receive: Receive, send: Send) -> None:
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


Route = tuple[str, ASGIApp, Area]
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

    chat: ASGIApp
    responses: ASGIApp
    kept_responses: ASGIApp
    conversations: ASGIApp
    memory_api: ASGIApp
    operations: ASGIApp
    passthrough: ASGIApp
    metrics: telemetry.Metrics
    openapi: ASGIApp
    ui: ASGIApp
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
