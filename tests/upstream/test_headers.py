"""Which headers pass."""

from proxy.upstream.headers import request_headers, response_headers, with_ours


def test_the_client_s_own_headers_reach_the_upstream_in_order_and_to_the_byte() -> None:
    own = [(b"authorization", b"Bearer k"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-odd", b"\xff\xe9 \xc3\xa9")]
    assert request_headers(own) == own


def test_hop_by_hop_host_framing_and_expect_do_not_reach_the_upstream() -> None:
    dropped = (
        b"connection keep-alive te trailer transfer-encoding upgrade proxy-authorization proxy-connection"
        b" host content-length expect"
    ).split()
    assert request_headers([(name, b"x") for name in dropped] + [(b"accept", b"*/*")]) == [
        (b"accept", b"*/*")
    ]


def test_what_connection_names_is_hop_by_hop_too() -> None:
    headers = [
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"connection", b"x-other"),
        (b"x-other", b"2"),
    ]
    assert request_headers([*headers, (b"x-end", b"3")]) == [(b"x-end", b"3")]


def test_nothing_of_ours_reaches_the_upstream() -> None:
    headers = [(b"x-memory-user-id", b"u"), (b"x-memory-anything", b"v"), (b"x-memoryless", b"w")]
    assert request_headers(headers) == [(b"x-memoryless", b"w")]


def test_a_credential_is_not_hop_by_hop_whatever_the_client_says() -> None:
    credentials = [(b"authorization", b"Bearer a"), (b"api-key", b"b"), (b"x-api-key", b"c")]
    named = (b"connection", b"Authorization, api-key, x-api-key, x-hop")
    assert request_headers([named, *credentials, (b"x-hop", b"1")]) == credentials


def test_an_intercepted_request_asks_for_an_answer_that_can_be_read() -> None:
    headers = [(b"accept-encoding", b"gzip, br"), (b"accept", b"*/*")]
    assert request_headers(headers, identity=True) == [(b"accept", b"*/*"), (b"accept-encoding", b"identity")]
    assert request_headers(headers) == headers


def test_an_answer_keeps_duplicates_order_encoding_and_length() -> None:
    headers = [
        (b"Set-Cookie", b"a=1"),
        (b"Content-Encoding", b"gzip"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Length", b"5"),
    ]
    assert response_headers(headers, 200) == [(name.lower(), value) for name, value in headers]


def test_an_answer_loses_hop_by_hop_headers() -> None:
    headers = [(b"Connection", b"keep-alive, X-Hop"), (b"Keep-Alive", b"timeout=5"), (b"X-Hop", b"1")]
    assert response_headers([*headers, (b"Transfer-Encoding", b"chunked")], 200) == []


def test_an_answer_without_a_body_promises_no_length() -> None:
    headers = [(b"content-length", b"5"), (b"etag", b"e")]
    assert response_headers(headers, 304) == [(b"etag", b"e")]
    assert response_headers(headers, 204) == [(b"etag", b"e")]


def test_an_answer_says_of_memory_only_what_we_say() -> None:
    headers = [(b"X-Memory-Status", b"off"), (b"x-memory-ids", b"mem_1"), (b"x-memoryless", b"w")]
    assert response_headers(headers, 200) == [(name.lower(), value) for name, value in headers]
    ours = (b"x-memory-status", b"injected")
    assert with_ours(response_headers(headers, 200), [ours]) == [(b"x-memoryless", b"w"), ours]
