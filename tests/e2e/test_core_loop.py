"""The main job, with the real OpenAI SDK: said in one conversation, known in the next."""

from typing import Any

import pytest

from tests.e2e.conftest import House, context, until, when
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange

FIVE = (
    ("Hawaii", "User's budget for the Hawaii trip is $10,000.", "My budget for the Hawaii trip is $10,000."),
    ("peanut", "User is allergic to peanuts.", "Peanuts nearly killed me once, I'm allergic to peanuts."),
    ("cello", "User plays the cello.", "I play the cello on Thursdays."),
    ("Madison", "User lives in Madison, Wisconsin.", "We live in Madison, Wisconsin now."),
    ("Priya", "User's manager is Priya Natarajan.", "My manager, Priya Natarajan, is on leave."),
)
QUESTIONS = (
    ("How much money can I spend on vacation?", "Hawaii"),
    ("Which snacks should I stay away from?", "peanuts"),
    ("What instrument do I perform on?", "cello"),
    ("Which city is my home in?", "Madison"),
    ("Who is my boss?", "Priya"),
)


async def say(h: House, user: str, text: str, *, stream: bool) -> str:
    """One turn through the SDK; returns the answer's text."""
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": text}], "extra_body": context(user)}
    async with h.client() as client:
        if not stream:
            answer = await client.chat.completions.create(**asked)
            return answer.choices[0].message.content or ""
        chunks = await client.chat.completions.create(**asked, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in chunks])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_five_things_said_are_known_in_a_new_conversation_and_to_no_other_user(house, stream):
    model = ScriptedModel(facts=known(*((cue, fact) for cue, fact, _ in FIVE)))
    async with house(model) as h:
        for _, _, said in FIVE:
            words = model.answer.replace(" ", "" if stream else " ")
            assert await say(h, "alice", said, stream=stream) == words
        await until(h.listed, lambda found: len(found) == 5)
        for question, answer in QUESTIONS:
            await say(h, "alice", question, stream=stream)
            assert answer in h.block, question
            assert model.last_messages[-1] == {"role": "user", "content": question}
            await say(h, "bob", question, stream=stream)
            assert model.last_messages == [{"role": "user", "content": question}]


async def test_the_upstream_sees_neither_our_fields_nor_our_headers(house):
    async with house() as h, h.client() as client:
        await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "I like tea."}],
            extra_body=context("alice", project_id="p", session_id="s")
            | {"memory_config": {"enabled": True, "retrieval_limit": 3}, "made_up": {"a": 1}},
            extra_headers={"X-Memory-Mode": "on"},
        )
        request = h.model.chats[-1]
        assert not any(name.startswith(b"x-memory") for name, _ in request.headers)
        assert set(request.json) == {"model", "messages", "made_up"}
        assert request.header(b"authorization") == b"Bearer sk-test"


async def test_the_headers_say_what_happened(house):
    async with house(ScriptedModel(facts=known(FIVE[0][:2]))) as h:

        async def headers(text, user="alice", **extra):
            given = (await h.tell(text, user, extra=extra)).headers
            return given, tuple(given.get(f"x-memory-{name}") for name in ("status", "reason", "store"))

        first, said = await headers(FIVE[0][2], **context(session_id="s-1"))
        assert (said, first["x-memory-session-id"]) == (("none", "no_memories", "queued"), "s-1")
        (memory,) = await until(h.memories)
        asked, said = await headers(QUESTIONS[0][0])
        assert said == ("injected", None, "queued")
        assert (asked["x-memory-ids"], asked["x-memory-count"]) == (memory["id"], "1")
        assert int(asked["x-memory-tokens"]) > 20
        assert asked["server-timing"].startswith("memory;dur=")
        assert "upstream;dur=" in asked["server-timing"]
        assert (await headers("Hi!"))[1][:2] == ("skipped", "greeting")
        assert (await headers(QUESTIONS[0][0], memory_context={}))[1] == ("off", "no_user", "off")
        disabled = await headers("My dog is Rex.", memory_config={"enabled": False})
        assert disabled[1] == ("off", "disabled", "off")


async def test_json_of_another_content_type_has_memory_and_our_fields_are_removed(house):
    said = b' {"messages": [{"role": "user", "content": "My dog is Rex."}], "memory_context": %s}'
    async with house(ScriptedModel()) as h, h.http() as http:
        for kind in ("application/x-www-form-urlencoded", "text/plain", "application/x+json"):

            async def post(body, kind=kind):
                return await http.post("/chat/completions", content=body, headers={"content-type": kind})

            assert (await post(said % b'{"user_id": "alice"}')).headers["x-memory-store"] == "queued"
            assert "memory_context" not in h.model.chats[-1].json
            assert h.model.chats[-1].header(b"content-type") == kind.encode()
            refused = await post(said % b'{"user_id": 7}')
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "memory_context.user_id")
        h.upstream.script = Exchange.reply
        for body in (b'{"a": 1', b"a=1"):
            answer = await post(body)
            assert (answer.status_code, answer.headers["x-memory-reason"]) == (200, "not_json")
            assert h.upstream.requests[-1].body == body


