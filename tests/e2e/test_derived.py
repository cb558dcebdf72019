"""Facts are merged by a model of external_models, in the whole proxy with its own encoder and heads."""

import json
from typing import Any

import httpx2

from tests.support.upstream import ScriptedUpstream, completion

FACTS = (
    "Hawaii trip budget: $10,000",
    "Added $2,000 to the Hawaii trip budget",
    "Final Hawaii trip budget: $12,000",
)
MERGED = "Hawaii budget: $12,000 (from $10,000)"


async def test_a_budget_and_its_changes_become_one_memory_that_is_injected_and_undone(house):
    async def script(exchange):
        await exchange.json(completion(json.dumps({"content": MERGED, "sources": [1, 2, 3]})))

    async with ScriptedUpstream(script) as writer:
        row: dict[str, Any] = {
            "model_role": "memory_consolidation", "llm_endpoint": writer.url, "llm_model_name": "small",
        }  # fmt: skip
        async with (
            house(external_models=[row]) as h,
            httpx2.AsyncClient(base_url=h.base_url, timeout=60) as api,
        ):
            for fact in FACTS:
                await api.post("/memory", json={"user_id": "alice", "content": fact})
            before = {m["content"] for m in (await api.get("/memory?user_id=alice")).json()["data"]}
            did = (await api.post("/memory/evolve", json={"user_id": "alice"})).json()["steps"]
            (made,) = (await api.get("/memory?user_id=alice")).json()["data"]
            asked = {"messages": [{"role": "user", "content": "What can I spend on my vacation?"}]}
            explained = (await api.post("/memory/explain", json={"user_id": "alice", **asked})).json()
            undone = (await api.post(f"/memory/{made['id']}/undo?user_id=alice")).json()
            after = {m["content"] for m in (await api.get("/memory?user_id=alice")).json()["data"]}
    assert (made["content"], made["source"], len(made["sources"])) == (MERGED, "consolidated", 3), did
    assert MERGED in explained["block"]
    assert undone["restored"]
    assert after == before
