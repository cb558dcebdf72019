"""The harness sets a proxy's clock, so that a question is asked on its day."""

from evals.data import seconds
from evals.house import opened
from evals.model import Model


async def test_each_request_of_an_evaluation_is_made_at_its_own_time(tmp_path):
    """In a real proxy, forwards and backwards."""
    said = {
        "2026-05-01T12:00:00Z": "User has cats",
        "2031-01-01T00:00:00Z": "User owns a kayak",
        "2027-02-03T04:05:06Z": "User works at Acme",
    }
    async with opened(tmp_path, Model(), {}, whole=False) as house:
        for when, content in said.items():
            house.clock.set(seconds(when))
            added = await house.call("POST", "/v1/memory", {"user_id": "anna", "content": content})
            assert abs(added.body["created_at"] - seconds(when)) < 60, content
