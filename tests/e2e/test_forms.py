"""A request with memory never fares worse than without: upstreams that refuse what was added.

The scripted upstreams below judge each request as a chat template does, by its messages alone.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.cli import doctor
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import context
from tests.support.upstream import Exchange, Received

FACT = "The Hawaii trip may cost $10,000 in all."
QUESTION = "How much can I spend on my vacation?"
HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello there, I am planning my summer."},
    {"role": "assistant", "content": "Nice."},
    {"role": "user", "content": QUESTION},
]
Rule = Callable[[dict[str, Any]], str]  # why a body is refused, "" if it is not


def system_first(body: dict[str, Any]) -> str:
    roles = [message["role"] for message in body["messages"]]
    return "System message must be at the beginning." if "system" in roles[1:] else ""


def no_system(body: dict[str, Any]) -> str:
    return "System role not supported" if any(m["role"] == "system" for m in body["messages"]) else ""


def agent_of(request: Received) -> str:
    return (request.header(b"user-agent") or b"").decode()


class Strict(ChatOnly):
    """A chat server that refuses what its template does not take."""

    def __init__(self, rule: Rule, status: int = 400, **options: Any) -> None:
        super().__init__(**options)
        self.rule, self.status = rule, status
        self.refused = 0  # of conversations

    async def __call__(self, exchange: Exchange) -> None:
        route = exchange.request.target.partition(b"?")[0]
        if route == b"/v1/chat/completions" and (why := self.rule(exchange.request.json)):
            self.refused += not agent_of(exchange.request).startswith("memory-proxy/")
            error = {"error": {"message": why, "type": "invalid_request_error", "code": None}}
            await exchange.json(error, self.status)
            return
        await super().__call__(exchange)


async def chat(house: Any, messages: list[dict[str, Any]] = HISTORY, **fields: Any) -> Any:
    return await house.tell(messages, extra={"model": "strict-1", **fields})


def with_fact(body: dict[str, Any]) -> list[str]:
    """Return the roles of the messages that hold the memory."""
    return [m["role"] for m in body["messages"] if FACT in json.dumps(m["content"])]


@pytest.mark.parametrize(("stream", "status"), [(False, 400), (True, 422)])
async def test_a_template_that_takes_one_system_message_gets_memory_in_it(house, tmp_path, stream, status):
    model = Strict(system_first, status)
    async with house(model) as h, h.http() as client:
        await h.add(FACT)
        first = await chat(h, stream=stream)
        second = await chat(h, [*HISTORY, {"role": "assistant", "content": "$10,000."}, HISTORY[3]])
        metrics = (await client.get(f"{h.origin}/metrics")).text
    assert (first.status_code, first.headers["x-memory-status"]) == (200, "injected")
    assert first.headers["x-memory-store"] == "queued"
    assert first.headers["x-memory-retried"] == "merge_system"
    assert second.status_code == 200
    assert "x-memory-retried" not in second.headers
    assert model.refused == 1
    assert [with_fact(r.json) for r in model.chats] == [["system"], ["system"]]
    assert 'memory_proxy_form_retries_total{changed="placement"} 1.0' in metrics
    texts = [f.text for f in doctor.database_findings(tmp_path / "data" / "memory.db", "all-MiniLM-L6-v2")]
    assert any("strict-1" in text and "placement=merge_system" in text for text in texts)


async def test_what_a_model_takes_is_known_after_a_restart_and_to_other_models_it_does_not_apply(house):
    model = Strict(system_first)
    async with house(model) as h:
        await h.add(FACT)
        await chat(h)
        port, upstream = h.upstream.port, h.upstream.url
    learnt = Strict(system_first)
    async with house(learnt, port=port) as h:
        assert h.upstream.url == upstream
        known, other = await chat(h), await chat(h, model="strict-2")
    assert (known.status_code, known.headers["x-memory-status"]) == (200, "injected")
    assert "x-memory-retried" not in known.headers
    assert other.headers["x-memory-retried"] == "merge_system"


async def test_an_upstream_that_refuses_everything_has_the_last_word_and_nothing_is_learnt(house):
    model = Strict(lambda body: "That is not how we do it here.")
    async with house(model) as h:
        await h.add(FACT)
        refused = await chat(h)
        model.rule = lambda body: ""
        taken = await chat(h)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "That is not how we do it here."
    assert refused.headers["x-memory-retried"] == "merge_system, without memory"
    assert (refused.headers["x-memory-status"], refused.headers["x-memory-reason"]) == ("none", "refused")
    assert refused.headers["x-memory-store"] == "off"
    assert model.refused == 3
    assert "x-memory-retried" not in taken.headers
    assert with_fact(model.chats[-1].json) == ["system"]


async def test_a_model_that_refuses_memory_is_asked_without_it_and_the_user_s_words_are_stored(house):
    model = Strict(lambda body: "Bad request." if with_fact(body) else "")
    async with house(model) as h:
        await h.add(FACT)
        answers = [await chat(h) for _ in range(3)]
    assert [a.status_code for a in answers] == [200] * 3
    assert [a.headers["x-memory-store"] for a in answers] == ["queued"] * 3
    # Each placement is tried once, two of them with the first request; then memory is left out at once.
    retried = [a.headers.get("x-memory-retried") for a in answers]
    assert retried == ["merge_system, without memory", "without memory", None]
    assert [a.headers["x-memory-reason"] for a in answers] == ["refused"] * 3
    assert model.refused == 3
    assert [r.json["messages"] for r in model.chats] == [HISTORY] * 3


async def test_what_is_not_about_form_or_has_no_memory_is_passed_on_at_once(house):
    model = Strict(lambda body: "Not now.")
    async with house(model) as h:
        refused = await chat(h)  # nothing was added to it
        assert (refused.status_code, model.refused) == (400, 1)
        await h.add(FACT)
        for model.status in (401, 404, 429, 500):
            model.refused = 0
            answer = await chat(h)
            assert (answer.status_code, model.refused) == (model.status, 1)
            assert "x-memory-retried" not in answer.headers


# ---------------------------------------------------------------- /v1/responses
async def respond(house: Any, **fields: Any) -> Any:
    return await house.post("/responses", {"model": "strict-1", **fields})


async def test_a_translated_request_gets_memory_where_the_template_takes_it(house):
    model = Strict(no_system)
    async with house(model) as h:
        await h.add(FACT)
        first, second = [await respond(h, input=QUESTION, **context()) for _ in range(2)]
    assert (first.status_code, first.headers["x-memory-retried"]) == (200, "in_user")
    assert (second.status_code, second.headers["x-memory-status"]) == (200, "injected")
    assert second.headers["x-memory-store"] == "queued"
    assert model.refused == 1
    assert [with_fact(r.json) for r in model.chats] == [["user"]] * 2


FIELDS = {
    "prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"}, "safety_identifier": "u1",
    "parallel_tool_calls": True, "reasoning": {"effort": "low"}, "text": {"verbosity": "low"},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "stream": True,
}  # fmt: skip


class Picky(ChatOnly):
    """A chat server that does not know a field, and says so."""

    unknown_field, refused = "", 0

    async def converse(self, exchange: Exchange) -> None:
        if self.unknown_field in exchange.request.json:
            self.refused += 1
            error = {"message": f"Unknown parameter: '{self.unknown_field}'.", "param": self.unknown_field}
            await exchange.json({"error": error | {"code": "unknown_parameter"}}, 400)
        else:
            await super().converse(exchange)


async def test_a_field_that_the_server_names_is_left_out_from_then_on(house):
    model = Picky()
    async with house(model) as h:
        for field in (
            "prompt_cache_key prompt_cache_options safety_identifier reasoning_effort verbosity"
            " parallel_tool_calls stream_options"
        ).split():
            model.unknown_field, model.refused = field, 0
            asked = FIELDS | {"model": field}  # it is learnt for one model
            answers = [await respond(h, input="Hello", **asked) for _ in range(2)]
            assert [a.status_code for a in answers] == [200, 200]
            assert [a.headers.get("x-memory-retried") for a in answers] == [f"without {field}", None]
            assert model.refused == 1
            sent = model.chats[-1].json
            assert field not in sent
            assert {"prompt_cache_key", "reasoning_effort", "stream_options"} - {field} <= set(sent)


async def test_a_model_that_only_streams_is_asked_for_a_stream(house):
    def streams(body):
        return "" if body.get("stream") else "This model only support stream mode, please enable it."

    model = Strict(streams)
    async with house(model) as h:
        answers = [await respond(h, input="Hi") for _ in range(2)]
    assert [a.status_code for a in answers] == [200, 200]
    assert [a.headers.get("x-memory-retried") for a in answers] == ["streamed", None]
    assert model.refused == 1
    assert {a.headers["content-type"] for a in answers} == {"application/json"}
    assert all(a.json()["output"][0]["content"][0]["text"] for a in answers)
    assert model.chats[-1].json["stream_options"] == {"include_usage": True}


class Native(Strict):
    """A server of /v1/responses that takes no system message in mid-conversation."""

    async def __call__(self, exchange: Exchange) -> None:
        items = exchange.request.json.get("input")
        if isinstance(items, list) and any(item["role"] == "system" for item in items):
            self.refused += 1
            await exchange.json({"error": {"message": "System message must be at the beginning."}}, 400)
            return
        self.chats.append(exchange.request)
        part = {"type": "output_text", "text": "All right.", "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
        await exchange.json({"id": "resp_n", "object": "response", "status": "completed", "output": [said]})


async def test_a_native_responses_request_is_asked_again_too(house):
    model = Native(lambda body: "")
    async with house(model) as h:
        await h.add(FACT)
        answers = [await respond(h, input=QUESTION, instructions="Be brief.", **context()) for _ in range(2)]
    assert [a.headers.get("x-memory-retried") for a in answers] == ["merge_system", None]
    assert [a.headers["x-memory-store"] for a in answers] == ["queued"] * 2
    assert model.refused == 1
    assert all(FACT in r.body.decode() for r in model.chats)


async def test_a_refusal_inside_an_answer_of_status_200_is_one_too(house):
    class Router(ChatOnly):
        refused = 0

        async def converse(self, exchange):
            body = exchange.request.json
            if not (why := system_first(body)):
                await super().converse(exchange)
                return
            self.refused += 1
            error = {"id": "c", "error": {"code": 400, "message": why}}
            await exchange.stream(b": PROCESSING\n\n", b"data: " + json.dumps(error).encode() + b"\n\n")

    model = Router()
    async with house(model) as h:
        await h.add(FACT)
        answers = [await chat(h, stream=True) for _ in range(3)]
    assert [a.headers.get("x-memory-retried") for a in answers] == ["merge_system", None, None]
    assert model.refused == 1
    assert all("right" in a.text for a in answers)


class Slow(Strict):
    """Takes its time with each answer, a refusal too."""

    async def __call__(self, exchange: Exchange) -> None:
        if not agent_of(exchange.request).startswith("memory-proxy/"):
            await asyncio.sleep(0.3)
        await super().__call__(exchange)


async def test_a_stream_waits_for_a_form_that_is_not_known_to_be_taken(house):
    model = Slow(no_system)
    async with house(model, upstream_extra={"stream_start_seconds": 0.1}) as h:
        await h.add(FACT)
        first, second = [await respond(h, input=QUESTION, stream=True, **context()) for _ in range(2)]
    assert (first.status_code, model.refused) == (200, 1)
    assert first.headers["x-memory-retried"] == "in_user"
    assert "x-memory-retried" not in second.headers
    assert first.text.count("event: response.created\n") == 1
    assert ": X-Memory" not in first.text + second.text
