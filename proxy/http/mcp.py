"""MCP over streamable HTTP at /mcp: the tools of proxy/client/mcp.py over the memory API of this process.

Stateless: each POST is answered as JSON on its own, by any worker or replica; there is no stream to open and
no session to end. The SDK is imported with the first request (a second, 30 MB), not with the proxy.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from starlette.requests import Request

from proxy.client import RequestRefused, encoded_query
from proxy.domain.errors import MethodNotAllowed, ProxyError
from proxy.http.asgi import ASGIApp, ASGIScope, Receive, Send, body_first, error_of
from proxy.http.auth.identity import Caller, admit, admitted
from proxy.http.memory_api.app import MemoryApi


@dataclass(slots=True)
class McpEndpoint:
    """The ASGI app."""

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
