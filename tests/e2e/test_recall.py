"""Plans, thresholds and the reasons that a search gives, in the whole proxy."""

from typing import Any

import httpx2

from tests.e2e.conftest import House
from tests.support.upstream import ScriptedUpstream, completion

FACTS = ("User's budget for the Hawaii trip is $10,000.", "User was born in Porto.", "User plays the cello.")


def row(endpoint: str) -> dict[str, Any]:
    return {"model_role": "memory_plan", "llm_endpoint": endpoint, "llm_model_name": "small"}


async def ask(h: House, question: str) -> dict[str, str]:
    """Return the memory headers of one question."""
    async with h.client() as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": question}],
            extra_body={"memory_context": {"user_id": "alice"}, "memory_config": {"auto_store": False}},
        )
    return {name: value for name, value in answer.headers.items() if name.startswith("x-memory")}


async def add_facts(h: House) -> None:
    async with h.client() as client:
        for content in FACTS:
            body = {"content": content, "type": "semantic", "user_id": "alice"}
            await client.post("/memory", body=body, cast_to=object)


async def test_a_plan_calls_off_what_holds_nothing_of_the_user(house):
    async def script(exchange):
        await exchange.json(completion('{"search": false}'))

    async with ScriptedUpstream(script) as planner, house(external_models=[row(planner.url)]) as h:
        await add_facts(h)
        poem = await ask(h, "Compose an ode to the bicycle, please.")
        mine = await ask(h, "How much money can I spend on my vacation?")
        (first, *_) = planner.requests
    assert poem["x-memory-status"] != "injected"
    assert mine["x-memory-status"] == "injected"
    assert (first.header(b"user-agent") or b"").endswith(b"(memory_plan)")


TRIP = "User's budget for the Hawaii trip is $10,000."
CAR = "User drives a blue Skoda Octavia."


async def outcome(house: House, text: str, **config: Any) -> str:
    """Return the answer's memory reason, or its status if there is none."""
    async with house.client() as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": text}],
            extra_body={"memory_context": {"user_id": "alice"}, "memory_config": config},
        )
    return answer.headers.get("x-memory-reason") or answer.headers["x-memory-status"]


async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_be_shown(house):
    async with (
        house(memory={"default_retrieval_limit": 2}) as h,
        httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http,
    ):
        for fact in (TRIP, CAR, "User's car is serviced at Dorn in Kiel."):
            await http.post("/memory", json={"user_id": "alice", "content": fact})
        for query in ("What can I spend on my holiday?", "Where is my car serviced?", "Thanks!"):
            answer = (await http.post("/memory/search", json={"user_id": "alice", "query": query})).json()
            assert len(answer["data"]) <= 2, "as many as a chat would be shown"
            assert answer["would_inject"] is (answer["reason"] is None)
            assert (answer["reason"] or "injected") == await outcome(h, query)
        asked = {"user_id": "alice", "query": "What is my licence plate number?", "limit": 3}
        assert (await http.post("/memory/search", json=asked)).json()["data"], "what is near can be browsed"
