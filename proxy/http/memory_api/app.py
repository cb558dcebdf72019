"""The memory API's ASGI application: finds the operation, checks the request against it, answers.

An endpoint is a method marked with `Operation`; what it takes is read from its annotation, and the OpenAPI
document is made of the same marks. Each path segment is decoded separately and compared as a whole: `%2F` in
an id is part of the id, and `DELETE /v1/memory/` must never become `DELETE /v1/memory`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, get_args
from urllib.parse import quote, unquote_to_bytes

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proxy.client import RequestRefused, encoded_query
from proxy.domain.core import Memory, MemoryFilter, Scope
from proxy.domain.errors import InvalidRequest, MethodNotAllowed, NotFound, ProxyError, TooLarge
from proxy.domain.ports import MemoryStore
from proxy.http.asgi import ASGIApp, ASGIScope, Receive, Send, body_first, error_of
from proxy.http.auth.identity import Caller, admit, admitted
from proxy.http.memory_api.request_schemas import Query
from proxy.http.memory_api.response_schemas import json_answer, list_of
from proxy.wire.extensions import MAX_ID_CHARS, nearest

MAX_BODY_BYTES = 1_000_000
_QUOTED_CHARS = 64  # of a client's own text in a message

T = TypeVar("T")
Q = TypeVar("Q")
B = TypeVar("B")
Model = TypeVar("Model", bound=BaseModel)
Handler = Callable[..., Awaitable[Response]]
HandlerT = TypeVar("HandlerT", bound=Handler)
Captured = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[Q, B]):
    """One checked request: the caller, ids from the path, query and body as the operation declares them."""

    http: Request
    caller: Caller
    path: Captured
    query: Q
    body: B

    def scope(self) -> Scope:
        """Return the scope that query or body ask for. Raises InvalidRequest without a user, and if they
        differ; Forbidden for another's."""
        return self.caller.scope(self._named("user_id"), self._named("project_id"))

    def user_or_all(self) -> str | None:
        """Return the user asked for, None for the whole tenant. Raises Forbidden for too few rights."""
        user = self.caller.narrow(self._named("user_id"))
        if user is None:
            self.caller.require("admin")
        return user

    def _named(self, field: str) -> str | None:
        named = {getattr(part, field, None) for part in (self.query, self.body)} - {None}
        if len(named) > 1:
            why = f"Query and body name two `{field}`."
            raise InvalidRequest(why, param=field, code="invalid_value")
        return next(iter(named), None)


async def page_of(
    request: ApiRequest[Any, Any], ask: Callable[..., Awaitable[Sequence[T]]], shown: Callable[[T], Any]
) -> Response:
    """Answer with one page of a list. `ask` gets `limit`, one more than a page has, and `after`."""
    query = request.query
    found = await ask(limit=query.limit + 1, after=query.after)
    data = [shown(one) for one in found[: query.limit]]
    return json_answer(list_of(data, has_more=len(found) > query.limit))


async def memory_in(
    request: ApiRequest[Any, Any], memories: MemoryStore, now: float, missing: str = "No memory"
) -> tuple[MemoryFilter, Memory]:
    """Return the path's memory, and where it was looked up: in all of the tenant, unless a user is fixed or
    named. Raises NotFound, also for one of another project than the request's header names."""
    caller, memory_id = request.caller, request.path["memory_id"]
    user = caller.narrow(request.query.user_id)
    where = MemoryFilter(tenant=caller.tenant, user=user, include_inactive=True, now=now)
    memory = await memories.get(where, memory_id)
    if memory is None or not caller.sees(memory.scope.project):
        raise absent(missing, memory_id, param="memory_id", code="memory_not_found")
    return where, memory


# ---------------------------------------------------------------- operations
@dataclass(slots=True)
class Operation:
    """One method of one path. As a decorator it marks a method `handler(self, request: ApiRequest[query,
    body])` that serves it; the first line of the docstring is the summary."""

    method: str
    path: str
    id: str
    answers: Any  # the shape of the body; by status, if that is not 200
    refusals: tuple[int, ...] | None = (
        None  # in addition to the common ones; None: 404 for an id, 413 for a body
    )
    body_optional: bool = False
    lines: type[Any] | None = None  # the answer is NDJSON of this shape
    takes_lines: type[BaseModel] | None = None  # the body is NDJSON of this model
    summary: str = field(init=False)
    query: type[Query] = field(init=False)
    body: type[BaseModel] | None = field(init=False)
    handler: Handler = field(init=False)

    def __call__(self, handler: HandlerT) -> HandlerT:
        self.handler = handler
        self.summary = (handler.__doc__ or "").splitlines()[0].removesuffix(".")
        self.query, body = get_args(handler.__annotations__["request"])
        self.body = None if body is type(None) else body
        if not isinstance(self.answers, dict):
            self.answers = {200: self.answers}
        if self.refusals is None:
            names_id = "{" in self.path or "after" in self.query.model_fields
            self.refusals = (404,) * names_id + (413,) * (self.body is not None)
        handler.operation = self  # type: ignore[attr-defined]
        return handler


