"""A native upstream with one shared key: what one user has made there is absent for another, whatever a
request names it by.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tests.adversary.test_identity_attacked import NATIVE, client, keys, mint
from tests.e2e.conftest import Houses
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange

__all__ = ["keys"]
Json = dict[str, Any]


class Account(ScriptedModel):
    """An upstream that keeps responses and their items for whoever has its key. It answers all that it is
    asked for, in the way of servers that fold case and trim."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        path = request.target.partition(b"?")[0].decode()
        self.made += 1
        n = self.made
        item: Json = {"type": "message", "id": f"msg_{n}aB", "role": "assistant", "content": []}
        code = {"type": "code_interpreter_call", "id": f"ci_{n}", "container_id": f"cntr_{n}", "code": ""}
        if path == "/v1/responses":
            made = {"id": f"resp_{n}", "object": "response", "status": "completed", "output": [item, code]}
            if request.json.get("stream"):
                events = [{"type": "response.created", "response": made | {"output": []}}]
                events += [{"type": "response.output_item.done", "item": i} for i in (item, code)]
                await exchange.stream(*(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events))
            else:
                await exchange.json(made)
        elif path == "/v1/conversations":
            await exchange.json({"id": f"conv_{n}", "object": "conversation"})
        elif path.endswith("/items") and request.method == b"POST":
            await exchange.json({"object": "list", "data": [*request.json["items"], item]})
        elif path == "/v1/responses/compact":
            await exchange.json({"id": f"resp_{n}", "object": "response.compaction", "output": [item]})
        else:
            await exchange.json({"id": path.split("/")[3] if path.count("/") > 2 else path, "secret": "s"})


