"""Mode auto: the upstream is asked once, believed, and asked again."""

from typing import Any

import pytest
from openai import NotFoundError

from proxy.http.responses import router as auto
from tests.e2e.chat_only import ChatOnly
from tests.support.upstream import Exchange


class Changing(ChatOnly):
    """Speaks the Responses API while `native` is true."""

    native = False

    async def __call__(self, exchange: Exchange) -> None:
        target = exchange.request.target
        if not (self.native and target.startswith((b"/v1/responses", b"/v1/conversations"))):
            await super().__call__(exchange)
            return
        self.chats.append(exchange.request)
        if exchange.request.method == b"POST" and exchange.request.json.get("model") == "deleted":
            await exchange.json({"error": {"message": "The model `gone` does not exist", "code": None}}, 404)
        else:
            await exchange.json(NATIVE)


NATIVE: dict[str, Any] = {
    "id": "resp_abc", "object": "response", "created_at": 1, "status": "completed", "model": "m",
    "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}  # fmt: skip


async def test_a_native_upstream_keeps_its_own_responses(house):
    model = Changing()
    model.native = True
    async with house(model) as h:
        body = {"model": "m", "input": "Hi"}
        assert (await h.post("/responses", body)).json() == NATIVE
        assert model.chats[-1].json == body
        assert await h.get("/responses/resp_abc") == NATIVE
        assert (await h.post("/conversations", {})).json() == NATIVE
        assert model.chats[-1].target == b"/v1/conversations"
        unknown = await h.post("/responses", {"model": "deleted", "input": "Hi"})
        assert (unknown.status_code, "does not exist" in unknown.text) == (404, True)
        assert (await h.post("/responses", body)).json() == NATIVE


class NoConversations(Changing):
    """Speaks the Responses API without conversations, as vLLM and Ollama do."""

    native = True

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target.startswith(b"/v1/conversations"):
            status = 404 if exchange.request.method == b"POST" else 405
            await exchange.json({"detail": "Not Found"}, status)
        else:
            await super().__call__(exchange)


async def test_chains_of_the_upstream_continue_without_its_conversations(house):
    model = NoConversations()
    async with house(model) as h, h.client() as client, h.http() as http:
        assert (await client.responses.create(model="m", input="Hi")).id == "resp_abc"
        assert (await http.get("/conversations")).status_code == 405
        for _ in range(2):
            conversation = await client.conversations.create()
            assert conversation.id.startswith("conv_mp"), "kept here"
            more = await client.responses.create(model="m", input="More", previous_response_id="resp_abc")
            assert more.id == "resp_abc"
        said = await client.responses.create(model="m", input="Hi", conversation=conversation.id)
        assert said.output_text == "All right."


class Counting(Changing):
    """Native; gives each response an id of its own."""

    native = True

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target != b"/v1/responses":
            await super().__call__(exchange)
            return
        self.chats.append(exchange.request)
        await exchange.json({**NATIVE, "id": f"resp_{len(self.chats)}"})


async def test_what_the_upstreams_chain_holds_is_not_injected_again(house):
    async with house(Counting(), memory={"auto_store": False}) as h:
        await h.add("User's boat is moored in Hobart.", "The harbour master of User's marina is called Ann.")

        async def ask(previous="", session=None, **more):
            named = {"memory_context": {"user_id": "alice", "session_id": session}}
            chain = {"previous_response_id": previous} if previous else {}
            body = {"model": "m", "input": "Where is my boat moored?", **named, **chain, **more}
            answer = await h.post("/responses", body)
            return set(filter(None, answer.headers.get("x-memory-ids", "").split(",")))

        (first,) = await ask(memory_config={"retrieval_limit": 1})
        (other,) = await ask("resp_1")
        assert other != first
        assert await ask("resp_1", session="s") == {other}, "a branch, in a named session"
        assert await ask("resp_2") == set()
        assert await ask("resp_4") == set()
        assert await ask() == {first, other}, "another chain"
        assert await ask("resp_0") == {first, other}, "of which nothing is known"


async def test_an_upstream_that_learns_or_forgets_the_api_is_noticed(house, monkeypatch):
    monkeypatch.setattr(auto.EndpointProbe.__init__, "__defaults__", (0.0,))  # asks again every time
    model = Changing()
    async with house(model) as h, h.client() as client:
        ours = await client.responses.create(model="m", input="Hi")
        assert (ours.output_text, len(model.unknown), len(model.chats)) == ("All right.", 1, 1)
        model.native = True
        assert (await client.responses.create(model="m", input="Hi")).id == "resp_abc"
        later = await client.responses.create(model="m", input="More", previous_response_id=ours.id)
        assert later.output_text == "All right.", "what was made here goes on here"
        assert (await client.responses.retrieve(ours.id)).id == ours.id
        model.native = False
        assert (await client.responses.create(model="m", input="Hi")).output_text == "All right."


async def test_mode_native_never_translates(house):
    model = Changing()
    async with house(model, upstream_extra={"responses": "native"}) as h, h.client() as client:
        for _ in range(2):
            with pytest.raises(NotFoundError):
                await client.responses.create(model="m", input="Hi")
        with pytest.raises(NotFoundError):
            await client.responses.retrieve("resp_mp1")
        assert [r.target for r in model.unknown] == [b"/v1/responses"] * 2 + [b"/v1/responses/resp_mp1"]