def operations_of(endpoints: type) -> list[Operation]:
    """Return the operations that the methods of a class are marked as."""
    return [method.operation for method in vars(endpoints).values() if hasattr(method, "operation")]


class MemoryApi:
    """The ASGI app over instances of classes with operations."""

    def __init__(self, identify: Callable[[Request], Caller], *endpoints: object) -> None:
        self._identify = identify
        paths: dict[tuple[str, ...], dict[str, tuple[Operation, Handler]]] = {}
        for instance in endpoints:
            for one in operations_of(type(instance)):
                template = tuple(one.path.split("/")[1:])
                paths.setdefault(template, {})[one.method] = one, partial(one.handler, instance)
        # Literal segments come before placeholders: `GET /v1/memory/search` is a wrong method, not an id.
        self._paths = sorted(paths.items(), key=lambda item: [(s.startswith("{"), s) for s in item[0]])

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request. A store that fails during an export cuts the answer."""
        response = await self.answer(Request(scope, receive))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Return the answer to a request of an admitted caller. Raises ProxyError."""
        try:
            parts = request.scope["raw_path"].strip().split(b"/")[1:]
            segments = [unquote_to_bytes(part).decode() for part in parts]
        except UnicodeDecodeError:
            raise NotFound("Nothing here.") from None
        found = ((methods, _captured(template, segments)) for template, methods in self._paths)
        methods, path = next(((methods, path) for methods, path in found if path is not None), ({}, None))
        if path is None:
            raise NotFound("Nothing here; the memory API is described at /openapi.json.")
        if (method := "GET" if request.method == "HEAD" else request.method) not in methods:
            raise MethodNotAllowed(request.method, methods)
        one, handler = methods[method]
        caller = self._identify(request)
        caller.require("memory")
        query = _query_of(request, one.query)
        body = None
        if one.body is not None:
            body = await _body_of(request, one.body, optional=one.body_optional)
        elif one.takes_lines is None:
            await _refuse_body(request)
        return await handler(ApiRequest(request, caller, path, query, body))


def _captured(template: Sequence[str], segments: Sequence[str]) -> Captured | None:
    """Return what the segments put into the template's `{placeholders}`, None if they do not fit it."""
    if len(template) != len(segments):
        return None
    found: dict[str, str] = {}
    for expected, segment in zip(template, segments, strict=True):
        if expected.startswith("{") and segment:
            found[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return found


def absent(what: str, id_: str, *, param: str, code: str) -> NotFound:
    """Return the refusal of an id that names nothing here; another user's is as absent as an unknown one."""
    shown = id_ if len(id_) <= MAX_ID_CHARS else id_[:_QUOTED_CHARS] + "…"
    return NotFound(f"{what} with id '{shown}'.", param=param, code=code)


# ---------------------------------------------------------------- queries
def _query_of(request: Request, model: type[Model]) -> Model:
    """Return the query's parameters. Unknown, empty and repeated ones are refused: they were meant to narrow
    something."""
    given: dict[str, str] = {}
    for pair in filter(None, request.scope["query_string"].replace(b"+", b" ").split(b"&")):
        raw_name, _, raw_value = pair.partition(b"=")
        name = "query"
        try:
            name = unquote_to_bytes(raw_name).decode()
            value = unquote_to_bytes(raw_value).decode()
        except UnicodeDecodeError:  # not replaced: two ids would become one
            why = "The query is not UTF-8."
            raise InvalidRequest(why, param=name[:_QUOTED_CHARS], code="invalid_value") from None
        shown, known = name[:_QUOTED_CHARS], ", ".join(model.model_fields) or "none"
        if name not in model.model_fields:
            why = f"Unknown parameter `{shown}`. Known: {known}."
            raise InvalidRequest(why, param=shown, code="unknown_parameter")
        if name in given:
            raise InvalidRequest(f"`{shown}` is given twice.", param=shown, code="invalid_value")
        if not value.strip():
            raise InvalidRequest(f"`{shown}` is empty.", param=shown, code="invalid_value")
        given[name] = value
    return validated(given, model)


# ---------------------------------------------------------------- bodies
async def _body_of(request: Request, model: type[Model], *, optional: bool) -> Model:
    """Return the JSON body; if it is optional, no body means `{}`. Raises InvalidRequest, TooLarge."""
    kind = media_type(request)
    if kind != "application/json" and (kind or not optional):
        # Also prevents a web page from writing to a proxy on the visitor's own machine: a browser asks
        # before it sends JSON to another origin, and we never agree.
        why = "Send JSON, with Content-Type: application/json."
        raise InvalidRequest(why, param="content-type", code="invalid_value")
    raw = bytearray()
    async for chunk in body_chunks(request):
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise TooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.", param="body")
    if optional and not raw.strip():
        return validated({}, model)
    return validated(json_value(bytes(raw)), model)


async def _refuse_body(request: Request) -> None:
    """Refuse a body that would be ignored: it was meant to narrow the operation. `{}` is accepted."""
    if request.method == "POST" and media_type(request) not in ("", "application/json"):
        # What an HTML form of any web page could send.
        raise InvalidRequest("This takes no such body.", param="content-type", code="invalid_value")
    content = b""
    async for chunk in body_chunks(request):
        content += chunk.translate(None, b" \t\r\n")
        if not b"{}".startswith(content):
            why = "This takes no body; use the query, as in `?project_id=`."
            raise InvalidRequest(why, param="body", code="invalid_value")
    if content == b"{":
        raise InvalidRequest("The body is not valid JSON.", param="body", code="invalid_json")


async def body_chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises InvalidRequest if the client leaves before its end."""
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise InvalidRequest("The client left before the body was complete.", param="body") from None


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_value(raw: bytes) -> object:
    """Return the JSON value. NaN, lone surrogates and more than 1,024 levels are refused."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body is not valid JSON.", param="body", code="invalid_json") from None


