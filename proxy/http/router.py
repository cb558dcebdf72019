"""The ASGI application: one Starlette app whose endpoints are raw ASGI apps, as a relay needs them.

`/v1/chat/completions` and `/v1/responses` (POST) are intercepted, `/v1/memory…` and `/mcp` serve memories,
`/v1/responses/…` and `/v1/conversations…` are served here if the object is stored here, `/health`, `/ready`,
`/metrics`, `/openapi.json` and `/ui` need no credential, and everything else under `/v1/` is forwarded.

Servers read paths differently: some fold case, decode twice, merge slashes, resolve dots or trim. A path that
any of them could read as a guarded route must not bypass authentication, so each path is compared in the form
that the most lenient server would see (`canonical`), and is a 404 if only that form is guarded. The usual
mistakes in a client's base URL (`/chat/completions`, `/v1/v1/models`) are a 404 that names the right path.

`Decoded` is the middleware that undoes the content encoding of request bodies.
"""

import asyncio
import re
import unicodedata
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from random import getrandbits
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match

from proxy import telemetry
from proxy.domain.core import Reason
from proxy.domain.errors import (
    InvalidRequest,
    NotFound,
    ProxyError,
    Stopping,
    TooLarge,
    UnsupportedMedia,
    UpgradeRefused,
)
from proxy.http.asgi import (
    REQUEST_ID_KEY,
    ASGIApp,
    ASGIScope,
    Header,
    Message,
    Receive,
    Send,
    body_first,
    read_body,
    send_error,
    too_large,
    with_headers,
)
from proxy.http.auth.identity import Area, Auth
from proxy.wire.http import CODINGS, MAX_CODINGS, REQUEST_ID, Undecodable, named_codings, request_id_in

_ROUTE = "memory_proxy.route"  # the key of the route's name in the scope


@dataclass(frozen=True, slots=True)
class Apps:
    """What serves the routes."""

    chat: ASGIApp
    responses: ASGIApp
    stored_responses: ASGIApp
    conversations: ASGIApp
    memory: ASGIApp
    mcp: ASGIApp
    operations: ASGIApp
    passthrough: ASGIApp
    openapi: ASGIApp
    ui: ASGIApp


class Application(Starlette):
    """The routes, without a lifespan, inside `Observed`."""

    def __init__(self, apps: Apps, auth: Auth, metrics: telemetry.Metrics) -> None:
        self.auth, self.metrics = auth, metrics
        super().__init__(routes=_routes(apps, auth))

    def build_middleware_stack(self) -> ASGIApp:
        """Return the only middleware; Starlette's own would wrap every message of a relayed answer twice."""
        return Observed(self.router, self.auth, self.metrics)


def _routes(apps: Apps, auth: Auth) -> list[BaseRoute]:
    guard = auth.guard
    return [
        # First, since it is the most frequent and must cost nothing.
        Endpoint("passthrough", _is_forwarded, guard(apps.passthrough, Area.PASSTHROUGH)),
        Endpoint("chat", _post("/v1/chat/completions"), guard(apps.chat, Area.MODEL)),
        Endpoint("responses", _post("/v1/responses"), guard(apps.responses, Area.MODEL)),
        Endpoint("unknown", _is_v1_respelt, _not_found),
        Endpoint("unknown", _is_misspelt, guard(_not_found, Area.PASSTHROUGH)),
        Endpoint("unknown", _asks_for_websocket, _refuse_websocket),
        Endpoint("responses", _below("/v1/responses"), guard(apps.stored_responses, Area.STORED)),
        Endpoint("conversations", _below("/v1/conversations"), guard(apps.conversations, Area.STORED)),
        Endpoint("memory", _below("/v1/memory"), guard(apps.memory, Area.MEMORY)),
        Endpoint("passthrough", _is_other_chat, guard(_without_memory(apps.passthrough), Area.PASSTHROUGH)),
        Endpoint("passthrough", _below("/v1/"), guard(apps.passthrough, Area.PASSTHROUGH)),
        Endpoint(
            "operations", _at("/health", "/ready", "/metrics", "/"), guard(apps.operations, Area.PUBLIC)
        ),
        Endpoint("mcp", _at("/mcp", "/mcp/"), guard(apps.mcp, Area.MEMORY)),
        Endpoint("openapi", _at("/openapi.json"), guard(apps.openapi, Area.PUBLIC)),
        Endpoint("ui", _below("/ui"), guard(apps.ui, Area.PAGE)),
        Endpoint("unknown", lambda scope: True, guard(_not_found, Area.PUBLIC)),
    ]