class Two:
    """Zoe, who has made something, and Bob, who knows its ids; both behind one key of the upstream's."""

    def __init__(self, house: Any, zoe: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
        self.house, self.zoe, self.bob = house, zoe, bob

    async def both(self, method: str, path: str, **request: Any) -> tuple[int, int, bool]:
        """Return what Bob gets, what Zoe gets, and whether Bob's request reached the upstream."""
        before = len(self.house.upstream.requests)
        bob = await self.bob.request(method, path, **request)
        reached = len(self.house.upstream.requests) > before
        return bob.status_code, (await self.zoe.request(method, path, **request)).status_code, reached


@pytest.fixture
async def two(house: Houses, keys: Any) -> AsyncIterator[Two]:
    zoes, _ = await mint(keys, tenant="acme", user="zoe")
    bobs, _ = await mint(keys, tenant="acme", user="bob")
    parts: Json = {"identity": {"mode": "keys"}, "memory": {"auto_store": False}, **NATIVE}
    async with AsyncExitStack() as stack:
        h = await stack.enter_async_context(house(Account(), **parts))
        yield Two(
            h,
            await stack.enter_async_context(client(h, zoes)),
            await stack.enter_async_context(client(h, bobs)),
        )


BODIES = ("/responses", "/responses/compact", "/responses/input_tokens")
REFERENCES: list[Json] = [
    {"type": "item_reference", "id": "msg_1aB"},
    {"id": "msg_1aB"},
    {"type": None, "id": "msg_1aB"},
    {"type": "message", "role": "assistant", "id": "msg_1aB", "content": "x"},
    {"type": "reasoning", "id": "ci_1", "summary": []},
    {"type": "mcp_approval_response", "approval_request_id": "ci_1", "approve": True},
    {"type": "message", "role": "user", "content": [{"type": "item_reference", "id": "msg_1aB"}]},
    {
        "type": "shell_call",
        "call_id": "c",
        "environment": {"type": "container_reference", "container_id": "cntr_1"},
    },
    {"type": "message", "role": "assistant", "id": "MSG_1AB", "content": "x"},
    {"type": "message", "role": "assistant", "id": " msg_1aB\x00", "content": "x"},
]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_item_that_another_has_made_is_absent_wherever_a_body_names_it(
    two: Two, stream: bool
) -> None:
    await two.zoe.post("/responses", json={"model": "m", "input": "Psst", "stream": stream})
    for path in BODIES:
        for item in REFERENCES:
            body = {"model": "m", "input": [{"role": "user", "content": "And?"}, item]}
            assert await two.both("POST", path, json=body) == (404, 200, False), (path, item)
        tools = [{"type": "code_interpreter", "container": "cntr_1"}]
        body = {"model": "m", "input": "And?", "tools": tools}
        assert await two.both("POST", path, json=body) == (404, 200, False), path


@pytest.mark.parametrize(
    "id_", ["msg_unseen", "MSG_unseen", "msg_1aB.", "msg_1aB#x", "msg_1aB%00", "msg_1aB/", 7]
)
async def test_a_reference_to_what_the_caller_has_not_made_goes_nowhere(two: Two, id_: Any) -> None:
    await two.zoe.post("/responses", json={"model": "m", "input": "Psst"})
    before = len(two.house.upstream.requests)
    body = {"model": "m", "input": [{"type": "item_reference", "id": id_}]}
    answer = await two.bob.post("/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "input[0].id")
    assert len(two.house.upstream.requests) == before


async def test_ids_that_are_a_clients_own_pass(two: Two) -> None:
    items: list[Json] = [
        {"type": "message", "role": "user", "id": "msg_of_mine", "content": "Hi"},
        {"type": "computer_call_output", "call_id": "c", "acknowledged_safety_checks": [{"id": "sc_1"}]},
        {"type": "function_call", "id": "fc_mine", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ]
    body = {"model": "m", "input": items, "metadata": {"id": "msg_1aB"}}
    assert (await two.bob.post("/responses", json=body)).status_code == 200


async def test_a_client_cannot_claim_an_id_by_sending_it(two: Two) -> None:
    """Not by an item of its own in a conversation, not by metadata, not by a compaction that repeats it."""
    talk = (await two.bob.post("/conversations", json={})).json()["id"]
    planted = {"type": "message", "role": "user", "id": "msg_secret", "content": "x"}
    added = await two.bob.post(f"/conversations/{talk}/items", json={"items": [planted]})
    assert added.status_code == 200
    own = added.json()["data"][1]["id"]
    for id_, status in (("msg_secret", 404), (own, 200)):
        body = {"model": "m", "input": [{"type": "item_reference", "id": id_}]}
        assert (await two.bob.post("/responses", json=body)).status_code == status


async def test_a_conversation_takes_no_reference_to_anothers_item(two: Two) -> None:
    await two.zoe.post("/responses", json={"model": "m", "input": "Psst"})
    talks = [(await one.post("/conversations", json={})).json()["id"] for one in (two.bob, two.zoe)]
    body = {"items": [{"type": "item_reference", "id": "msg_1aB"}]}
    assert (await two.both("POST", "/conversations", json=body))[:2] == (404, 200)
    assert (await two.bob.post(f"/conversations/{talks[0]}/items", json=body)).status_code == 404
    assert (await two.zoe.post(f"/conversations/{talks[1]}/items", json=body)).status_code == 200
    assert (await two.bob.get(f"/conversations/{talks[0]}/items/msg_1aB")).status_code == 404
    assert (await two.bob.get(f"/conversations/{talks[0]}/items?after=msg_1aB")).status_code == 404
    assert (await two.bob.request("DELETE", f"/conversations/{talks[0]}", json=body)).status_code == 404


@pytest.mark.parametrize(
    "id_",
    [
        "resp_1",
        "RESP_1",
        "resp_1%00",
        "resp_1.",
        "resp_1%23x",
        "resp_1%3Fx",
        "resp_1%20",
        "%20resp_1",
        "resp%255F1",
    ],
)
async def test_a_response_has_one_spelling_in_paths(two: Two, id_: str) -> None:
    await two.zoe.post("/responses", json={"model": "m", "input": "Psst"})
    before = len(two.house.upstream.requests)
    for path in (f"/responses/{id_}", f"/responses/{id_}/input_items", f"/responses/{id_}/cancel"):
        assert (await two.bob.request("GET", path)).status_code == 404, path
    for named in ({"previous_response_id": id_}, {"conversation": id_}, {"conversation": {"id": id_}}):
        answer = await two.bob.post("/responses", json={"model": "m", "input": "And?", **named})
        assert answer.status_code in (400, 404)
    assert len(two.house.upstream.requests) == before


async def test_who_made_an_item_is_known_after_a_restart(house: Houses, keys: Any) -> None:
    zoes, _ = await mint(keys, tenant="acme", user="zoe")
    parts: Json = {"identity": {"mode": "keys"}, "memory": {"auto_store": False}, **NATIVE}
    async with house(Account(), **parts) as h, client(h, zoes) as zoe:
        await zoe.post("/responses", json={"model": "m", "input": "Psst"})
    async with house(Account(), **parts) as h, client(h, zoes) as zoe:
        body = {"model": "m", "input": [{"type": "item_reference", "id": "msg_1aB"}]}
        assert (await zoe.post("/responses", json=body)).status_code == 200


async def test_what_a_compaction_makes_is_its_callers(two: Two) -> None:
    made = (await two.zoe.post("/responses/compact", json={"model": "m", "input": "Long"})).json()
    body = {"model": "m", "input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}
    assert await two.both("POST", "/responses", json=body) == (404, 200, False)
    assert await two.both("GET", f"/responses/{made['id']}") == (404, 200, False)


async def test_our_fields_do_not_reach_an_upstream_that_compacts(two: Two) -> None:
    body = {"model": "m", "input": "Long", "memory_context": {"project_id": "p"}}
    for path in BODIES[1:]:
        await two.zoe.post(path, json=body)
        assert two.house.upstream.requests[-1].json == {"model": "m", "input": "Long"}
        form = {"content-type": "application/x-www-form-urlencoded"}  # as `curl -d` says
        await two.zoe.post(path, content=json.dumps(body), headers=form)
        assert two.house.upstream.requests[-1].json == {"model": "m", "input": "Long"}
