"""What nobody sends, and somebody always does."""

import json
from typing import Any

import httpx2
import pytest

from tests.adversary.conftest import context, listed, post, tell, until
from tests.e2e.conftest import Houses
from tests.support.model import ScriptedModel, known
from tests.support.serving import ask

TEA = ("oolong", "User likes oolong tea.")
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}]} | context()).encode()


@pytest.mark.parametrize(
    "line", [b"GET /%76%31/models", b"GET /v%31/models", b"POST /%76%31/chat/completions"]
)
async def test_a_percent_encoded_prefix_is_no_internal_error(house: Houses, line: bytes) -> None:
    async with house() as h:
        headers = (b"content-type: application/json",) if line.startswith(b"POST") else ()
        head, _ = await ask(h.origin, line, headers, BODY if headers else b"")
        assert head.split(b" ")[1] in (b"200", b"404")


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/embeddings"])
async def test_an_offered_upgrade_to_http_2_loses_no_body(house: Houses, path: bytes) -> None:
    async with house() as h:
        offered = (
            b"connection: Upgrade, HTTP2-Settings",
            b"upgrade: h2c",
            b"http2-settings: AAMAAABkAAQAAP__",
        )
        head, _ = await ask(h.origin, b"POST " + path, (*offered, b"content-type: application/json"), BODY)
        assert head.split(b" ")[1] == b"200"
        assert h.upstream.requests[-1].json["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_client_that_leaves_while_it_sends_a_memory_is_no_error(house: Houses) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"content"', "more_body": True},
        {"type": "http.disconnect"},
    ]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/memory", "raw_path": b"/v1/memory",
        "query_string": b"", "root_path": "", "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:
        pass

    async with house() as h:
        await h.app.routes(scope, receive, send)


async def test_a_memory_path_with_a_trailing_slash_is_not_found(house: Houses) -> None:
    async with house() as h:
        head, body = await ask(h.origin, b"DELETE /v1/memory/?user_id=alice")
        assert head.split(b" ")[1] == b"404"
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


EXOTIC = [
    "alice", "Alice", " alice", "alice ", "ａlice", "al\u200bice", "alic%", "_lice", "' OR 1=1 --",
    '{"$ne":1}', "null", "é", "e\u0301", "💩", "u" * 256, "u" * 255,
]  # fmt: skip


async def test_users_of_exotic_names_see_their_own_memories_and_no_others(house: Houses) -> None:
    async with house(memory={"extraction": "off"}) as h, httpx2.AsyncClient(timeout=30) as http:
        for n, user in enumerate(EXOTIC):
            body = {"content": f"User owns boat number {n}.", "user_id": user}
            assert (await http.post(f"{h.base_url}/memory", json=body)).status_code == 201
        for n, user in enumerate(EXOTIC):
            assert await listed(h, user) == [f"User owns boat number {n}."], user
            query = {"query": "boat", "user_id": user}
            found = (await http.post(f"{h.base_url}/memory/search", json=query)).json()["data"]
            assert [f["memory"]["content"] for f in found] == [f"User owns boat number {n}."], user
        gone = await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})
        assert gone.json()["deleted_count"] == 1
        left = [await listed(h, user) for user in EXOTIC]
        assert [bool(memories) for memories in left] == [False, *[True] * (len(EXOTIC) - 1)]


async def test_equal_session_ids_of_two_users_and_projects_share_nothing(house: Houses) -> None:
    async with house(ScriptedModel(facts=known(TEA))) as h:
        await tell(h, "I like oolong tea.", extra=context("alice", session_id="s", project_id="p"))
        await until(lambda: listed(h))
        question = "Which drink do I enjoy?"
        for who in (context("bob", session_id="s", project_id="p"), context("bob", session_id="s")):
            assert (await tell(h, question, extra=who)).headers["x-memory-status"] == "none"
        other = await tell(h, question, extra=context("alice", session_id="s", project_id="q"))
        assert other.headers["x-memory-status"] == "none"
        body_wins = await tell(h, question, extra=context("bob"), **{"x-memory-user-id": "alice"})
        assert body_wins.headers["x-memory-status"] == "none"


async def test_two_people_with_the_same_placeholder_share_nothing(house: Houses) -> None:
    async with house(ScriptedModel(facts=known(TEA)), identity={"accept_openai_user": True}) as h:
        unfilled = "{{LIBRECHAT_USER_ID}}"
        text = {"messages": [{"role": "user", "content": "I like oolong tea."}]}
        for answer in (
            await post(h, text | context(unfilled)),
            await post(h, text, **{"x-memory-user-id": unfilled}),
            await post(h, text | {"user": "undefined"}),
            await post(h, text | {"safety_identifier": "[object Object]"}),
        ):
            assert answer.status_code == 200
            said = answer.headers
            assert (said["x-memory-reason"], said["x-memory-store"]) == ("unfilled_user", "off")
        empty = {f"x-memory-{name}": "" for name in ("user-id", "project-id", "session-id", "mode")}
        assert (await post(h, text, **empty)).headers["x-memory-reason"] == "no_user"
        named = await post(h, text | context("alice"), **empty)
        assert named.headers["x-memory-store"] == "queued"


@pytest.mark.parametrize("project", ["", "{{PROJECT}}"])
async def test_an_empty_project_header_forgets_nothing_more_widely(house: Houses, project: str) -> None:
    async with house() as h, httpx2.AsyncClient(timeout=30) as http:
        headers = {"x-memory-project-id": project}
        answer = await http.delete(f"{h.base_url}/memory?user_id=alice", headers=headers)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Memory-Project-Id")
        assert (await http.get(f"{h.base_url}/memory?user_id=alice", headers=headers)).status_code == 200