# pydantic's kinds of errors, with OpenAI's codes for them.
_CODES = {
    "extra_forbidden": "unknown_parameter",
    "missing": "missing_required_parameter",
    "string_too_long": "string_above_max_length",
}


def validated(value: object, model: type[Model]) -> Model:
    """Return the value as the model has it; else raise InvalidRequest for one wrong field, without its value.

    Unknown fields are reported first: one may be the missing field, misspelt."""
    try:
        return model.model_validate(value)
    except ValidationError as e:
        problems = e.errors(include_input=False, include_url=False, include_context=False)
        problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
        kind, location = problem["type"], problem["loc"]
        param = ".".join(str(part)[:_QUOTED_CHARS] for part in location) or "body"
        if kind == "extra_forbidden":
            meant = nearest(param, model.model_fields) if len(location) == 1 else ""
            why = f"Unknown field `{param}`{meant}."
        elif kind == "missing":
            why = f"`{param}` is required."
        elif kind == "model_type":
            why = f"`{param}` must be a JSON object."
        else:
            why = f"`{param}`: {problem['msg'].removeprefix('Value error, ')}."
        code = _CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")
        raise InvalidRequest(why, param=param, code=code) from None


# ---------------------------------------------------------------- MCP over streamable HTTP
@dataclass(slots=True)
class McpEndpoint:
    """The ASGI app at /mcp: the tools of proxy/client/mcp.py over the memory API of this process.

    Stateless: each POST is answered as JSON on its own, by any worker or replica; there is no stream to open
    and no session to end. The SDK is imported with the first request (a second, 30 MB), not with the proxy.
    """

    api: MemoryApi
    identify: Callable[[ASGIScope], Caller]
    _serve: ASGIApp | None = field(default=None, init=False)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], ("POST",))
        self.identify(scope).require("memory")
        if self._serve is None:
            self._serve = await asyncio.to_thread(self._made)
        await self._serve(scope, receive, send)

    def _made(self) -> ASGIApp:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from proxy.client import mcp

        server = mcp.server(self._ask)

        async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
            # One for each request: its tasks end with the request.
            manager = StreamableHTTPSessionManager(server, stateless=True, json_response=True)
            async with manager.run():
                await manager.handle_request(scope, receive, send)

        return serve

    async def _ask(self, asked: Request, call: Any) -> dict[str, Any]:
        """Return the memory API's answer to the caller of the MCP request. Raises RequestRefused."""
        from proxy.client.mcp import NO_USER

        path = "/".join(("/v1/memory", *(quote(segment, safe="") for segment in call.path)))
        headers = [header for header in asked.scope["headers"] if header[0].startswith(b"x-memory-")]
        scope: ASGIScope = {
            "type": "http",
            "method": call.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": encoded_query(call.query).encode(),
            "headers": [*headers, (b"content-type", b"application/json")],
        }
        admit(scope, admitted(asked.scope))
        body = b"" if call.body is None else orjson.dumps(call.body)
        try:
            caller = self.identify(scope)
            if caller.user is None and caller.named is None:
                raise RequestRefused(400, NO_USER)  # an id would be looked up among all users
            response = await self.api.answer(Request(scope, body_first(body, asked.receive)))
        except ProxyError as error:
            status, shown = error_of(error)
            raise RequestRefused(status, shown["error"]["message"]) from None
        answer: dict[str, Any] = orjson.loads(response.body)
        return answer
