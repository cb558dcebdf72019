"""Plans and reranking in the whole proxy: what a scripted model says changes the search, or nothing."""

from typing import Any

from tests.e2e.conftest import House, Houses
from tests.support.upstream import Exchange, ScriptedUpstream, completion

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


async def test_a_plan_calls_off_what_holds_nothing_of_the_user(house: Houses) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.json(completion('{"search": false}'))

    async with ScriptedUpstream(script) as planner, house(external_models=[row(planner.url)]) as h:
        await add_facts(h)
        poem = await ask(h, "Compose an ode to the bicycle, please.")
        mine = await ask(h, "How much money can I spend on my vacation?")
        (first, *_) = planner.requests
    assert poem["x-memory-status"] != "injected"
    assert mine["x-memory-status"] == "injected"
    assert (first.header(b"user-agent") or b"").endswith(b"(memory_plan)")
