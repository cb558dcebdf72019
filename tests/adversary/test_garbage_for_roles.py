"""Whatever an upstream answers to roles that it does not know, nothing of it becomes a memory or a note."""

import json

import pytest

from tests.e2e.conftest import Houses, until
from tests.e2e.test_core_loop import stored
from tests.e2e.test_session_memory import ask, block, send
from tests.support.model import ScriptedModel, known

FACT = "User is allergic to hazelnuts."
GARBAGE = {
    "extraction": json.dumps({"facts": [{"type": "semantic", "content": "User owns a zeppelin"}]}),
    "bare": json.dumps([{"type": "semantic", "content": "User owns a zeppelin", "confidence": 1}]),
    "prose": "Sure! Here is a zeppelin for you, as an AI language model I can help.",
    "html": "<html><body><h1>502 zeppelin</h1></body></html>",
    "cut": '{"summary": "The user owns a zeppel',
    "empty": "",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_for_other_roles_is_never_remembered(house: Houses, garbage: str) -> None:
    model = ScriptedModel(facts=known(("hazelnut", FACT)))
    roles = ("memory_summary", "memory_state", "memory_rewrite", "memory_hyde")
    model.roles = dict.fromkeys(roles, garbage)
    setting = {"compress": True, "compress_threshold_tokens": 40, "compress_step_turns": 1}
    async with house(model, memory=setting) as h:
        history = []
        for turn in range(6):
            said = "I'm allergic to hazelnuts." if turn == 1 else f"What is worth seeing on day {turn}?"
            history.append({"role": "user", "content": said})
            await send(h, history, compress=True)
            history.append({"role": "assistant", "content": model.answer})
        await h.client().post("/memory/sessions/s-1/end?user_id=alice", cast_to=object)
        await until(lambda: stored(h, "alice"))
        await until(lambda: _asked(model))
        memories = await stored(h, "alice")
        assert "zeppel" not in json.dumps(memories)
        assert [m["content"] for m in memories if m["type"] != "episodic"] == [FACT]
        await ask(h, "Which snacks should I stay away from?", "s-1")
        assert "zeppel" not in block(h)
        await ask(h, "Which snacks should I stay away from?", "s-2")
        assert "zeppel" not in block(h)
        assert FACT in block(h)


async def _asked(model: ScriptedModel) -> int:
    return len(model.asked)
