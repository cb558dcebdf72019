"""The server's similarity threshold scales the gate, a request's own is taken at its word."""

from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import House, Houses

TRIP = "User's budget for the Hawaii trip is $10,000."
CAR = "User drives a blue Skoda Octavia."


async def told(house: House, text: str, **config: Any) -> str:
    """Return what the answer says of memory: the reason why there is none, else the status."""
    async with house.client() as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="m",
            messages=[{"role": "user", "content": text}],
            extra_body={"memory_context": {"user_id": "alice"}, "memory_config": config},
        )
    return answer.headers.get("x-memory-reason") or answer.headers["x-memory-status"]


@pytest.mark.parametrize("default", [None, 0.25, 0.05])
async def test_a_threshold_of_the_server_leaves_the_other_rules_on(
    house: Houses, default: float | None
) -> None:
    async with house(memory={"default_similarity_threshold": default}) as h:
        async with httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
            for fact in (TRIP, CAR):
                await http.post("/memory", json={"user_id": "alice", "content": fact})
        assert await told(h, "How much can I spend on my vacation?") == "injected"
        assert await told(h, "What is my licence plate number?") == "not_in_memory"
        assert await told(h, "What is my licence plate number?", similarity_threshold=0.05) == "injected"


@pytest.mark.parametrize(("default", "said"), [(None, "injected"), (0.9, "below_threshold")])
async def test_a_higher_threshold_of_the_server_asks_more_of_every_question(
    house: Houses, default: float | None, said: str
) -> None:
    async with house(memory={"default_similarity_threshold": default}) as h:
        async with httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
            await http.post("/memory", json={"user_id": "alice", "content": TRIP})
        assert await told(h, "What can I spend on my holiday?") == said
        assert await told(h, "What can I spend on my holiday?", similarity_threshold=0.1) == "injected"


@pytest.mark.parametrize("default", [None, 0.9])
async def test_a_search_lists_what_is_near_and_says_what_a_chat_would_be_shown(
    house: Houses, default: float | None
) -> None:
    async with (
        house(memory={"default_similarity_threshold": default, "default_retrieval_limit": 2}) as h,
        httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http,
    ):
        for fact in (TRIP, CAR, "User's car is serviced at Dorn in Kiel."):
            await http.post("/memory", json={"user_id": "alice", "content": fact})
        said = set()
        for query in (
            "What is my licence plate number?",
            "What can I spend on my holiday?",
            "car",
            "Thanks!",
            "Where is my car serviced?",
        ):
            answer = (await http.post("/memory/search", json={"user_id": "alice", "query": query})).json()
            assert len(answer["data"]) <= 2, "as many as a chat would be shown"
            assert answer["would_inject"] is (answer["reason"] is None)
            assert (answer["reason"] or "injected") == await told(h, query)
            said.add(answer["reason"])
        asked = {"user_id": "alice", "query": "What is my licence plate number?", "limit": 3}
        near = (await http.post("/memory/search", json=asked)).json()["data"]
        assert bool(near) is (default is None), "what is near can be browsed, by the server's own threshold"
        assert {None, "greeting", "not_in_memory" if default is None else "below_threshold"} <= said
