"""Ambiguous and malformed paths, queries and bodies are refused, and change nothing."""

import asyncio
from typing import Any

import pytest

from proxy.http.memory_api.openapi import OPERATIONS
from tests.http.memory_api.conftest import Bench
from tests.support.serving import ask

JSON = {"content-type": "application/json"}


async def raw(bench: Bench, line: str, body: bytes = b"", *headers: bytes) -> tuple[int, bytes, bytes]:
    """Send a request line as it is; return status, head and body."""
    head, answer = await ask(bench.origin, line.encode("latin-1"), headers, body)
    return int(head.split()[1]), head, answer


@pytest.mark.parametrize(
    "line",
    [
        "GET /v1/memory/", "DELETE /v1/memory/?user_id=alice", "DELETE /v1/memory//",
        "GET /v1/memory/../memory?user_id=alice", "DELETE /v1/memory/%2e%2e", "DELETE /v1/memory%2Fmem_1",
        "GET /v1/memory/mem_1%2Fhistory", "GET /v1/memory/mem_1/history/", "GET /v1/memory/%FF",
        "GET /v1/memory/mem_1%00?user_id=alice", "GET /v1/memory/" + "a" * 5_000, "GET /v1/memory;x=1",
        "POST /v1/memory/sessions//end?user_id=alice", "DELETE /v1/memory/quarantine/?user_id=alice",
    ],
)  # fmt: skip
async def test_a_path_that_names_nothing_is_absent_and_changes_nothing(bench: Bench, line: str) -> None:
    await bench.add("User likes figs.")
    status, _, body = await raw(bench, line)
    assert (status, b'"error"' in body) == (404, True)
    assert (await bench.listed())["total"] == 1


async def test_an_id_with_a_slash_is_one_id(bench: Bench) -> None:
    answer = await bench.http.post("/memory/sessions/a%2Fb%20c/end?user_id=alice")
    assert (answer.status_code, answer.json()["id"]) == (202, "a/b c")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("user_id=%FF", "user_id"), ("user_id=alice&user_id=bob", "user_id"), ("user_id=%20", "user_id"),
        ("user_id", "user_id"), ("user_id=a%0Ab", "user_id"), ("user_id=alice&USER_ID=bob", "USER_ID"),
        ("user_id=alice&limit=99999999999999999999", "limit"), ("user_id=alice&limit=%2B5", "limit"),
        ("user_id=alice&limit=5_0", "limit"), ("user_id=alice&limit=%D9%A5", "limit"),
        ("user_id=alice&include=everything", "include"), ("user_id=alice&after=", "after"),
        ("%FF=1", "query"),        ("user_id=alice&" + "x" * 200 + "=1", "x" * 64),
    ],
)  # fmt: skip
async def test_an_ambiguous_query_is_refused_by_its_parameter(bench: Bench, query: str, param: str) -> None:
    status, _, body = await raw(bench, f"GET /v1/memory?{query}")
    assert status == 400, body
    assert f'"param":"{param}"'.encode() in body


@pytest.mark.parametrize("path", sorted({o.path for o in OPERATIONS}))
@pytest.mark.parametrize("method", ["PUT", "PROPFIND"])
async def test_a_wrong_method_is_answered_with_the_right_ones(bench: Bench, path: str, method: str) -> None:
    answer = await bench.http.request(method, path.removeprefix("/v1"))
    assert answer.status_code == 405
    allowed = {o.method for o in OPERATIONS if o.path == path}
    assert set(answer.headers["allow"].split(", ")) == allowed | ({"HEAD"} if "GET" in allowed else set())
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/search"), ("DELETE", "/export"), ("PATCH", "/import")]
)
async def test_a_fixed_path_is_never_taken_for_an_id(bench: Bench, method: str, path: str) -> None:
    assert (await bench.http.request(method, f"/memory{path}")).status_code == 405


async def test_head_has_the_headers_of_get_and_no_body(bench: Bench) -> None:
    made = await bench.add("User likes figs.")
    for path in (f"/memory/{made['id']}", "/memory?user_id=alice", "/memory/export?user_id=alice"):
        answer = await bench.http.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
    assert (await bench.http.head("/memory/mem_none")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[" * 10_000 + b"]" * 10_000, b'{"user_id": "a", "content": "x", "importance": NaN}',
        b'{"user_id": "a", "content": "x", "importance": 1e999}',
        b'{"user_id": "a", "content": "likes \\ud800 figs"}',
        b'{"user_id": "a", "content": "likes \xff figs"}',
        b'{"user_id": "a", "content": "User likes\\u0000 figs."}',
        b'{"user_id": "a", "content": "likes figs", "created_at": 1e10}',
    ],
)  # fmt: skip
async def test_a_body_that_is_not_a_memory_stores_nothing(bench: Bench, body: bytes) -> None:
    answer = await bench.http.post("/memory", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (await bench.listed("a"))["total"] == 0


@pytest.mark.parametrize(
    ("body", "param", "code", "text"),
    [
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
    ],
)
async def test_a_refusal_names_the_field_and_says_how_to_correct_it(
    bench: Bench, body: dict[str, Any], param: str, code: str, text: str
) -> None:
    answer = await bench.http.post("/memory", json={"user_id": "a", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
    assert text in error["message"]


async def test_a_body_over_the_limit_is_413(bench: Bench) -> None:
    large = b'{"user_id": "a", "content": "' + b"x" * 1_000_001 + b'"}'
    for method, path in (("POST", "/memory"), ("POST", "/memory/search"), ("PATCH", "/memory/mem_1")):
        answer = await bench.http.request(method, path, content=large, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error")


@pytest.mark.parametrize(
    "path", ["/jobs/retry", "/jobs/1/retry", "/sessions/s/end?user_id=a", "/quarantine/q/release?user_id=a"]
)
async def test_a_form_of_another_site_can_trigger_nothing(bench: Bench, path: str) -> None:
    answer = await bench.http.post(f"/memory{path}", data={"x": "y"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "content-type")


@pytest.mark.parametrize(
    "text",
    [
        "User's query is '; DROP TABLE memories; --", 'User writes "figs" OR NEAR(a b) AND NOT * ^col : {x}',
        "User likes <script>alert(1)</script> and & entities.",
        "User likes 100% of _underscores_ \\ backslashes.",
    ],
)  # fmt: skip
async def test_text_is_never_syntax(bench: Bench, text: str) -> None:
    made = await bench.add(text)
    assert (await bench.http.get(f"/memory/{made['id']}")).json()["content"] == made["content"] == text
    await bench.found(text)
    assert [m["id"] for m in (await bench.listed(q=text))["data"]] == [made["id"]]
    assert (await bench.listed(q="%' OR 1=1 --"))["total"] == 0


async def test_a_client_that_leaves_in_the_middle_of_a_body_stores_nothing(bench: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bench.origin.rpartition(":")[2]))
    writer.write(
        b"POST /v1/memory HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
        b'{"user_id": "a", "content": "likes figs"}'
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    del reader
    assert (await bench.listed("a"))["total"] == 0
