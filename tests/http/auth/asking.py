"""Requests as ASGI has them, without a server."""

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.domain.errors import ClientError
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, send_error
from proxy.http.auth.identity import Area, Auth


def scope_of(*headers: tuple[str, str], method: str = "GET", path: str = "/v1/x", **more: Any) -> ASGIScope:
    """Return a request's scope; header names in lower case, as a server gives them."""
    return {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "client": ("127.0.0.1", 50_000),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers], **more,
    }  # fmt: skip


@dataclass
class Answer:
    """What a client gets."""

    status: int = 0
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]

    @property
    def code(self) -> Any:
        return self.error["code"]

    def header(self, name: str) -> str | None:
        return next((v.decode() for n, v in self.headers if n == name.encode()), None)


async def nothing() -> Any:
    raise AssertionError("the body was read")


async def get(app: Any, scope: ASGIScope) -> Answer:
    """Return what an ASGI app answers."""
    answer = Answer()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        else:
            answer.body += message.get("body", b"")

    try:
        await app(scope, nothing, send)
    except ClientError as error:  # what the application's handlers do
        await send_error(send, error)
    return answer


@dataclass
class Behind:
    """An app behind authentication that notes the scopes it is called with."""

    auth: Auth
    area: Area = Area.PASSTHROUGH
    seen: list[ASGIScope] = field(default_factory=list)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        readable = self.auth.browsers.visit(scope).readable(send)
        try:
            await self.auth.guard(self._app, self.area)(scope, receive, readable)
        except ClientError as error:
            await send_error(readable, error)

    @property
    def _app(self) -> ASGIApp:
        async def app(scope: ASGIScope, receive: Receive, send: Send) -> None:
            self.seen.append(scope)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        return app
