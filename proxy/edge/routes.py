"""The front door: which path goes where. A dictionary look-up, so that passthrough costs nothing.

`/v1/chat/completions` and `/v1/responses` (POST) are intercepted, `/v1/memory…` is ours, `/v1/responses/…`
and `/v1/conversations…` are ours where we keep what they name, `/health`, `/ready` and `/metrics` are ours,
and everything else under `/v1/` is the upstream's.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from proxy import observe
from proxy.edge.reply import ASGIScope, Receive, Send, send_error
from proxy.errors import NotFound

App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


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

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        name, app = self._find(scope["method"], scope["path"])
        if scope["path"].startswith("/v1") and not scope["raw_path"].startswith(b"/v1"):
            name, app = "unknown", _unknown  # %76%31 is no spelling of v1 that an upstream would know

        async def counted(message: object) -> None:
            if message["type"] == "http.response.start":  # type: ignore[index]
                self.metrics.requests.labels(name, f"{message['status'] // 100}xx").inc()  # type: ignore[index]
            await send(message)  # type: ignore[arg-type]

        await app(scope, receive, counted)

    def _find(self, method: str, path: str) -> tuple[str, App]:
        if path == "/v1/chat/completions" and method == "POST":
            return "chat", self.chat
        if path == "/v1/responses" and method == "POST":
            return "responses", self.responses
        if path == "/v1/memory" or path.startswith("/v1/memory/"):
            return "memory", self.memory_api
        if path.startswith("/v1/responses/"):
            return "responses", self.kept_responses
        if path == "/v1/conversations" or path.startswith("/v1/conversations/"):
            return "conversations", self.conversations
        if path.startswith("/v1/"):
            return "passthrough", self.passthrough
        if path in ("/health", "/ready", "/metrics", "/"):
            return "operations", self.operations
        return "unknown", _unknown


async def _unknown(scope: ASGIScope, receive: Receive, send: Send) -> None:
    await send_error(
        send, NotFound("Nothing here. OpenAI's API is under /v1, the proxy's health under /health.")
    )
