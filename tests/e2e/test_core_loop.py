"""The main job, with the real OpenAI SDK: said in one conversation, known in the next."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import House, until
from tests.support.model import ScriptedModel, known
from tests.support.upstream import completion

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


def context(user: str, **more: str) -> dict[str, Any]:
    return {"memory_context": {"user_id": user, **more}}


async def say(h: House, user: str, text: str, *, stream: bool, **extra: Any) -> str:
    """One turn through the SDK; returns the answer's text."""
    async with h.client() as client:
        messages: Any = [{"role": "user", "content": text}]
        body = context(user) | extra
        if not stream:
            answer = await client.chat.completions.create(model="m", messages=messages, extra_body=body)
            return answer.choices[0].message.content or ""
        chunks = await client.chat.completions.create(
            model="m", messages=messages, extra_body=body, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in chunks])


async def stored(h: House, user: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{h.base_url}/memory", params={"user_id": user, "limit": 100})
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def has(count: int) -> Callable[[list[Any]], bool]:
    return lambda items: len(items) >= count


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_five_things_said_are_known_in_a_new_conversation_and_to_no_other_user(house, stream):
    model = ScriptedModel(facts=known(*((cue, fact) for cue, fact, _ in FIVE)))
    async with house(model) as h:
        for _, _, said in FIVE:
            assert await say(h, "alice", said, stream=stream) == model.answer.replace(
                " ", "" if stream else " "
            )
        assert len(await until(lambda: stored(h, "alice"), has(5))) == 5
        for question, answer in QUESTIONS:
            await say(h, "alice", question, stream=stream)
            system = [m for m in model.last_messages if m["role"] == "system"]
            assert answer in str(system), question
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
    model = ScriptedModel(facts=known(FIVE[0][:2]))
    async with house(model) as h, h.client() as client:

        async def headers(text, **extra):
            raw = await client.chat.completions.with_raw_response.create(
                model="m", messages=[{"role": "user", "content": text}], extra_body=extra
            )
            return raw.headers

        first = await headers(FIVE[0][2], **context("alice", session_id="s-1"))
        assert (first["x-memory-status"], first["x-memory-reason"]) == ("none", "no_memories")
        assert (first["x-memory-store"], first["x-memory-session-id"]) == ("queued", "s-1")
        (memory,) = await until(lambda: stored(h, "alice"), has(1))
        asked = await headers("How much money can I spend on vacation?", **context("alice"))
        assert asked["x-memory-status"] == "injected"
        assert asked["x-memory-ids"] == memory["id"]
        assert asked["x-memory-count"] == "1"
        assert int(asked["x-memory-tokens"]) > 20
        assert asked["server-timing"].startswith("memory;dur=")
        assert "upstream;dur=" in asked["server-timing"]
        hello = await headers("Hi!", **context("alice"))
        assert (hello["x-memory-status"], hello["x-memory-reason"]) == ("skipped", "greeting")
        without_user = await headers("How much money can I spend on vacation?")
        assert (without_user["x-memory-status"], without_user["x-memory-reason"]) == ("off", "no_user")
        assert without_user["x-memory-store"] == "off"
        off = await headers("My dog is Rex.", **context("alice"), memory_config={"enabled": False})
        assert (off["x-memory-status"], off["x-memory-store"]) == ("off", "off")


async def test_json_of_another_content_type_has_memory_and_our_fields_are_removed(house):
    class Deaf(ScriptedModel):
        async def converse(self, exchange):
            await exchange.json(completion("All right."))

    async with house(Deaf()) as h, httpx2.AsyncClient(timeout=30) as http:

        async def post(body):
            headers = {"content-type": kind}
            return await http.post(f"{h.base_url}/chat/completions", content=body, headers=headers)

        said = b' {"messages": [{"role": "user", "content": "My dog is Rex."}], "memory_context": %s}'
        for kind in ("application/x-www-form-urlencoded", "text/plain", "application/x+json"):
            answer = await post(said % b'{"user_id": "alice"}')
            assert answer.headers["x-memory-store"] == "queued"
            assert "memory_context" not in h.model.chats[-1].json
            assert (h.model.chats[-1].header(b"content-type") or b"").decode() == kind
            refused = await post(said % b'{"user_id": 7}')
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "memory_context.user_id")
            for body in (b'{"a": 1', b"a=1"):
                answer = await post(body)
                assert (answer.status_code, answer.headers["x-memory-reason"]) == (200, "not_json")
                assert h.upstream.requests[-1].body == body


