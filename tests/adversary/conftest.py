"""The whole proxy as tests/e2e has it, and clients that behave badly."""

from typing import Any

import httpx2

from tests.e2e.conftest import House, house, models_dir, until

__all__ = ["begun", "context", "house", "listed", "models_dir", "post", "until"]


def context(user: str = "alice", **more: str) -> dict[str, Any]:
    return {"memory_context": {"user_id": user, **more}}


async def post(h: House, body: dict[str, Any], **headers: str) -> httpx2.Response:
    """Send one chat completion without the SDK's help."""
    async with httpx2.AsyncClient(timeout=30) as http:
        return await http.post(f"{h.base_url}/chat/completions", json={"model": "m"} | body, headers=headers)


async def tell(
    h: House, text: str, user: str = "alice", *, extra: dict[str, Any] | None = None, **headers: str
) -> httpx2.Response:
    """One user message in a conversation of its own."""
    return await post(
        h, {"messages": [{"role": "user", "content": text}]} | context(user) | (extra or {}), **headers
    )


async def listed(h: House, user: str = "alice", **params: str) -> list[str]:
    """The contents of a user's current memories."""
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{h.base_url}/memory", params={"user_id": user, "limit": 100, **params})
    assert answer.status_code == 200, answer.text
    return [m["content"] for m in answer.json()["data"]]


async def begun(h: House, user: str = "alice") -> int:
    """How many of a user's exchanges are in the store, answered or not."""
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{h.base_url}/memory/sessions", params={"user_id": user})
    return sum(session["exchanges"] for session in answer.json()["data"])


async def jobs(h: House) -> dict[str, int]:
    """The jobs by state, as /health says."""
    async with httpx2.AsyncClient(timeout=30) as http:
        counts: dict[str, int] = (await http.get(f"{h.origin}/health")).json()["jobs"]
    return counts
