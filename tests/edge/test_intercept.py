"""What is counted of a request with memory."""

import pytest
from openai import BadRequestError

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House, Houses

ANA = {"memory_context": {"user_id": "ana"}}


def counted(h: House) -> tuple[float | None, float | None]:
    """Return how many times were measured, and their sum."""
    registry = h.app.routes.metrics.registry
    names = ("memory_proxy_memory_seconds_count", "memory_proxy_memory_seconds_sum")
    count, total = (registry.get_sample_value(name) for name in names)
    return count, total


async def test_a_request_refused_before_the_upstream_was_asked_is_not_counted(house: Houses) -> None:
    async with house(ChatOnly(), upstream_extra={"responses": "translate"}) as h, h.client() as client:
        with pytest.raises(BadRequestError):
            await client.responses.create(
                model="m", input="And?", previous_response_id="resp_nobodys", extra_body=ANA
            )
        assert counted(h) == (0, 0)
        await client.responses.create(model="m", input="Where do I live?", extra_body=ANA)
        count, total = counted(h)
        assert count == 1
        assert total is not None
        assert 0 < total < 60
