"""The front door: which path goes where. A dictionary look-up, so that passthrough costs nothing.

`/v1/chat/completions` and `/v1/responses` (POST) are intercepted, `/v1/memory…` is ours, `/v1/responses/…`
and `/v1/conversations…` are ours where we keep what they name, `/health`, `/ready`, `/metrics`,
`/openapi.json` and `/ui` are ours and need no credential, and everything else under `/v1/` is the upstream's.
All that is somebody's lies behind the entrance (identity/entrance.py), which learns who calls.
"""

from dataclasses import dataclass

from proxy import observe
from proxy.edge.identity.entrance import App, Area, Entrance
from proxy.edge.reply import ASGIScope, Receive, Send, send_error
from proxy.errors import NotFound

__all__ = ["App", "Routes"]


async def _unknown(scope: ASGIScope, receive: Receive, send: Send) -> None:
    await send_error(
        send, NotFound("Nothing here. OpenAI's API is under /v1, the proxy's health under /health.")
    )


Route = tuple[str, App, Area]
_UNKNOWN: Route = ("unknown", _unknown, Area.PUBLIC)


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
    metrics: observe.Metrics
    openapi: App
    ui: App
    entrance: Entrance

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        name, app, area = self._find(scope["method"], scope["path"])
        if scope["path"].startswith("/v1") and not scope["raw_path"].startswith(b"/v1"):
            name, app, area = _UNKNOWN  # %76%31 is no spelling of v1 that an upstream would know

        async def counted(message: object) -> None:
            if message["type"] == "http.response.start":  # type: ignore[index]
                self.metrics.requests.labels(name, f"{message['status'] // 100}xx").inc()  # type: ignore[index]
            await send(message)  # type: ignore[arg-type]

        await self.entrance(scope, receive, counted, app, area)

    def _find(self, method: str, path: str) -> Route:
        """Return the route's name, what serves it, and what it gives access to."""
        if path == "/v1/chat/completions" and method == "POST":
            return "chat", self.chat, Area.MODEL
        if path == "/v1/responses" and method == "POST":
            return "responses", self.responses, Area.MODEL
        if path == "/v1/memory" or path.startswith("/v1/memory/"):
            return "memory", self.memory_api, Area.MEMORY
        if path.startswith("/v1/responses/"):
            return "responses", self.kept_responses, Area.MODEL
        if path == "/v1/conversations" or path.startswith("/v1/conversations/"):
            return "conversations", self.conversations, Area.MODEL
        if path.startswith("/v1/"):
            return "passthrough", self.passthrough, Area.PASSING
        if path in ("/health", "/ready", "/metrics", "/"):
            return "operations", self.operations, Area.PUBLIC
        if path == "/openapi.json":
            return "openapi", self.openapi, Area.PUBLIC
        if path == "/ui" or path.startswith("/ui/"):
            return "ui", self.ui, Area.PAGE
        return _UNKNOWN
