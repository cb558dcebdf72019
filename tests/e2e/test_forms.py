"""A request with memory never fares worse than without: upstreams that refuse what was added.

The scripted upstreams below judge each request as a chat template does, by its messages alone.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import Houses
from tests.support.upstream import Exchange, Received

ALICE = {"memory_context": {"user_id": "alice"}}
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


def alternating(body: dict[str, Any]) -> str:
    roles = [m["role"] for m in body["messages"]]
    rest = roles[1:] if roles[0] == "system" else roles
    wanted = ["user", "assistant"] * len(rest)
    return "" if rest == wanted[: len(rest)] else "Conversation roles must alternate user/assistant/user/…"


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


async def remember(house: Any, content: str = FACT) -> None:
    async with httpx.AsyncClient(base_url=house.base_url) as client:
        answer = await client.post("/memory", json={"content": content, "user_id": "alice"})
        assert answer.status_code in (200, 201), answer.text


async def chat(house: Any, messages: list[dict[str, Any]] = HISTORY, **fields: Any) -> Any:
    body = {"model": "strict-1", "messages": messages, **ALICE, **fields}
    async with httpx.AsyncClient(base_url=house.base_url, timeout=30) as client:
        return await client.post("/chat/completions", json=body)


def with_fact(body: dict[str, Any]) -> list[str]:
    """Return the roles of the messages that hold the memory."""
    return [m["role"] for m in body["messages"] if FACT in json.dumps(m["content"])]


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_template_that_takes_one_system_message_gets_memory_in_it(
    house: Houses, stream: bool, status: int
) -> None:
    model = Strict(system_first, status)
    async with house(model) as h:
        await remember(h)
        first = await chat(h, stream=stream)
        second = await chat(h, [*HISTORY, {"role": "assistant", "content": "$10,000."}, HISTORY[3]])
    assert (first.status_code, first.headers["x-memory-status"]) == (200, "injected")
    assert first.headers["x-memory-store"] == "queued"
    assert first.headers["x-memory-retried"] == "merge_system"
    assert second.status_code == 200
    assert "x-memory-retried" not in second.headers
    assert model.refused == 1
    assert [with_fact(r.json) for r in model.chats] == [["system"], ["system"]]


@pytest.mark.parametrize("rule", [no_system, alternating, system_first])
async def test_without_a_system_message_of_the_client_memory_goes_into_the_user_s(
    house: Houses, rule: Rule
) -> None:
    model = Strict(rule)
    async with house(model) as h:
        await remember(h)
        first, second = await chat(h, HISTORY[1:]), await chat(h, HISTORY[1:])
    assert [first.status_code, second.status_code] == [200, 200]
    assert first.headers["x-memory-retried"] == "in_user"
    assert model.refused == 1
    assert [with_fact(r.json) for r in model.chats] == [["user"], ["user"]]


async def test_what_a_model_takes_is_known_after_a_restart_and_to_other_models_it_does_not_apply(
    house: Houses,
) -> None:
    model = Strict(system_first)
    async with house(model) as h:
        await remember(h)
        await chat(h)
        port, upstream = h.upstream.port, h.upstream.url
    learnt = Strict(system_first)
    async with house(learnt, port=port) as h:
        assert h.upstream.url == upstream
        known, other = await chat(h), await chat(h, model="strict-2")
    assert (known.status_code, known.headers["x-memory-status"]) == (200, "injected")
    assert "x-memory-retried" not in known.headers
    assert other.headers["x-memory-retried"] == "merge_system"


async def test_an_upstream_that_refuses_everything_has_the_last_word_and_nothing_is_learnt(
    house: Houses,
) -> None:
    model = Strict(lambda body: "That is not how we do it here.")
    async with house(model) as h:
        await remember(h)
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


async def test_a_model_that_takes_no_memory_is_asked_without_and_its_user_s_words_are_kept(
    house: Houses,
) -> None:
    model = Strict(lambda body: "Bad request." if with_fact(body) else "")
    async with house(model) as h:
        await remember(h)
        answers = [await chat(h) for _ in range(3)]
    assert [a.status_code for a in answers] == [200] * 3
    assert [a.headers["x-memory-store"] for a in answers] == ["queued"] * 3
    # Each placement is tried once, two of them with the first request; then memory is left out at once.
    retried = [a.headers.get("x-memory-retried") for a in answers]
    assert retried == ["merge_system, without memory", "without memory", None]
    assert [a.headers["x-memory-reason"] for a in answers] == ["refused"] * 3
    assert model.refused == 3
    assert [r.json["messages"] for r in model.chats] == [HISTORY] * 3


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503])
async def test_a_refusal_that_is_not_about_form_is_passed_on_at_once(house: Houses, status: int) -> None:
    model = Strict(lambda body: "Not now.", status)
    async with house(model) as h:
        await remember(h)
        answer = await chat(h)
    assert (answer.status_code, model.refused) == (status, 1)
    assert "x-memory-retried" not in answer.headers


async def test_a_request_that_memory_makes_too_long_goes_without_and_no_form_is_blamed(
    house: Houses,
) -> None:
    def too_long(body: dict[str, Any]) -> str:
        return "This model's maximum context length is 40 tokens." if with_fact(body) else ""

    model = Strict(too_long)
    async with house(model) as h:
        await remember(h)
        first, second = await chat(h), await chat(h)
    assert [a.headers["x-memory-retried"] for a in (first, second)] == ["without memory"] * 2
    assert model.refused == 2


async def test_a_request_without_memory_is_asked_once(house: Houses) -> None:
    model = Strict(system_first)
    messages = [HISTORY[0], HISTORY[1], {"role": "system", "content": "Now be long."}, HISTORY[1]]
    async with house(model) as h:
        answer = await chat(h, messages)
    assert (answer.status_code, model.refused) == (400, 1)


async def test_a_fixed_placement_that_is_refused_costs_the_memory_and_not_the_request(house: Houses) -> None:
    model = Strict(system_first)
    async with house(model, memory={"placement": "after_system"}) as h:
        await remember(h)
        answer = await chat(h)
    assert (answer.status_code, answer.headers["x-memory-retried"]) == (200, "without memory")
    assert answer.headers["x-memory-store"] == "queued"
