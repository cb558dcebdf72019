"""Memories that change by themselves, over the whole proxy: merged, weighed by use, archived, and back."""

import json
from typing import Any

from tests.e2e.conftest import until
from tests.support.model import ScriptedModel
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
        async with house(external_models=[row]) as h:
            await h.add(*FACTS)
            before = sorted(await h.listed())
            await h.post("/memory/evolve", {"user_id": "alice"})
            (made,) = await h.memories()
            assert (made["content"], made["source"], len(made["sources"])) == (MERGED, "consolidated", 3)
            await h.tell("What can I spend on my vacation?")
            assert MERGED in h.block
            undone = await h.post(f"/memory/{made['id']}/undo?user_id=alice", {})
            assert undone.json()["restored"]
            assert sorted(await h.listed()) == before


async def test_what_answers_never_use_is_archived_and_answers_again_where_nothing_else_does(house):
    model = ScriptedModel(answer="Try the market hall.")
    async with house(model, memory={"extraction": "verbatim"}) as h:
        (id_,) = await h.add("User plays the cello.")

        async def weighed(wanted):
            """Judge answers until the memory has this weight; an answer is stored after it is sent."""

            async def judged():
                await h.post("/memory/evolve", {"user_id": "alice"})
                return await h.get(f"/memory/{id_}")

            return await until(judged, lambda memory: memory["weight"] == wanted)

        for turn, left in enumerate((0.7, 0.4, 0.1)):
            await h.tell(f"Which instrument did I play on day {turn}?")
            assert "cello" in h.block
            archived = await weighed(left)
        assert (archived["archived"], archived["archived_by"]) == (True, "use")
        assert await h.listed() == []
        model.answer = "You play the cello."
        await h.tell("Which instrument do I play?")
        assert "cello" in h.block
        back = await weighed(1.5)
        assert (back["archived"], back["uses"]) == (False, 1)
        actions = [e["action"] for e in (await h.get(f"/memory/{id_}/history"))["data"]]
        assert actions == ["created", "archived", "restored"]
