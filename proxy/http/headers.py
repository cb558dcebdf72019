"""Build the response headers that tell about memory: status, ids, counts and times, never text."""

from collections.abc import Iterable, Sequence
from urllib.parse import quote
from uuid import uuid4

from proxy.domain.core import Prepared, Status
from proxy.http.reply import ASGIScope, Header
from proxy.upstream.headers import REQUEST_ID, request_id_in

_SCOPE = "memory_proxy.request_id"


def request_id_of(headers: Iterable[Header]) -> str:
    """Return the client's own `X-Request-Id`, so that a line of the log tells whose it is; else a new one."""
    return request_id_in(headers) or f"req_{uuid4().hex}"


def give_request_id(scope: ASGIScope) -> str:
    """Note the request's id in the scope, and return it. Only the router does."""
    scope[_SCOPE] = id_ = request_id_of(scope["headers"])
    return id_


def request_id(scope: ASGIScope) -> str:
    """Return the id that the request was given."""
    id_: str = scope[_SCOPE]
    return id_


def with_request_id(headers: Iterable[Header], id_: str) -> list[Header]:
    """Return an answer's headers with the request's id, unless the upstream has given the answer one: that is
    what its provider asks for."""
    headers = list(headers)
    if all(name != REQUEST_ID for name, _ in headers):
        headers.append((REQUEST_ID, id_.encode()))
    return headers


def memory_headers(
    prepared: Prepared,
    *,
    session_id: str | None,
    queued: bool,
    memory_ms: float,
    upstream_ms: float | None,
    left_out: int = 0,
    retried: Sequence[str] = (),
    forgotten: Sequence[str] = (),
) -> list[Header]:
    """Return the X-Memory-* headers and Server-Timing (milliseconds) of one intercepted request."""
    headers = [("x-memory-status", prepared.status.value)]
    if prepared.reason:
        headers.append(("x-memory-reason", prepared.reason.value))
    if prepared.status is not Status.OFF:
        headers.append(("x-memory-count", str(len(prepared.memory_ids))))
        headers.append(("x-memory-tokens", str(prepared.tokens)))
        headers.append(("x-memory-level", prepared.level.value))
    if prepared.memory_ids:
        headers.append(("x-memory-ids", ",".join(prepared.memory_ids)))
    if forgotten:
        headers.append(("x-memory-forgotten", ",".join(forgotten)))
    if left_out:
        headers.append(("x-memory-compressed", str(left_out)))  # messages
    if retried:
        headers.append(("x-memory-retried", ", ".join(retried)))
    if session_id is not None:
        # A client may name its session in any script; a header holds ASCII.
        headers.append(("x-memory-session-id", quote(session_id, safe=_HEADER_SAFE)))
    headers.append(("x-memory-store", "queued" if queued else "off"))
    timing = f"memory;dur={memory_ms:.1f}"
    if upstream_ms is not None:
        timing += f", upstream;dur={upstream_ms:.1f}"
    headers.append(("server-timing", timing))
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


_HEADER_SAFE = " !#$&'()*+,/:;<=>?@[]^`{|}~\""
