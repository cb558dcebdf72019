"""The ASGI application under /v1/memory: finds the operation, checks the request against it, answers.

Every path segment is decoded by itself and compared as a whole: `%2F` in an id is part of the id, and an
empty id is no id. `DELETE /v1/memory/` must never become `DELETE /v1/memory`.
"""

from dataclasses import dataclass
from itertools import groupby

from starlette.requests import Request
from starlette.responses import Response

from proxy.domain.errors import NotFound, ProxyError, error_body
from proxy.http.asgi import ASGIScope, Receive, Send
from proxy.http.errors import error_of
from proxy.http.memory_api import present
from proxy.http.memory_api.operations import OPERATIONS, Operation
from proxy.http.memory_api.reading import Captured, body_of, captured, query_of, refuse_body, segments_of
from proxy.http.memory_api.wiring import Asked, Tools

_PATHS = [
    (template, {operation.method: operation for operation in same_path})
    for template, same_path in groupby(
        sorted(OPERATIONS, key=lambda o: [(s.startswith("{"), s) for s in o.template]),
        key=lambda o: o.template,
    )
]
"""Every path with its methods; literal segments before places."""


@dataclass(frozen=True, slots=True)
class MemoryApi:
    """The memory API over its tools."""

    tools: Tools

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request. A store that fails once an export is under way cuts the answer."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ProxyError as error:
            status, body = error_of(error)
            response = present.answer(body, status)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        methods, path = _find(request.scope["raw_path"])
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            return _wrong_method(request.method, methods)
        caller = self.tools.identify(request)
        caller.require("memory")
        query = query_of(request, operation.query)
        body = None
        if operation.body:
            body = await body_of(request, operation.body, may_lack=operation.may_lack_body)
        if not operation.takes_body:
            await refuse_body(request)
        return await operation.handler(self.tools, Asked(request, caller, path, query, body))


def _find(raw_path: bytes) -> tuple[dict[str, Operation], Captured]:
    segments = segments_of(raw_path)
    for template, methods in _PATHS:
        path = captured(template, segments)
        if path is not None:
            return methods, path
    raise NotFound("Nothing here; the memory API is described at /openapi.json.")


def _wrong_method(method: str, methods: dict[str, Operation]) -> Response:
    allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
    refusal = error_body(
        f"{method[:16]} is not allowed here.", "invalid_request_error", None, "method_not_allowed"
    )
    response = present.answer(refusal, 405)
    response.headers["allow"] = ", ".join(allowed)
    return response
