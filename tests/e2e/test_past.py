"""Questions about the past, over real sockets and with the product's models."""

import httpx2

from tests.e2e.test_session_memory import ask, block


async def test_a_question_about_last_year_is_shown_what_held_then(house):
    async with house() as h, httpx2.AsyncClient(base_url=h.base_url, timeout=30) as http:
        for city, year in (("Lisbon", 2024), ("Oslo", 2025)):
            body = {
                "content": f"User lives in {city}.",
                "user_id": "alice",
                "created_at": f"{year}-03-01T09:00:00Z",
            }
            added = (await http.post("/memory", json=body)).json()
        assert added["change"] == "superseded"
        await ask(h, "Where did I live in May 2024?")
        assert "] User lives in Oslo." in block(h)
        assert "[was 2024-03-01 until 2025-03-01 #" in block(h)
        await ask(h, "Where do I live?", "s-2")
        assert "Lisbon" not in block(h)
        await ask(h, "Where did I live in May 2024?", "s-3", user="bob")
        assert block(h) == ""
        page = (await http.get("/memory/timeline", params={"user_id": "alice"})).json()["data"]
        (old,) = {e["memory_id"] for e in page} - {added["id"]}
        assert (
            await http.request("DELETE", f"/memory/{old}", params={"user_id": "alice"})
        ).status_code == 200
        await ask(h, "Where did I live in May 2024?", "s-4")
        assert "Lisbon" not in block(h)
