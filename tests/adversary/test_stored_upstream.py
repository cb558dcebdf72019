"""An upstream that stores responses itself, with one key for all users: what one user created there is
unknown to another, however a request refers to it.
"""

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import House, Json
from tests.http.auth.minting import mint
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange

NATIVE: Any = {
    "identity": {"mode": "keys"},
    "memory": {"auto_store": False},
    "upstream_extra": {"api_key": "sk-server", "responses": "native"},
}
JSON = {"content-type": "application/json"}


class Account(ScriptedModel):
    """An upstream that answers every request of its one key, like servers that fold case and trim ids."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        path = request.target.partition(b"?")[0].decode()
        self.count += 1
        n = self.count
        item: Json = {"type": "message", "id": f"msg_{n}aB", "role": "assistant", "content": []}
        code = {"type": "code_interpreter_call", "id": f"ci_{n}", "container_id": f"cntr_{n}", "code": ""}
        if path == "/v1/responses" and request.method == b"POST":
            made = {"id": f"resp_{n}", "object": "response", "status": "completed", "output": [item, code]}
            if request.json.get("stream"):
                events = [{"type": "response.created", "response": made | {"output": []}}]
                events += [{"type": "response.output_item.done", "item": i} for i in (item, code)]
                await exchange.stream(*(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events))
            else:
                await exchange.json(made)
        elif path == "/v1/conversations" and request.method == b"POST":
            await exchange.json({"id": f"conv_{n}", "object": "conversation"})
        elif path.endswith("/items") and request.method == b"POST":
            await exchange.json({"object": "list", "data": [*request.json["items"], item]})
        elif path == "/v1/responses/compact":
            await exchange.json({"id": f"resp_{n}", "object": "response.compaction", "output": [item]})
        else:
            await exchange.json({"id": path.split("/")[3] if path.count("/") > 2 else path, "secret": "s"})


class Two:
    """Zoe, who created something, and Bob and two users of another tenant, who know its ids."""

    def __init__(self, house: House, zoe: httpx2.AsyncClient, *others: httpx2.AsyncClient) -> None:
        self.house, self.zoe, self.bob, self.others = house, zoe, others[0], others

    async def both(self, method: str, path: str, **request: Any) -> tuple[set[int], int, bool]:
        """Return what the others get, what Zoe gets, and whether a request of the others was forwarded."""
        before = len(self.house.upstream.requests)
        statuses = {(await other.request(method, path, **request)).status_code for other in self.others}
        forwarded = len(self.house.upstream.requests) > before
        return statuses, (await self.zoe.request(method, path, **request)).status_code, forwarded

    async def psst(self, *, stream: bool = False) -> None:
        """Zoe creates resp_1 with the items msg_1aB and ci_1 in the container cntr_1."""
        await self.zoe.post("/responses", json={"model": "m", "input": "Psst", "stream": stream})


@pytest.fixture
async def two(house, keys, request):
    who: list[Any] = [
        {"user": "zoe"},
        {"user": "bob"},
        {"tenant": "umbrella", "user": "zoe"},
        {"tenant": "u"},
    ]
    minted = [(await mint(keys, **one))[0] for one in who]
    extra = NATIVE["upstream_extra"] | {"responses": getattr(request, "param", "native")}
    async with AsyncExitStack() as stack:
        h = await stack.enter_async_context(house(Account(), **NATIVE | {"upstream_extra": extra}))
        yield Two(h, *[await stack.enter_async_context(h.http(key)) for key in minted])


BODIES = ("/responses", "/responses/compact", "/responses/input_tokens")
REFERENCES: list[Json] = [
    {"type": "item_reference", "id": "msg_1aB"},
    {"id": "msg_1aB"},
    {"type": None, "id": "msg_1aB"},
    {"type": "message", "role": "assistant", "id": "msg_1aB", "content": "x"},
    {"type": "reasoning", "id": "ci_1", "summary": []},
    {"type": "mcp_approval_response", "approval_request_id": "ci_1", "approve": True},
    {"type": "message", "role": "user", "content": [{"type": "item_reference", "id": "msg_1aB"}]},
    {"type": "shell_call", "environment": {"type": "container_reference", "container_id": "cntr_1"}},
    {"type": "message", "role": "assistant", "id": "MSG_1AB", "content": "x"},
    {"type": "message", "role": "assistant", "id": " msg_1aB\x00", "content": "x"},
]


@pytest.mark.parametrize("stream", [False, True])
async def test_another_users_item_is_unknown_wherever_a_body_refers_to_it(two, stream):
    await two.psst(stream=stream)
    for path in BODIES:
        inputs: list[Json] = [{"input": [{"role": "user", "content": "And?"}, item]} for item in REFERENCES]
        inputs.append({"input": "And?", "tools": [{"type": "code_interpreter", "container": "cntr_1"}]})
        for body in inputs:
            assert await two.both("POST", path, json={"model": "m"} | body) == ({404}, 200, False), body


@pytest.mark.parametrize("two", ["native", "auto"], indirect=True)
async def test_another_users_response_and_conversation_are_unknown_on_every_route(two):
    await two.psst()
    talk = (await two.zoe.post("/conversations", json={}, headers={"accept-encoding": "gzip"})).json()["id"]
    previous = {"model": "m", "input": "And?", "previous_response_id": "resp_1"}
    # Of a repeated key, one server reads the first and another the last.
    twice = '{"model": "m", "input": "", "previous_response_id": "resp_x", "previous_response_id": "resp_1"}'
    inside = {"model": "m", "input": "And?", "conversation": talk}
    for method, path, request, status in (
        ("GET", "/responses/resp_1", {}, 404),
        ("GET", "/responses/resp%5F1/input_items", {}, 404),
        ("DELETE", "/responses/resp_1", {}, 404),
        ("POST", "/responses/resp_1/cancel", {}, 404),
        ("POST", "/responses", {"json": previous}, 400),
        ("POST", "/responses/compact", {"json": previous}, 400),
        ("POST", "/responses", {"content": twice, "headers": JSON}, 400),
        ("POST", "/responses", {"json": inside}, 404),
        ("POST", "/responses", {"json": inside | {"conversation": {"id": talk}}}, 404),
        ("GET", f"/conversations/{talk}", {}, 404),
        ("GET", f"/conversations/{talk}/items", {}, 404),
        ("POST", f"/conversations/{talk}/items", {"json": {"items": []}}, 404),
        ("POST", f"/conversations/{talk}", {"json": {"metadata": {}}}, 404),
        ("DELETE", f"/conversations/{talk}", {}, 404),
    ):
        assert await two.both(method, path, **request) == ({status}, 200, False), (method, path)
    forwarded = [r.body for r in two.house.upstream.requests if b"resp_x" in r.body or b"resp_1" in r.body]
    assert all(body.count(b"previous_response_id") == 1 for body in forwarded)


async def test_a_reference_to_an_unknown_item_is_not_forwarded(two):
    await two.psst()
    before = len(two.house.upstream.requests)
    for id_ in ("msg_unseen", "MSG_unseen", "msg_1aB.", "msg_1aB#x", "msg_1aB%00", "msg_1aB/", 7):
        body = {"model": "m", "input": [{"type": "item_reference", "id": id_}]}
        answer = await two.bob.post("/responses", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "input[0].id"), id_
    assert len(two.house.upstream.requests) == before


async def test_a_response_has_one_spelling(two):
    await two.psst()
    before = len(two.house.upstream.requests)
    for id_ in "resp_1 RESP_1 resp_1%00 resp_1. resp_1%23x resp_1%3Fx resp_1%20 %20resp_1 resp%255F1".split():
        for path in (f"/responses/{id_}", f"/responses/{id_}/input_items", f"/responses/{id_}/cancel"):
            assert (await two.bob.get(path)).status_code == 404, path
        for named in ({"previous_response_id": id_}, {"conversation": id_}, {"conversation": {"id": id_}}):
            answer = await two.bob.post("/responses", json={"model": "m", "input": "And?", **named})
            assert answer.status_code in (400, 404), named
    assert len(two.house.upstream.requests) == before


async def test_a_clients_own_ids_pass_but_do_not_claim_an_id(two):
    items: list[Json] = [
        {"type": "message", "role": "user", "id": "msg_of_mine", "content": "Hi"},
        {"type": "computer_call_output", "call_id": "c", "acknowledged_safety_checks": [{"id": "sc_1"}]},
        {"type": "function_call", "id": "fc_mine", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ]
    body: Json = {"model": "m", "input": items, "metadata": {"id": "msg_1aB"}}
    assert (await two.bob.post("/responses", json=body)).status_code == 200
    talk = (await two.bob.post("/conversations", json={})).json()["id"]
    planted = {"type": "message", "role": "user", "id": "msg_secret", "content": "x"}
    added = await two.bob.post(f"/conversations/{talk}/items", json={"items": [planted]})
    for id_, status in (("msg_secret", 404), (added.json()["data"][1]["id"], 200)):
        body = {"model": "m", "input": [{"type": "item_reference", "id": id_}]}
        assert (await two.bob.post("/responses", json=body)).status_code == status


async def test_a_conversation_accepts_no_reference_to_another_users_item(two):
    await two.psst()
    bobs, zoes = [(await one.post("/conversations", json={})).json()["id"] for one in (two.bob, two.zoe)]
    body = {"items": [{"type": "item_reference", "id": "msg_1aB"}]}
    assert (await two.both("POST", "/conversations", json=body))[:2] == ({404}, 200)
    assert (await two.zoe.post(f"/conversations/{zoes}/items", json=body)).status_code == 200
    for method, path, request in (
        ("POST", f"/conversations/{bobs}/items", {"json": body}),
        ("GET", f"/conversations/{bobs}/items/msg_1aB", {}),
        ("GET", f"/conversations/{bobs}/items?after=msg_1aB", {}),
        ("DELETE", f"/conversations/{bobs}", {"json": body}),
    ):
        assert (await two.bob.request(method, path, **request)).status_code == 404, path


async def test_a_compaction_belongs_to_its_caller(two):
    made = (await two.zoe.post("/responses/compact", json={"model": "m", "input": "Long"})).json()
    body = {"model": "m", "input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}
    assert await two.both("POST", "/responses", json=body) == ({404}, 200, False)
    assert await two.both("GET", f"/responses/{made['id']}") == ({404}, 200, False)


async def test_our_fields_do_not_reach_the_upstream(two):
    context = {"memory_context": {"project_id": "p"}}
    for path, body in (
        ("/responses/compact", {"model": "m", "input": "Long"}),
        ("/responses/input_tokens", {"model": "m", "input": "Long"}),
        ("/conversations", {"metadata": {}}),
    ):
        await two.zoe.post(path, json=body | context)
        assert two.house.upstream.requests[-1].json == body
    form = {"content-type": "application/x-www-form-urlencoded"}  # as `curl -d` sends it
    for path in BODIES[1:]:
        content = json.dumps({"model": "m", "input": "Long"} | context)
        await two.zoe.post(path, content=content, headers=form)
        assert two.house.upstream.requests[-1].json == {"model": "m", "input": "Long"}


async def test_ownership_survives_a_restart_and_a_failing_store(house, keys):
    zoes, _ = await mint(keys, user="zoe")
    bobs, _ = await mint(keys, user="bob")
    disabled = NATIVE | {"memory": {"enabled": False}}
    async with house(Account(), **disabled) as h, h.http(zoes) as zoe:
        assert (await zoe.post("/responses", json={"model": "m", "input": "Psst"})).status_code == 200
    async with house(Account(), **NATIVE) as h, h.http(zoes) as zoe, h.http(bobs) as bob:

        async def statuses():
            return tuple([(await one.get("/responses/resp_1")).status_code for one in (zoe, bob)])

        assert await statuses() == (200, 404)
        assert (await bob.get("/responses/resp_made_elsewhere")).status_code == 200
        own = {"model": "m", "input": [{"type": "item_reference", "id": "msg_1aB"}]}
        assert (await zoe.post("/responses", json=own)).status_code == 200
        await h.app.routes.auth.authenticator.keys._store._database.close()
        assert await statuses() == (200, 404)
        assert (await bob.get("/responses/resp_unknown_here")).status_code == 503
        assert (await bob.post("/responses", json={"model": "m", "input": "Hi"})).status_code == 200
