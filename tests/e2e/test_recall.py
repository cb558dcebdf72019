"""Plans, and the reasons that a search gives, in the whole proxy."""

from typing import Any

from tests.support.upstream import ScriptedUpstream, completion

TRIP = "User's budget for the Hawaii trip is $10,000."
CAR = ("User drives a blue Skoda Octavia.", "User's car is serviced at Dorn in Kiel.")


async def test_a_plan_calls_off_what_holds_nothing_of_the_user(house):
    async def script(exchange):
        await exchange.json(completion('{"search": false}'))

    async with ScriptedUpstream(script) as planner:
        row = {"model_role": "memory_plan", "llm_endpoint": planner.url, "llm_model_name": "small"}
        async with house(external_models=[row]) as h:
            await h.add(TRIP, "User was born in Porto.")
            poem = await h.tell("Compose an ode to the bicycle, please.")
            mine = await h.tell("How much money can I spend on my vacation?")
        (first, *_) = planner.requests
    assert poem.headers["x-memory-status"] != "injected"
    assert mine.headers["x-memory-status"] == "injected"
    assert (first.header(b"user-agent") or b"").endswith(b"(memory_plan)")


async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_be_shown(house):
    async def search(query, **more: Any):
        return (await h.post("/memory/search", {"user_id": "alice", "query": query, **more})).json()

    async with house(memory={"default_retrieval_limit": 2}) as h:
        await h.add(TRIP, *CAR)
        for query in ("What can I spend on my holiday?", "Where is my car serviced?", "Thanks!"):
            found, headers = await search(query), (await h.tell(query)).headers
            assert len(found["data"]) <= 2, "as many as a chat would be shown"
            assert found["would_inject"] is (found["reason"] is None)
            assert (found["reason"] or "injected") in (
                headers.get("x-memory-reason"),
                headers["x-memory-status"],
            )
        assert (await search("What is my licence plate number?", limit=3))["data"], (
            "what is near can be browsed"
        )