class Endpoint(BaseRoute):
    """An ASGI app for the requests that `serves` accepts."""

    def __init__(self, name: str, serves: Callable[[ASGIScope], bool], app: ASGIApp) -> None:
        self.name, self.serves, self.app = name, serves, app

    def matches(self, scope: ASGIScope) -> tuple[Match, ASGIScope]:
        """Return whether the request is served here."""
        return (Match.FULL, {_ROUTE: self.name}) if self.serves(scope) else (Match.NONE, {})

    async def handle(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Serve the request, with its route in the log and in the span."""
        telemetry.bind(request_id=scope[REQUEST_ID_KEY], route=self.name)
        telemetry.current_span().route(scope["method"], self.name)
        await self.app(scope, receive, send)


class Observed:
    """The middleware: gives the request its id, counts and traces the answer, lets pages read it, and answers
    the errors that endpoints raise."""

    def __init__(self, app: ASGIApp, auth: Auth, metrics: telemetry.Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._browsers = auth.browsers if auth.browsers.allowed_origins else None

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        id_, browsers, started = give_request_id(scope), self._browsers, False
        with telemetry.span(scope["method"], "server", scope["headers"]) as span:

            async def observed(message: Message) -> None:
                nonlocal started
                if message["type"] == "http.response.start":
                    started, status = True, message["status"]
                    self._metrics.count_answer(scope.get(_ROUTE, "unknown"), status)
                    span.set(http__response__status_code=status)
                    if status >= 500:
                        span.fail(str(status))
                    message = {**message, "headers": with_request_id(message.get("headers", ()), id_)}
                await send(message)

            readable = observed if browsers is None else browsers.visit(scope).readable(observed)
            try:
                await self._app(scope, receive, readable)
            except CancelledError:  # by uvicorn at the end of its patience; it would answer in plain text
                if not started:
                    await send_error(readable, Stopping())
                raise
            except Exception as error:
                was_started = started
                if not started:
                    await send_error(readable, error)
                if was_started or not isinstance(error, ProxyError):
                    raise  # for the server to log, and to close the connection


def give_request_id(scope: ASGIScope) -> str:
    """Store the request's id in the scope, and return it: the client's own `X-Request-Id`, else a new one."""
    scope[REQUEST_ID_KEY] = id_ = request_id_in(scope["headers"]) or f"req_{getrandbits(128):032x}"
    return id_


def with_request_id(headers: Iterable[Header], id_: str) -> list[Header]:
    """Return an answer's headers with the request's id, unless the upstream has set one: providers ask for
    theirs."""
    headers = list(headers)
    for name, _ in headers:
        if name == REQUEST_ID:
            return headers
    headers.append((REQUEST_ID, id_.encode()))
    return headers


# ---------------------------------------------------------------- what serves a request
def _at(*paths: str) -> Callable[[ASGIScope], bool]:
    return lambda scope: scope["path"] in paths


def _post(path: str) -> Callable[[ASGIScope], bool]:
    def serves(scope: ASGIScope) -> bool:
        return scope["path"] == path and scope["method"] == "POST" and not _is_v1_respelt(scope)

    return serves


def _below(path: str) -> Callable[[ASGIScope], bool]:
    prefix = path.rstrip("/") + "/"
    return lambda scope: scope["path"] == path or scope["path"].startswith(prefix)


class _Reading(Enum):
    """How servers read a path below /v1."""

    FORWARDED = auto()  # the upstream's, and of no route here
    OTHER_CHAT = auto()  # the upstream's, and named like an intercepted route: it has no memory
    MISSPELT = auto()  # a lenient server would read it as a route here, or the base URL is wrong
    OURS = auto()


_INTERCEPTED = ("/v1/chat/completions", "/v1/responses")
_STORED = ("responses", "conversations")


@lru_cache(maxsize=4096)
def _reading(method: str, path: str) -> _Reading:
    plain = canonical(path)
    if path in _INTERCEPTED or not path.startswith("/v1/") or path.split("/")[2] == "memory":
        return _Reading.OURS
    if mistake(plain) or (plain not in (path, "/v1") and not _is_upstreams(method, plain)):
        return _Reading.MISSPELT
    if not _is_upstreams(method, path):
        return _Reading.OURS
    is_other_chat = method == "POST" and plain.endswith(("/chat/completions", "/responses"))
    return _Reading.OTHER_CHAT if is_other_chat else _Reading.FORWARDED


def _is_upstreams(method: str, path: str) -> bool:
    if path in _INTERCEPTED:
        return method != "POST"
    return path.startswith("/v1/") and path.split("/")[2] not in _GUARDED


def _is_forwarded(scope: ASGIScope) -> bool:
    is_v1 = scope["raw_path"].startswith(b"/v1/")
    return is_v1 and _reading(scope["method"], scope["path"]) is _Reading.FORWARDED


def _is_other_chat(scope: ASGIScope) -> bool:
    return _reading(scope["method"], scope["path"]) is _Reading.OTHER_CHAT


def _is_v1_respelt(scope: ASGIScope) -> bool:
    """True for %76%31, a spelling of v1 that no upstream knows."""
    return scope["path"].startswith("/v1") and not scope["raw_path"].startswith(b"/v1")


def _is_misspelt(scope: ASGIScope) -> bool:
    path = scope["path"]
    if path.startswith("/v1/") and path.split("/")[2] in _STORED and b"%2f" in scope["raw_path"].lower():
        return True  # a slash in an id: servers do not agree where it ends
    return _reading(scope["method"], path) is _Reading.MISSPELT


def _asks_for_websocket(scope: ASGIScope) -> bool:
    if "tunnel" not in scope:
        return False
    path = scope["path"]
    return path in _INTERCEPTED or (path.startswith("/v1/") and path.split("/")[2] in _STORED)


async def _refuse_websocket(scope: ASGIScope, receive: Receive, send: Send) -> None:
    """Refuse before authentication, so that clients fall back at once."""
    raise UpgradeRefused("This route has no WebSocket: send the request by POST, and stream by SSE.")


def _without_memory(app: ASGIApp) -> ASGIApp:
    """Return the app with headers that say that there is no memory on this path."""
    off = [(b"x-memory-status", b"off"), (b"x-memory-reason", Reason.OTHER_PATH.value.encode())]

    async def forwarded(scope: ASGIScope, receive: Receive, send: Send) -> None:
        await app(scope, receive, with_headers(send, lambda headers: [*headers, *off]))

    return forwarded


async def _not_found(scope: ASGIScope, receive: Receive, send: Send) -> None:
    """Say what is wrong with the path."""
    method, plain = scope["method"], canonical(scope["path"])
    if found := mistake(plain):
        right, why = found
    elif plain.startswith("/v1/"):
        right, why = plain, "its case, slashes, dots or encoding are not as documented"
    else:
        raise NotFound(
            "Nothing here. OpenAI's API is under /v1: the client's base_url ends in /v1. The proxy's health"
            " is under /health.",
            code="unknown_url",
        )
    while again := mistake(right):
        right = again[0]
    raise NotFound(
        f"Wrong path: {why}. The right one is {method} {canonical(right)[:200]}, with a base_url that ends"
        " in /v1.",
        param="path",
        code="unknown_url",
    )


# ---------------------------------------------------------------- how lenient servers read a path
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
                why = "the base URL ends in an endpoint, and the client adds another"
                return "/v1/" + "/".join(added), why
        return None
    if segments[0] in _KNOWN:
        return "/v1/" + "/".join(segments), '"/v1" is missing: the base URL ends without it'
    for endpoint in _ENDPOINTS:
        if tuple(segments[-len(endpoint) :]) == endpoint:
            return "/v1/" + "/".join(endpoint), f'nothing is served below "/{segments[0][:32]}"'
    return None


def _is_endpoint(segments: list[str]) -> bool:
    return tuple(segments) in _ENDPOINTS or segments == ["models"]


# ---------------------------------------------------------------- compressed bodies
FREE_BYTES = 8 * 1024 * 1024
MAX_RATIO = 200  # repetitive text reaches 100; bombs of gzip have 1,000, others a million


@dataclass(frozen=True, slots=True)
class Decoded:
    """An app that gets the bodies of its requests decoded (RFC 9110, section 8.4), within bounds.

    `Content-Encoding` lists the encodings in the order in which the client applied them; they are undone
    from the last to the first. Each step yields small pieces, so that a decompression bomb costs constant
    memory: it is refused once a step has made more bytes than the limit, or (beyond FREE_BYTES) more than
    MAX_RATIO times what was sent.
    """

    app: ASGIApp
    max_bytes: int  # of the body, compressed and decoded

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        encodings = encodings_of(scope["headers"])
        if not encodings:
            await self.app(scope, receive, send)
            return
        raw = await read_body(receive, self.max_bytes)
        if raw is None:
            return  # the client left
        body = await asyncio.to_thread(decoded, raw, encodings, self.max_bytes)
        headers = [h for h in scope["headers"] if h[0] not in (b"content-encoding", b"content-length")]
        headers = [h for h in headers if h[0] != b"transfer-encoding"]
        headers.append((b"content-length", b"%d" % len(body)))
        await self.app({**scope, "headers": headers}, body_first(body, receive), send)


def encodings_of(headers: Sequence[Header]) -> list[str]:
    """Return the encodings of the body, in the order in which they were applied. Raises UnsupportedMedia."""
    values = [value for name, value in headers if name == b"content-encoding"]
    if not values:
        return []
    found = named_codings(b",".join(values).decode("latin-1"))
    if unknown := [name for name in found if name not in CODINGS]:
        raise _unsupported(f"'{unknown[0][:32]}' cannot be read. Accepted: {', '.join(CODINGS)}.")
    if len(found) > MAX_CODINGS:
        raise _unsupported(f"is applied {len(found)} times; at most {MAX_CODINGS} are read.")
    return found


def _unsupported(reason: str) -> UnsupportedMedia:
    error = UnsupportedMedia(
        f"Content-Encoding {reason}", param="content-encoding", code="unsupported_encoding"
    )
    error.headers = ((b"accept-encoding", ", ".join(CODINGS).encode()),)
    return error


def decoded(raw: bytes, encodings: Sequence[str], max_bytes: int) -> bytes:
    """Return the body without its encodings. Raises TooLarge for a bomb, InvalidRequest for a body that is
    cut off or not encoded so. No bytes at all are an empty body, whatever their encoding."""
    if not raw:
        return raw
    pieces: Iterator[bytes] = iter((raw,))
    for name in reversed(encodings):
        pieces = _bounded(_stepwise(pieces, name), len(raw), max_bytes)
    return b"".join(pieces)


def _bounded(pieces: Iterator[bytes], raw_bytes: int, max_bytes: int) -> Iterator[bytes]:
    made, most = 0, min(max_bytes, max(FREE_BYTES, raw_bytes * MAX_RATIO))
    for piece in pieces:
        made += len(piece)
        if made > max_bytes:
            raise too_large(max_bytes)
        if made > most:
            raise TooLarge(
                f"The compressed body is larger than {MAX_RATIO} times what was sent: send it plain.",
                param="content-encoding",
                code="body_too_large",
            )
        yield piece


def _unreadable(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request body could not be decoded as {name}: {why}.",
        param="content-encoding",
        code="invalid_encoding",
    )


def _stepwise(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    coding = CODINGS[name]()
    try:
        for piece in pieces:
            yield from coding.feed(piece)
    except Undecodable:
        raise _unreadable(name, "it is damaged, or not encoded so") from None
    if not coding.whole:
        raise _unreadable(name, "it ends too early")
