"""The server's similarity threshold is the least cosine of every request, a request's own decides alone."""

from typing import Any

import httpx2

from tests.e2e.conftest import House, Houses

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


async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_be_shown(house: Houses) -> None:
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
