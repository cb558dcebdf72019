"""The reasons that a search gives, in the whole proxy."""

from typing import Any

TRIP = "User's budget for the Hawaii trip is $10,000."
CAR = ("User drives a blue Skoda Octavia.", "User's car is serviced at Dorn in Kiel.")


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