async def test_with_extraction_off_no_request_is_stored_or_reported_as_stored(house):
    async with house(memory={"extraction": "off"}) as h, h.client() as client:
        for asked in ({"memory_config": {"auto_store": True}}, {}):
            raw = await client.chat.completions.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": "My dog is Rex."}],
                extra_body=context("alice", session_id="s-1") | asked,
                extra_headers={"X-Memory-Mode": "on"},
            )
            assert raw.headers["x-memory-status"] in ("none", "skipped")
            assert raw.headers["x-memory-store"] == "off"
        async with httpx2.AsyncClient(timeout=30) as http:
            for listed_kind in ("sessions", "jobs"):
                answer = await http.get(f"{h.base_url}/memory/{listed_kind}", params={"user_id": "alice"})
                assert answer.json()["data"] == [], listed_kind


async def test_the_block_is_inserted_before_the_last_user_message_and_the_prefix_stays(house):
    model = ScriptedModel(facts=known(FIVE[0][:2]))
    async with house(model) as h, h.client() as client:
        await say(h, "alice", FIVE[0][2], stream=False)
        await until(lambda: stored(h, "alice"), has(1))
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
        await say(h, "alice", FIVE[0][2], stream=False)
        await until(lambda: stored(h, "alice"), has(1))
        await say(h, "alice", "Who plans my Polynesian holiday spending?", stream=False)
        await until(lambda: _value(len(model.extractions)), lambda n: n >= 2)
        prompt = str(model.extractions[-1].json["messages"][-1]["content"])
        said = prompt.split("Polynesian")[0].splitlines()[-1] + prompt.split("Polynesian")[1]
        assert "10,000" not in said


async def _value(value: int) -> int:
    return value


async def test_a_changed_fact_supersedes_and_the_old_one_stays_in_the_history(house):
    model = ScriptedModel(
        facts=known(
            ("10,000", "User's budget for the Hawaii trip is $10,000."),
            ("12,000", "User's budget for the Hawaii trip is $12,000."),
        )
    )
    async with house(model) as h, httpx2.AsyncClient(timeout=30) as http:
        await say(h, "alice", "My budget for the Hawaii trip is $10,000.", stream=True)
        (old,) = await until(lambda: stored(h, "alice"), has(1))
        facts = model.facts
        model.facts = lambda said: [{**fact, "replaces": old["id"]} for fact in facts(said)]
        await say(h, "alice", "My budget for the Hawaii trip is $12,000 now, we got a bonus.", stream=True)
        (new,) = await until(lambda: stored(h, "alice"), lambda ms: "12,000" in str(ms))
        assert new["id"] != old["id"]
        before = (await http.get(f"{h.base_url}/memory/{old['id']}")).json()
        assert before["superseded_by"] == new["id"]
        assert before["valid_to"] is not None
        events = (await http.get(f"{h.base_url}/memory/{old['id']}/history")).json()["data"]
        assert [e["action"] for e in events] == ["created", "superseded"]
        await say(h, "alice", "How much money can I spend on vacation?", stream=False)
        assert "12,000" in str(model.last_messages)
        assert "10,000" not in str(model.last_messages)


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
    async with house(ResponsesModel()) as h, h.client() as client:
        first = await client.responses.with_raw_response.create(
            model="m", input="I am packing.", extra_body=context("alice")
        )
        session = first.headers["x-memory-session-id"]
        later = await client.responses.with_raw_response.create(
            model="m",
            input="And my shoes?",
            previous_response_id=first.parse().id,
            extra_body=context("alice"),
        )
        assert later.headers["x-memory-session-id"] == session
        stranger = await client.responses.with_raw_response.create(
            model="m",
            input="And my shoes?",
            previous_response_id=first.parse().id,
            extra_body=context("mallory"),
        )
        assert stranger.headers["x-memory-session-id"] != session
