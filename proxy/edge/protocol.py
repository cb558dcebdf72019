"""uvicorn's HTTP protocol, with what a relay must not lose.

The request target as it came over the wire: ASGI's path and query lose bytes (a `?` with nothing behind
it). And the body of a request that offers an upgrade, as Java's client does for HTTP/2: the parser takes
the offer for the end of the message. We never upgrade, so the offer is taken out before it is parsed.
"""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


class RawTargetProtocol(HttpToolsProtocol):
    """Puts `raw_target` (bytes) into every request's scope, and accepts no upgrade."""

    def data_received(self, data: bytes) -> None:
        """Parse what came, without the upgrade that a request's first bytes may offer."""
        if self.cycle is None or self.cycle.response_complete:  # a new request begins here
            head, end, body = data.partition(_END_OF_HEAD)
            if end and _OFFER.search(head):
                data = _OFFER.sub(b"", head) + end + body
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Complete the scope; the application's task first runs after that."""
        super().on_headers_complete()
        self.scope["raw_target"] = self.url  # type: ignore[typeddict-unknown-key]
