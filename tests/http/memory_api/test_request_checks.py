"""Ambiguous and malformed paths, queries and bodies are refused, and change nothing."""

from itertools import product
from typing import Any

from proxy.http.memory_api.openapi import OPERATIONS
from tests.http.memory_api.conftest import Bench
from tests.support.serving import ask

JSON = {"content-type": "application/json"}


async def raw(bench: Bench, line: str, body: bytes = b"", *headers: bytes) -> tuple[int, bytes, bytes]:
    """Send a request line as it is; return status, head and body."""
    head, answer = await ask(bench.origin, line.encode("latin-1"), headers, body)
    return int(head.split()[1]), head, answer


PATHS = [
    "GET /v1/memory/", "DELETE /v1/memory/?user_id=alice", "DELETE /v1/memory//",
    "GET /v1/memory/../memory?user_id=alice", "DELETE /v1/memory/%2e%2e", "DELETE /v1/memory%2Fmem_1",
    "GET /v1/memory/mem_1%2Fhistory", "GET /v1/memory/mem_1/history/", "GET /v1/memory/%FF",
    "GET /v1/memory/mem_1%00?user_id=alice", "GET /v1/memory/" + "a" * 5_000, "GET /v1/memory;x=1",
    "POST /v1/memory/sessions//end?user_id=alice", "DELETE /v1/memory/quarantine/?user_id=alice",
]  # fmt: skip


async def test_a_path_that_names_nothing_is_absent_and_changes_nothing(bench):
    await bench.add("User likes figs.")
    for line in PATHS:
        status, _, body = await raw(bench, line)
        assert (status, b'"error"' in body) == (404, True), line
        assert (await bench.listed())["total"] == 1, line
    answer = await bench.http.post("/memory/sessions/a%2Fb%20c/end?user_id=alice")
    assert (answer.status_code, answer.json()["id"]) == (202, "a/b c"), "an id with a slash is one id"


QUERIES = [
    ("user_id=%FF", "user_id"), ("user_id=alice&user_id=bob", "user_id"), ("user_id=%20", "user_id"),
    ("user_id", "user_id"), ("user_id=a%0Ab", "user_id"), ("user_id=alice&USER_ID=bob", "USER_ID"),
    ("user_id=alice&limit=99999999999999999999", "limit"), ("user_id=alice&limit=%2B5", "limit"),
    ("user_id=alice&limit=5_0", "limit"), ("user_id=alice&limit=%D9%A5", "limit"),
    ("user_id=alice&include=everything", "include"), ("user_id=alice&after=", "after"), ("%FF=1", "query"),
    ("user_id=alice&" + "x" * 200 + "=1", "x" * 64),
]  # fmt: skip


async def test_an_ambiguous_query_is_refused_by_its_parameter(bench):
    for query, param in QUERIES:
        status, _, body = await raw(bench, f"GET /v1/memory?{query}")
        assert (status, f'"param":"{param}"'.encode() in body) == (400, True), (query, body)


async def test_a_wrong_method_is_answered_with_the_right_ones(bench):
    for path, method in product(sorted({o.path for o in OPERATIONS}), ("PROPFIND", "OPTIONS")):
        answer = await bench.http.request(method, path.removeprefix("/v1"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed"), path
        allowed = {o.method for o in OPERATIONS if o.path == path}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        assert set(answer.headers["allow"].split(", ")) == allowed
    for method, path in (("GET", "/search"), ("DELETE", "/export"), ("PATCH", "/import")):
        answer = await bench.http.request(method, f"/memory{path}")
        assert answer.status_code == 405, "a fixed path is never taken for an id"


async def test_head_has_the_headers_of_get_and_no_body(bench):
    made = await bench.add("User likes figs.")
    for path in (f"/memory/{made['id']}", "/memory?user_id=alice", "/memory/export?user_id=alice"):
        answer = await bench.http.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
    assert (await bench.http.head("/memory/mem_none")).status_code == 404


BODIES = [
    b"", b"null", b"[" * 10_000 + b"]" * 10_000, b'{"user_id": "a", "content": "x", "importance": NaN}',
    b'{"user_id": "a", "content": "x", "importance": 1e999}',
    b'{"user_id": "a", "content": "likes \\ud800 figs"}', b'{"user_id": "a", "content": "likes \xff figs"}',
    b'{"user_id": "a", "content": "User likes\\u0000 figs."}',
    b'{"user_id": "a", "content": "likes figs", "created_at": 1e10}',
]  # fmt: skip


async def test_a_body_that_is_not_a_memory_stores_nothing(bench):
    for body in BODIES:
        answer = await bench.http.post("/memory", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), body
        assert (await bench.listed("a"))["total"] == 0


REFUSALS: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "content", "missing_required_parameter", "`content` is required."),
    ({"contents": "x"}, "contents", "unknown_parameter", "did you mean 'content'?"),
    ({"content": 5}, "content", "invalid_type", "string"),
    ({"content": "x", "importance": "1"}, "importance", "invalid_type", "number"),
    ({"content": "x", "importance": 2}, "importance", "invalid_value", "1"),
    ({"content": "x", "type": "odd"}, "type", "invalid_value", "episodic"),
    ({"content": "x" * 4_001}, "content", "string_above_max_length", "4000"),
    ({"content": "x", "tags": [1]}, "tags.0", "invalid_type", "string"),
    ({"content": "x", "expires_at": "tomorrow"}, "expires_at", "invalid_value", "ISO 8601"),
    ({"content": "x", "expires_at": "1999-01-31T09:00:00Z"}, "expires_at", "invalid_value", "past"),
    ({"content": "x", "user_id": None}, "user_id", "missing_required_parameter", "required"),
]


async def test_a_refusal_names_the_field_and_says_how_to_correct_it(bench):
    for body, param, code, text in REFUSALS:
        error = (await bench.http.post("/memory", json={"user_id": "a", **body})).json()["error"]
        assert (error["param"], error["code"], text in error["message"]) == (param, code, True), error


async def test_a_body_over_the_limit_is_413(bench):
    large = b'{"user_id": "a", "content": "' + b"x" * 1_000_001 + b'"}'
    for method, path in (("POST", "/memory"), ("POST", "/memory/search"), ("PATCH", "/memory/mem_1")):
        answer = await bench.http.request(method, path, content=large, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error")


async def test_a_form_of_another_site_can_trigger_nothing(bench):
    user = "?user_id=a"
    for path in ("jobs/retry", "jobs/1/retry", f"sessions/s/end{user}", f"quarantine/q/release{user}"):
        answer = await bench.http.post(f"/memory/{path}", data={"x": "y"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "content-type"), path


async def test_text_is_never_syntax(bench):
    for text in (
        "User's query is '; DROP TABLE memories; --", 'User writes "figs" OR NEAR(a b) AND NOT * ^col : {x}',
        "User likes <script>alert(1)</script> and & entities.",
        "User likes 100% of _underscores_ \\ backslashes.",
    ):  # fmt: skip
        made = await bench.add(text)
        assert (await bench.http.get(f"/memory/{made['id']}")).json()["content"] == made["content"] == text
        await bench.found(text)
        assert [m["id"] for m in (await bench.listed(q=text))["data"]] == [made["id"]]
    assert (await bench.listed(q="%' OR 1=1 --"))["total"] == 0
