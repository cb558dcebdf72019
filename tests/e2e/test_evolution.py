"""Memories that answers use and do not use, over the whole proxy: weights, archive, and back."""

from typing import Any

import httpx2

from tests.e2e.conftest import House, until
from tests.e2e.test_core_loop import say
from tests.support.model import ScriptedModel


async def api(h: House, method: str, path: str, **body: Any) -> Any:
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.request(method, f"{h.base_url}/memory{path}", json=body or None)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def weight(h: House, memory_id: str, wanted: float) -> dict[str, Any]:
    """Judge answers until the memory has this weight; return it. An answer is stored after it is sent."""

    async def judged() -> dict[str, Any]:
        await api(h, "POST", "/evolve", user_id="alice")
        memory: dict[str, Any] = await api(h, "GET", f"/{memory_id}")
        return memory

    return await until(judged, lambda memory: memory["weight"] == wanted)


async def test_what_answers_never_use_is_archived_and_answers_again_where_nothing_else_does(house):
    model = ScriptedModel(answer="Try the market hall.")
    async with house(model, memory={"extraction": "verbatim"}) as h:
        fact = {"user_id": "alice", "content": "User plays the cello."}
        memory_id = (await api(h, "POST", "", **fact))["id"]
        for turn, left in enumerate((0.7, 0.4, 0.1)):
            await say(h, "alice", f"Which instrument did I play on day {turn}?", stream=False)
            assert "cello" in str(model.last_messages)
            archived = await weight(h, memory_id, left)
        assert (archived["archived"], archived["archived_by"]) == (True, "use")
        assert (await api(h, "GET", "?user_id=alice"))["data"] == []
        model.answer = "You play the cello."
        await say(h, "alice", "Which instrument do I play?", stream=False)
        assert "cello" in str(model.last_messages)
        back = await weight(h, memory_id, 1.5)
        assert (back["archived"], back["uses"]) == (False, 1)
        actions = [e["action"] for e in (await api(h, "GET", f"/{memory_id}/history"))["data"]]
        assert actions == ["created", "archived", "restored"]