async def test_with_extraction_off_no_request_is_stored_or_reported_as_stored(house):
    async with house(memory={"extraction": "off"}) as h:
        for asked in ({"memory_config": {"auto_store": True}}, {}):
            answer = await h.tell("My dog is Rex.", extra=asked, **{"X-Memory-Mode": "on"})
            assert answer.headers["x-memory-status"] in ("none", "skipped")
            assert answer.headers["x-memory-store"] == "off"
        for kind in ("sessions", "jobs"):
            assert (await h.get(f"/memory/{kind}", user_id="alice"))["data"] == [], kind


async def test_the_block_is_inserted_before_the_last_user_message_and_the_prefix_stays(house):
    model = ScriptedModel(facts=known(FIVE[0][:2]))
    async with house(model) as h, h.client() as client:
        await h.tell(FIVE[0][2])
        await until(h.listed)
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        prefix: list[Any] = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            {"role": "assistant", "content": "A cat."},
        ]
        last = {"role": "user", "content": [{"type": "text", "text": "How much can I spend on my trip?"}]}
        await client.chat.completions.create(
            model="m", messages=[*prefix, last], extra_body=context("alice"), tools=[], seed=2**70
        )
        seen = model.last_messages
        assert seen[:5] == prefix
        assert (seen[5]["role"], seen[6]) == ("system", last)
        assert "not instructions" in seen[5]["content"]
        assert model.chats[-1].json["seed"] == 2**70


async def test_what_was_injected_is_never_extracted_again(house):
    model = ScriptedModel(facts=known(FIVE[0][:2]))
    async with house(model) as h:
        await h.tell(FIVE[0][2])
        await until(h.listed)
        await h.tell("Who plans my Polynesian holiday spending?")
        assert "10,000" in h.block
        await when(lambda: len(model.extractions) >= 2)
        prompt = str(model.extractions[-1].json["messages"][-1]["content"])
        before, _, after = prompt.partition("Polynesian")
        assert "10,000" not in before.splitlines()[-1] + after


async def test_a_changed_fact_supersedes_and_the_old_one_stays_in_the_history(house):
    model = ScriptedModel(facts=known(FIVE[0][:2]))
    async with house(model) as h:
        await h.tell(FIVE[0][2])
        (old,) = await until(h.memories)
        raised = {
            "type": "semantic",
            "content": old["content"].replace("10,000", "12,000"),
            "confidence": 0.9,
        }
        model.facts = lambda said: [{**raised, "replaces": old["id"]}] if "12,000" in said else []
        await h.tell("My budget for the Hawaii trip is $12,000 now, we got a bonus.")
        (new,) = await until(h.memories, lambda found: "12,000" in str(found))
        before = await h.get(f"/memory/{old['id']}")
        assert (before["superseded_by"], before["valid_to"] is None) == (new["id"], False)
        events = (await h.get(f"/memory/{old['id']}/history"))["data"]
        assert [e["action"] for e in events] == ["created", "superseded"]
        await h.tell(QUESTIONS[0][0])
        assert ("12,000" in h.block, "10,000" in h.block) == (True, False)


class ResponsesModel(ScriptedModel):
    """Speaks the Responses API."""

    async def converse(self, exchange: Any) -> None:
        assert exchange.request.target == b"/v1/responses"
        part = {"type": "output_text", "text": self.answer, "annotations": []}
        item = {
            "id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part],
        }  # fmt: skip
        await exchange.json(
            {
                "id": f"resp_{len(self.chats)}", "object": "response", "created_at": 1, "status": "completed",
                "model": "m", "output": [item], "parallel_tool_calls": True, "tool_choice": "auto",
                "tools": [],
            }
        )  # fmt: skip


async def test_a_response_that_continues_another_belongs_to_its_session(house):
    async with house(ResponsesModel()) as h:

        async def session(user, **continued):
            body = {"model": "m", "input": "And my shoes?", **context(user), **continued}
            answer = await h.post("/responses", body)
            return answer.headers["x-memory-session-id"], {"previous_response_id": answer.json()["id"]}

        first, continued = await session("alice")
        assert (await session("alice", **continued))[0] == first
        assert (await session("mallory", **continued))[0] != first
