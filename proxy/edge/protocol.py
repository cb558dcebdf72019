"""uvicorn's HTTP protocol, with the request target kept as it came over the wire.

ASGI's path and query lose bytes (a `?` with nothing behind it), and a relay must pass them all.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class RawTargetProtocol(HttpToolsProtocol):
    """Puts `raw_target` (bytes) into every request's scope."""

    def on_headers_complete(self) -> None:
        # The scope is filled before the application's task first runs.
        super().on_headers_complete()
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]
