"""What is counted of a request with memory, and what its session is called."""

import httpx2
import pytest
from openai import BadRequestError

from proxy.admit.safety import safe_id
from tests.adversary.conftest import files_with
from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import House

ANA = {"memory_context": {"user_id": "ana"}}
KEY = "sk-proj-9fK2mQ7xW4tB8vLzR3nY6cH1"


def counted(h: House) -> tuple[float | None, float | None]:
    """Return how many times were measured, and their sum."""
    registry = h.app.routes.metrics.registry
    names = ("memory_proxy_memory_seconds_count", "memory_proxy_memory_seconds_sum")
    count, total = (registry.get_sample_value(name) for name in names)
    return count, total


async def test_a_request_refused_before_the_upstream_was_asked_is_not_counted(house):
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


async def test_a_secret_as_session_or_project_id_is_stored_as_a_digest(house, tmp_path):
    context = {"user_id": "ana", "project_id": KEY}
    asked = {"model": "m", "messages": [{"role": "user", "content": "I knit."}]}
    async with house(data_dir=tmp_path) as h, httpx2.AsyncClient(base_url=h.base_url, timeout=30) as http:
        said = {**asked, "memory_context": {**context, "session_id": KEY}}
        headers = (await http.post("/chat/completions", json=said)).headers
        assert headers["x-memory-session-id"] == safe_id(KEY) != KEY
        added = await http.post("/memory", json={"content": "Ana knits socks."} | context)
        found = await http.get("/memory", params=context)
        assert added.json()["project_id"] == safe_id(KEY)
        assert [each["id"] for each in found.json()["data"]] == [added.json()["id"]]
    assert not files_with(tmp_path, KEY)
