"""Which headers pass."""

import pytest

from proxy.wire.http import request_headers, response_headers, with_ours

CREDENTIALS = [(b"authorization", b"Bearer a"), (b"api-key", b"b"), (b"x-api-key", b"c")]
HOP_BY_HOP = (
    b"connection keep-alive te trailer transfer-encoding upgrade proxy-authorization proxy-connection"
    b" host content-length expect"
).split()


@pytest.mark.parametrize(
    ("headers", "passed"),
    [
        ([(b"x-a", b"1"), (b"authorization", b"k"), (b"x-a", b"\xff\xe9 \xc3\xa9")], None),
        ([*((name, b"x") for name in HOP_BY_HOP), (b"accept", b"*/*")], [(b"accept", b"*/*")]),
        ([(b"connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"x-end", b"3")], [(b"x-end", b"3")]),
        ([(b"x-memory-user-id", b"u"), (b"x-memoryless", b"w")], [(b"x-memoryless", b"w")]),
        # A credential is not hop-by-hop, whatever the client says: without it, the server's would be sent.
        ([(b"connection", b"Authorization, api-key, x-api-key, x-hop"), *CREDENTIALS], CREDENTIALS),
    ],
)  # fmt: skip
def test_the_upstream_sees_the_clients_headers_in_order_without_framing_and_ours(headers, passed):
    assert request_headers(headers) == (headers if passed is None else passed)


def test_an_intercepted_request_asks_for_an_answer_that_can_be_read():
    headers = [(b"accept-encoding", b"gzip, br"), (b"accept", b"*/*")]
    assert request_headers(headers, identity=True) == [(b"accept", b"*/*"), (b"accept-encoding", b"identity")]


@pytest.mark.parametrize(
    ("status", "headers", "passed"),
    [
        (200, [(b"Set-Cookie", b"a"), (b"Content-Encoding", b"gzip"), (b"Set-Cookie", b"b")], None),
        (200, [(b"Connection", b"keep-alive, X-Hop"), (b"Keep-Alive", b"5"), (b"X-Hop", b"1")], []),
        (304, [(b"content-length", b"5"), (b"etag", b"e")], [(b"etag", b"e")]),  # there is no body
        (204, [(b"content-length", b"5"), (b"etag", b"e")], [(b"etag", b"e")]),
    ],
)
def test_the_client_sees_the_answers_headers_in_order_without_hop_by_hop(status, headers, passed):
    expected = [(name.lower(), value) for name, value in headers] if passed is None else passed
    assert response_headers(headers, status) == expected


def test_memory_headers_of_an_answer_are_only_ours():
    headers = [(b"x-memory-status", b"off"), (b"x-memory-ids", b"mem_1"), (b"x-memoryless", b"w")]
    ours = (b"x-memory-status", b"injected")
    assert with_ours(headers, [ours]) == [(b"x-memoryless", b"w"), ours]
