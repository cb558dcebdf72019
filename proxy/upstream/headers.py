"""Header rules: which headers are forwarded, in each direction. Names are lower case, as ASGI has them."""

import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})
"""The headers that may hold a request's credential: the one list of them."""

# RFC 9110, section 7.6.1, and what RFC 2616, section 13.5.1, had beyond it. Trailers are not relayed.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Host and the framing are rewritten for the upstream; the server handles 100-continue.
_REQUEST_DROPS = _HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_OURS = b"x-memory-"
REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)


def request_headers(headers: Iterable[tuple[bytes, bytes]], *, identity: bool = False) -> Headers:
    """Return the client's headers as the upstream may see them, in order: no hop-by-hop, no framing, no
    Host, nothing of ours, and its credential in any case. With `identity` the answer is asked for
    uncompressed, so that memory can read it.
    """
    headers = list(headers)
    # Which key pays is not for `Connection: authorization` to say: without the client's, ours would go.
    drops = _REQUEST_DROPS | (_named_in_connection(headers) - CREDENTIALS)
    if identity:
        drops |= {b"accept-encoding"}
    passed = [(name, value) for name, value in headers if name not in drops and not name.startswith(_OURS)]
    if identity:
        passed.append((b"accept-encoding", b"identity"))
    return passed


def response_headers(headers: Iterable[tuple[bytes, bytes]], status: int) -> Headers:
    """Return the upstream's headers as the client may see them: order, duplicates, encoding and length
    stay, hop-by-hop headers do not. A length on 204 and 304 describes a body that is not there: dropped."""
    lowered = [(name.lower(), value) for name, value in headers]
    drops = _HOP_BY_HOP | _named_in_connection(lowered)
    if status in (204, 304):
        drops |= {b"content-length"}
    return [header for header in lowered if header[0] not in drops]


def with_ours(upstream: Iterable[tuple[bytes, bytes]], ours: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the upstream's headers and ours about memory. Memory headers of the upstream itself are left
    out: the client would take them for ours."""
    return [*(header for header in upstream if not header[0].startswith(_OURS)), *ours]


def request_id_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the `X-Request-Id`; "" without one, and for what does not belong into a log."""
    given = next((value for name, value in headers if name == REQUEST_ID), b"")
    return given.decode() if _PLAIN_ID.fullmatch(given) else ""


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return frozenset()
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))
